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
Note [levels]
    Smooth activations such as GELU and SiLU pass a signal on only if its common level is high enough for them
    (`schemes.level`): the biases of the stem raise it where many follow in a row. The head does not see it.
Note [gains]
    Zero padding takes a part of any level at every border, so that raising it does not help kernels: before many smooth
    activations in a row they have no level. Random patches times g = 1/√E φ(z)² (`schemes.level.gain`) keep the size of
    what differs instead, where a permutation, or √2, would let it fade.
Note [states]
    A recurrent network of ReLUs is a row as long as its sequences, of one layer: its state starts as a small rotation,
    near the identity of Le, Jaitly and Hinton (2015).
Note [gates]
    The units of an LSTM that reads the model's input, fewer numbers than it has units, would each get a small
    part of it from a member of the set, and their gates would stay half open. Like those of a stem without biases they
    get all of its power, in random directions. What an embedding gives them is strong enough, and a GRU does not gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..schemes import Blend, Centred, Lifted, Offsets, Orthogonal, Raised, Rotation, Scheme, Stiefel
from ..schemes.level import gain, level
from .attention import attentions
from .layers import Matrices, Weight, is_patches, kernel_matrices
from .roles import Roles, saturates

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


def reason_of(bias: Scheme) -> str:
    """Why biases are drawn."""
    if not isinstance(bias, Offsets):
        return ""
    reasons = ["set the units apart"] if bias.deviation else []
    return " and ".join([*reasons, *(["raise the common level"] if bias.level else [])])


def parts(weights: Iterable[Weight], roles: Roles) -> dict[str, list[Part]]:
    """What all weights of a model start as, by name."""
    known = {weight.name: weight for weight in weights}
    linked = _attention({name: weight for name, weight in known.items() if weight.linked}, roles)
    ends = [known[name] for name in roles.branches if name in known and name not in linked]
    ends = [weight for weight in ends if weight.layer.kind in ("linear", "convolution")]
    branches = dict.fromkeys((weight.name for weight in ends), sum(weight.matrices.count for weight in ends))
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
    if layer.kind == "gates":  # Note [gates]
        if name not in roles.stems or matrices.m <= matrices.n:
            return Part(matrices, Stiefel())
        return Part(matrices, Orthogonal(math.sqrt(2 * matrices.m / matrices.n)), roles.stems[name])
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
        raised = 0.0 if name in roles.normalized or not weight.biased else level(after, roles.row_behind(name) + 1)
        if m <= n or after is None:
            return Part(matrices, Stiefel(), reason, bias=Raised(level=raised).bias(n) if raised else None)
        if not weight.biased:
            return Part(matrices, Orthogonal(math.sqrt(m / n * _power(after))), reason)
        law = Lifted(raised)
        return Part(replace(matrices, scale=law.scale(m, n)), Stiefel(), reason + ", lifted", bias=law.bias(n))
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
    after = roles.next.get(name)
    row = roles.row_behind(name) if name in roles.stems else roles.runs.get(name, 1)
    fades = name not in roles.normalized and level(after, row + 1) > 0
    factor = gain(after) if after is not None and fades else math.sqrt(_power(after))
    if name in roles.stems:
        return Part(whole, Orthogonal(factor), roles.stems[name])
    if upsamples > 1:
        return Part(whole, Orthogonal(factor * upsamples))
    if fades:  # Note [gains]
        return Part(whole, Orthogonal(factor), f"one of {row} in a row before {after}: keeps the signal's size")
    tap = int(np.ravel_multi_index(at_centre.tap, shape[2:]))
    return Part(whole, Blend(1 / math.sqrt(row), whole.receptive, tap, factor))


def _attention(weights: Mapping[str, Weight], roles: Roles) -> dict[str, list[Part]]:
    """The parts of all weights of self-attention that belong together; Note [attention as a filter]."""
    found: dict[str, list[Part]] = {}
    for attention in attentions(weights, roles):
        query, key, value = attention.query, attention.key, attention.value
        if attention.crossed:
            continue
        size = query.matrices.n
        if query.weight == key.weight:
            found[query.weight] = [
                Part(query.matrices, Stiefel(), "k starts as 0.7 q", query.weight, 0),
                Part(replace(key.matrices, scale=KEY), Stiefel(), "", query.weight, 0),
                Part(value.matrices, Stiefel(), "", query.weight, 2),
            ]
        elif weights[query.weight].shape == weights[key.weight].shape:
            found[query.weight] = [Part(replace(key.matrices, scale=1.0), Stiefel())]
            reason = f"starts as 0.7 {query.weight}"
            found[key.weight] = [Part(replace(key.matrices, scale=KEY), Stiefel(), reason, query.weight)]
            if weights[value.weight].shape != (size, size):
                continue
            found[value.weight] = [Part(replace(value.matrices, scale=1.0), Stiefel())]
        else:
            continue
        name = attention.output
        if name is not None and name.startswith(attention.stem) and weights[name].shape == (size, size):
            mirrored = Matrices(1, size, size, order=weights[name].matrices.order, scale=OUTPUT, mirrored=True)
            reason = f"starts as -1/4 of the transpose of {value.weight}"
            found[name] = [Part(mirrored, Stiefel(), reason, value.weight, value.first)]
    return found
