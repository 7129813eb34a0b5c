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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import nn

from ...schemes import Blend, Centred, Offsets, Orthogonal, Rotation, Scheme, Stiefel
from ._layers import Matrices, Shape, is_patches, kernel_matrices
from ._roles import Roles, saturates

KEY, OUTPUT = 0.7, -0.25  # Note [attention as a filter]


class Part(NamedTuple):
    """Matrices to be drawn into a weight, or into some of its rows."""

    matrices: Matrices
    scheme: Scheme
    reason: str = ""
    source: str = ""
    """The weight whose matrices these are, if not its own."""
    first: int = 0
    """The number of its first matrix."""
    bias: Offsets | None = None
    """What sets the units apart, in the layer's bias."""


def parts(module: nn.Module, name: str, shape: Shape, matrices: Matrices, roles: Roles, *, biased: bool) -> list[Part]:
    """What the weight `name` starts as.

    Args:
        module: Its layer.
        name: Its name.
        shape: Its shape.
        matrices: What it holds under the paper's recipe.
        roles: Those of the whole model.
        biased: Whether the layer has a bias that can be set.
    """
    if 0 in shape:
        return [Part(matrices, Stiefel())]
    if isinstance(module, nn.modules.conv._ConvNd) and not is_patches(module, shape):
        return [_kernel(module, name, shape, matrices, roles)]
    if isinstance(module, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention | nn.Bilinear):
        return [Part(matrices, Stiefel())]
    m, n = matrices.m, matrices.n
    if name in roles.heads:
        return [Part(matrices, Centred(), roles.heads[name])]
    if name in roles.stems:
        reason, after = roles.stems[name], roles.next.get(name)
        if m > n and name in roles.normalized:  # which would take biases off
            return [Part(matrices, Orthogonal(math.sqrt(2)), reason)]
        if m <= n or after is None:
            return [Part(matrices, Stiefel(), reason)]
        if not biased:
            return [Part(matrices, Orthogonal(math.sqrt(m / n * _power(after))), reason)]
        # The biases are as wide as the signal behind the weights, for inputs of deviation 1; twice as wide for a single
        # input, whose units differ in nothing else: they bend at -b/w and have to cover its range.
        bias = Offsets(math.sqrt(2 if n == 1 else 0.5))
        return [Part(replace(matrices, scale=math.sqrt(m / (2 * n))), Stiefel(), reason + ", lifted", bias=bias)]
    row = roles.runs.get(name, 1)
    return [Part(matrices, Rotation.in_a_row(row) if row > 1 and m == n else Stiefel())]


def _power(activation: str | None) -> float:
    """What makes up for the part of a random signal's power that an activation takes."""
    return 1.0 if activation is not None and saturates(activation) else 2.0


def _kernel(module: nn.modules.conv._ConvNd, name: str, shape: Shape, at_centre: Matrices, roles: Roles) -> Part:
    """A convolution's kernel; `at_centre` is the paper's, a matrix at the centre."""
    whole = kernel_matrices(module, shape, "delta", entrywise=True)
    upsamples = math.sqrt(math.prod(module.stride)) if module.transposed else 1.0  # each output has that fewer inputs
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
    ("query", "key", "value", ("out", "proj", "dense", "out_proj")),
    ("to_q", "to_k", "to_v", ("to_out", "to_out.0")),
    ("q_lin", "k_lin", "v_lin", ("out_lin",)),
    ("wq", "wk", "wv", ("wo",)),
    ("q", "k", "v", ("o", "out", "proj")),
)
_FUSED = (("in_proj_weight", ("out_proj.weight",)), ("qkv.weight", ("proj.weight", "out_proj.weight", "out.weight")))
_CROSS = ("cross", "encoder_attn", "encdecattention", "multihead_attn")


def attention(shapes: Mapping[str, Shape], draws: Callable[[str], Matrices | None]) -> dict[str, list[Part]]:
    """The parts of all weights of self-attention that belong together; Note [attention as a filter].

    Args:
        shapes: Of all weights to be drawn, by name.
        draws: What a weight holds under the paper's recipe, None for one that is not to be drawn so.
    """
    found: dict[str, list[Part]] = {}
    for name, shape in shapes.items():
        if any(word in name.lower() for word in _CROSS):
            continue
        for leaf, outputs in _FUSED:
            if len(shape) == 2 and shape[0] == 3 * shape[1] and (name == leaf or name.endswith("." + leaf)):
                size, stem = shape[1], name.removesuffix(leaf)
                plain = Matrices(1, size, size, rows=(0, size))
                found[name] = [
                    Part(plain, Stiefel(), "k starts as 0.7 q", name, 0),
                    Part(Matrices(1, size, size, rows=(size, 2 * size), scale=KEY), Stiefel(), "", name, 0),
                    Part(Matrices(1, size, size, rows=(2 * size, 3 * size)), Stiefel(), "", name, 2),
                ]
                _output(found, shapes, draws, (stem + leaf for leaf in outputs), size, name, 2)
        for query, key, value, outs in _SEPARATE:
            leaf = query + ".weight"
            if len(shape) != 2 or not (name == leaf or name.endswith("." + leaf)):
                continue
            stem = name.removesuffix(leaf)
            other, values = f"{stem}{key}.weight", f"{stem}{value}.weight"
            held = draws(other)
            if shapes.get(other) != shape or held is None or values not in shapes:
                continue
            found[name] = [Part(replace(held, scale=1.0), Stiefel())]
            found[other] = [Part(replace(held, scale=KEY), Stiefel(), f"starts as 0.7 {name}", name)]
            if shapes[values] == (shape[1], shape[1]):
                found[values] = [Part(Matrices(1, shape[1], shape[1]), Stiefel())]
                _output(found, shapes, draws, (f"{stem}{out}.weight" for out in outs), shape[1], values, 0)
    return found


def _output(
    found: dict[str, list[Part]],
    shapes: Mapping[str, Shape],
    draws: Callable[[str], Matrices | None],
    names: Iterable[str],
    size: int,
    values: str,
    first: int,
) -> None:
    """The output projection, from that of the values."""
    for name in names:
        if shapes.get(name) == (size, size) and (held := draws(name)) is not None and not held.order:
            mirrored = Matrices(1, size, size, scale=OUTPUT, mirrored=True)
            found[name] = [Part(mirrored, Stiefel(), f"starts as -1/4 of the transpose of {values}", values, first)]
            return
