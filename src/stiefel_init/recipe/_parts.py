"""The default recipe: what each layer starts as, by the part it plays in the model.

Inside, layers are members of the set; at the ends and in convolutions the set is wrong, and something close to it is
used. docs/architectures.md compares networks trained from it with those from other starts.

Note [near the identity]
    L layers in a row, with nothing but activations between them, start close to passing their signal on: linear layers
    as small rotations (`Rotation.in_a_row`), kernels as a permutation at the centre plus 1/√L times random patches, so
    that the whole row looks about as far around a pixel as one layer of random patches does. After a normalization or
    a sum of branches a layer is on its own, L = 1, and is drawn uniformly.
Note [attention as a filter]
    W_K = 0.7 W_Q lets a token look for tokens like itself, and W_O = -W_Vᵀ/4 takes off a part of what they share; both
    as trained attention does (Trockman and Kolter: Mimetic initialization of self-attention layers, 2023), but with
    W_Q and W_V in the set.
Note [branches without normalization]
    B residual branches each add as much as there was, and the signal doubles B times. Scaled by 1/√B at their ends they
    add up to a fixed multiple of it, whatever B; if they end in random directions, that is, since members of the set
    would all add to the common level.
Note [places]
    What a layer over places, such as the tokens of a mixer, should do with their common level is for the task to say;
    the set would pass it on to every unit. Such layers are orthogonal, with no direction preferred.
Note [codes]
    What a bottleneck makes is read as it is, with no rectifier: members of the set would give all its units the common
    level of the layer below. It is orthogonal to that level, like a head, and the layer that reads it has no common
    level to pass on: it is orthogonal, with no direction preferred.
Note [states]
    A recurrent network of ReLUs is a row as long as its sequences, of one layer: its state starts as a small rotation,
    near the identity of Le, Jaitly and Hinton (2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..schemes import Blend, Centred, Offsets, Orthogonal, Rotation, Scheme, Stiefel
from ._matrices import Layer, Matrices, Shape, is_patches, kernel_matrices
from ._roles import Roles, saturates

KEY, OUTPUT = 0.7, -0.25  # Note [attention as a filter]
STATE = Rotation(0.15)  # Note [states]


class Part(NamedTuple):
    """Matrices to be drawn into a weight, or into some of its rows."""

    matrices: Matrices
    scheme: Scheme
    reason: str = ""
    source: str = ""
    """The weight whose matrices these are, if not its own."""
    first: int = 0
    """The number of its first matrix."""
    bias: Scheme | None = None
    """How the layer's biases start; None for zeros."""


class Weight(NamedTuple):
    """A weight that is to be drawn, and its layer."""

    name: str
    shape: Shape
    """In PyTorch's layout; `Layer` describes it."""
    matrices: Matrices
    """What it holds under the paper's recipe."""
    layer: Layer
    biased: bool = False
    """Whether the layer has a bias that can be set."""
    linked: bool = True
    """Whether it may take the matrices of another weight."""


def reason_of(bias: Scheme) -> str:
    """Why biases are drawn."""
    return "set the units apart" if isinstance(bias, Offsets) else ""


def parts(weights: Iterable[Weight], roles: Roles) -> dict[str, list[Part]]:
    """What all weights of a model start as, by name."""
    known = {weight.name: weight for weight in weights}
    linked = _attention({name: weight for name, weight in known.items() if weight.linked}, roles)
    ends = [known[name] for name in roles.branches if name in known and name not in linked]
    ends = [weight for weight in ends if weight.layer.kind in ("linear", "convolution")]
    branches = {weight.name: sum(each.matrices.count for each in ends) for weight in ends}
    return {
        name: linked.get(name) or [_scaled(_part(weight, roles), branches.get(name, 1))]
        for name, weight in known.items()
    }


def _scaled(part: Part, branches: int) -> Part:
    """The part as the end of one of several residual branches; Note [branches without normalization]."""
    if branches == 1:
        return part
    law = part.scheme
    scheme = replace(law, spread=1.0) if isinstance(law, Blend) else Orthogonal()
    matrices = replace(part.matrices, scale=part.matrices.scale / math.sqrt(branches))
    return Part(matrices, scheme, f"ends one of {branches} residual branches without normalization")


def _part(weight: Weight, roles: Roles) -> Part:
    name, shape, matrices, layer = weight[:4]
    if 0 in shape or layer.kind == "members":
        return Part(matrices, Stiefel())
    if layer.kind == "state":
        return Part(matrices, STATE, "the state of a ReLU network: near the identity")
    if layer.kind == "convolution" and not is_patches(layer, shape):
        return _kernel(weight, roles)
    m, n = matrices.m, matrices.n
    if name in roles.heads:
        return Part(matrices, Centred(), roles.heads[name])
    if name in roles.stems:
        reason, after = roles.stems[name], roles.next.get(name)
        if m > n and name in roles.normalized:  # which would take biases off
            return Part(matrices, Orthogonal(math.sqrt(2)), reason)
        if m <= n or after is None:
            return Part(matrices, Stiefel(), reason)
        if not weight.biased:
            return Part(matrices, Orthogonal(math.sqrt(m / n * _power(after))), reason)
        # The biases are as wide as the signal behind the weights, for inputs of deviation 1; twice as wide for a single
        # input, whose units differ in nothing else: they bend at -b/w and have to cover its range.
        bias = Offsets(math.sqrt(2 if n == 1 else 0.5))
        return Part(replace(matrices, scale=math.sqrt(m / (2 * n))), Stiefel(), reason + ", lifted", bias=bias)
    if name in roles.places:  # Note [places]
        gain = math.sqrt(_power(after)) if (after := roles.next.get(name)) is not None else 1.0
        return Part(matrices, Orthogonal(gain), "mixes places, not channels")
    if name in roles.codes and m < n:  # Note [codes]
        return Part(matrices, Centred(), "makes a code: nothing rectifies it")
    if name in roles.decoders and m > n:
        return Part(matrices, Orthogonal(math.sqrt(_power(roles.next.get(name)))), "reads a code")
    row = roles.runs.get(name, 1)
    return Part(matrices, Rotation.in_a_row(row) if row > 1 and m == n else Stiefel())


def _power(activation: str | None) -> float:
    """What makes up for the part of a random signal's power that an activation takes."""
    return 1.0 if activation is not None and saturates(activation) else 2.0


def _kernel(weight: Weight, roles: Roles) -> Part:
    """A convolution's kernel, whose matrix under the paper's recipe is at the centre."""
    name, shape, at_centre, layer = weight[:4]
    whole = kernel_matrices(layer, shape, "delta", entrywise=True)
    upsamples = math.sqrt(math.prod(layer.stride)) if layer.transposed else 1.0  # each output has that fewer inputs
    if name in roles.heads:
        if upsamples > 1:
            return Part(whole, Orthogonal(upsamples), roles.heads[name])
        return Part(at_centre, Centred(), roles.heads[name])
    gain = math.sqrt(_power(roles.next.get(name)))
    if name in roles.stems:
        return Part(whole, Orthogonal(gain), roles.stems[name])
    if upsamples > 1:
        return Part(whole, Orthogonal(gain * upsamples))
    places = whole.receptive
    row = roles.runs.get(name, 1)
    return Part(whole, Blend(1 / math.sqrt(row), places, int(np.ravel_multi_index(at_centre.tap, shape[2:])), gain))


_SEPARATE = (
    ("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj", "c_proj", "proj")),
    ("query", "key", "value", ("out", "proj", "dense", "out_proj", "attention_output")),
    ("query_proj", "key_proj", "value_proj", ("output_proj", "out_proj")),
    ("to_q", "to_k", "to_v", ("to_out", "to_out.0")),
    ("q_lin", "k_lin", "v_lin", ("out_lin",)),
    ("wq", "wk", "wv", ("wo",)),
    ("q", "k", "v", ("o", "out", "proj")),
)
_FUSED = (
    ("in_proj_weight", ("out_proj.weight",)),
    ("qkv.weight", ("proj.weight", "out_proj.weight", "out.weight")),
    ("c_attn.weight", ("c_proj.weight",)),
    ("query_key_value.weight", ("dense.weight",)),
)
_CROSS = ("cross", "encoder_attn", "encdecattention", "multihead_attn")


def _attention(weights: Mapping[str, Weight], roles: Roles) -> dict[str, list[Part]]:
    """The parts of all weights of self-attention that belong together; Note [attention as a filter]."""
    found: dict[str, list[Part]] = {}
    for name, weight in weights.items():
        if len(weight.shape) != 2 or any(word in name.lower() for word in _CROSS):
            continue
        for leaf, outputs in _FUSED:
            if weight.matrices.m * weight.matrices.count == 3 * weight.matrices.n and _ends(name, leaf):
                size, stem = weight.matrices.n, name.removesuffix(leaf)
                if (three := _thirds(weight, leaf)) is None:
                    continue
                query, key, value = three
                found[name] = [
                    Part(query, Stiefel(), "k starts as 0.7 q", name, 0),
                    Part(replace(key, scale=KEY), Stiefel(), "", name, 0),
                    Part(value, Stiefel(), "", name, 2),
                ]
                _output(found, weights, (stem + leaf for leaf in outputs), size, name, 2)
        for queries, keys, values, outs in _SEPARATE:
            if not _ends(name, leaf := queries + ".weight"):
                continue
            stem, shape = name.removesuffix(leaf), weight.shape
            other, third = weights.get(f"{stem}{keys}.weight"), weights.get(f"{stem}{values}.weight")
            if other is None or third is None or other.shape != shape:
                continue
            if roles.origins.get(name) != roles.origins.get(other.name):  # they read two sequences
                continue
            found[name] = [Part(replace(other.matrices, scale=1.0), Stiefel())]
            found[other.name] = [Part(replace(other.matrices, scale=KEY), Stiefel(), f"starts as 0.7 {name}", name)]
            if third.shape == (shape[1], shape[1]):
                found[third.name] = [Part(replace(third.matrices, scale=1.0), Stiefel())]
                _output(found, weights, (f"{stem}{out}.weight" for out in outs), shape[1], third.name, 0)
    return found


def _ends(name: str, leaf: str) -> bool:
    return name == leaf or name.endswith("." + leaf)


def _thirds(weight: Weight, leaf: str) -> list[Matrices] | None:
    """Where q, k and v are in a weight that holds all three; None if that is not known."""
    size = weight.matrices.n
    if leaf.startswith("query_key_value"):
        if (heads := weight.layer.heads) is None or size % heads:
            return None
        each = size // heads
        return [Matrices(1, size, size, rows=(part * each, (part + 1) * each), period=3 * each) for part in range(3)]
    ranges = [(part * size, (part + 1) * size) for part in range(3)]
    if order := weight.matrices.order:
        return [Matrices(1, size, size, order=order, columns=columns) for columns in ranges]
    return [Matrices(1, size, size, rows=rows) for rows in ranges]


def _output(
    found: dict[str, list[Part]],
    weights: Mapping[str, Weight],
    names: Iterable[str],
    size: int,
    values: str,
    first: int,
) -> None:
    """The output projection, from that of the values."""
    for name in names:
        if (weight := weights.get(name)) is not None and weight.shape == (size, size):
            mirrored = Matrices(1, size, size, order=weight.matrices.order, scale=OUTPUT, mirrored=True)
            found[name] = [Part(mirrored, Stiefel(), f"starts as -1/4 of the transpose of {values}", values, first)]
            return
