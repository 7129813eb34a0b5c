"""The default recipe: from a layer's role to the distribution of its weights and biases.

Every framework, scikit-learn and the scheme `recipe` of the laboratory ask here, and nobody else decides. Inside,
layers are members of the set; at the ends and in convolutions the set is wrong, and something close to it is used.
docs/architectures.md compares networks trained from it with those from other initializations.

Note [near the identity]
    L layers in a chain, with nothing but activations between them, start close to passing their signal on: linear
    layers as small rotations (`Rotation.in_a_row`), kernels as a permutation at the centre plus 1/√L times random
    patches, so that the whole chain looks about as far around a pixel as one layer of random patches does. After a
    normalization or a sum of branches a layer is on its own, L = 1, and is drawn uniformly.
Note [attention as a filter]
    W_K = 0.7 W_Q lets a token look for tokens like itself, and W_O = -W_Vᵀ/4 takes off a part of what they share; both
    as trained attention does (Trockman and Kolter: Mimetic initialization of self-attention layers, 2023), but with
    W_Q and W_V in the set.
Note [branches without normalization]
    B residual branches each add as much as there was, and the signal doubles B times. Scaled by 1/√B at their ends they
    add up to a fixed multiple of it, whatever B; if they end in random directions, that is, since members of the set
    would all add to the common level.
Note [token axis]
    What a layer over the token axis, as in a mixer, should do with the common level of the tokens is for the task to
    say; the set would pass it on to every unit. Such layers are orthogonal, with no direction preferred.
Note [codes]
    What a bottleneck makes is read as it is, with no rectifier: members of the set would give all its units the common
    level of the layer below. It is orthogonal to that level, like a head, and the layer that reads it has no common
    level to pass on: it is orthogonal, with no direction preferred.
Note [levels]
    Smooth activations such as GELU and SiLU pass a signal on only if its common level is high enough for them
    (`schemes.level`): the biases of the stem raise it where many follow in a chain. The head does not see it.
Note [gains]
    Zero padding takes a part of any level at every border, so that raising it does not help kernels: before many smooth
    activations in a chain they have no level. Random patches times g = 1/√E φ(z)² (`schemes.level.gain`) keep the size
    of what differs instead, where a permutation, or √2, would let it fade.
Note [states]
    A recurrent network of ReLUs is a chain as long as its sequences, of one layer: its state starts as a small
    rotation, near the identity of Le, Jaitly and Hinton (2015).
Note [gates]
    The units of an LSTM that reads the model's input, fewer numbers than it has units, would each get a small
    part of it from a member of the set, and their gates would stay half open. Like those of a stem without biases they
    get all of its power, in random directions. What an embedding gives them is strong enough, and a GRU does not gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

# By module: the scheme `recipe` is one of the package, and is made of what is here.
from ..schemes.base import Array, Scheme, Source
from ..schemes.entrywise import Offsets
from ..schemes.level import gain, level
from ..schemes.on_set import Blend, Centred, Rotation, Stiefel
from ..schemes.orthogonal import Orthogonal
from .attention import attentions
from .layers import Constant, Matrices, Weight, is_patches, kernel_matrices
from .roles import Role, Roles, saturates

KEY, OUTPUT = 0.7, -0.25  # Note [attention as a filter]
STATE = Rotation(0.15)  # Note [states]


@dataclass(frozen=True)
class Lifted(Scheme):
    """√(m/2n) times a member of Õ(m,n), m > n, and biases as wide as the signal behind it, for inputs of deviation 1.

    For a single input, whose units differ in nothing else, the biases are twice as wide: units bend at -b/w, and have
    to cover the range of the input.

    >>> str(Lifted().bias(fan_in=1))
    'offsets 1.4142135623730951'
    """

    name = "lifted"
    level: float = 0.0
    """Of the biases."""

    def scale(self, m: int, n: int) -> float:
        """Of the member."""
        return math.sqrt(m / (2 * n))

    def draw(self, source: Source) -> Array:
        return self.scale(source.m, source.n) * Stiefel().draw(source)

    def bias(self, fan_in: int) -> Scheme:
        return Offsets(math.sqrt(2 if fan_in == 1 else 0.5), self.level)


@dataclass(frozen=True)
class Raised(Stiefel):
    """A member of Õ(m,n), and biases that raise all units by `level`."""

    name = "raised"
    level: float = 0.0

    def bias(self, fan_in: int) -> Scheme:
        return Offsets(0.0, self.level)


def linear(m: int, n: int, role: Role, *, biased: bool = True) -> tuple[Scheme, str]:
    """The distribution of a linear layer's weight and biases, and why, if it is not what hidden layers get.

    Args:
        m: Outputs.
        n: Inputs.
        role: What the layer is to its network.
        biased: Whether it has biases that can be set.
    """
    if role.head:
        return Centred(), role.head
    if role.stem:
        if m > n and role.normalized:  # which would take biases off
            return Orthogonal(math.sqrt(2)), role.stem
        raised = 0.0 if role.normalized or not biased else level(role.activation, role.chain + 1)
        if m <= n or role.activation is None:
            return Raised(raised) if raised else Stiefel(), role.stem
        if not biased:
            return Orthogonal(math.sqrt(m / n * _power(role.activation))), role.stem
        return Lifted(raised), role.stem
    if role.on_tokens:  # Note [token axis]
        gain_after = 1.0 if role.activation is None else math.sqrt(_power(role.activation))
        return Orthogonal(gain_after), "mixes tokens, not channels"
    if role.makes_code and m < n:  # Note [codes]
        return Centred(), "makes a code: nothing rectifies it"
    if role.reads_code and m > n:
        return Orthogonal(math.sqrt(_power(role.activation))), "reads a code"
    return Rotation.in_a_row(role.chain) if role.chain > 1 and m == n else Stiefel(), ""


def _power(activation: str | None) -> float:
    """What makes up for the part of a random signal's power that an activation takes."""
    return 1.0 if activation is not None and saturates(activation) else 2.0


class Draw(NamedTuple):
    """What is drawn into a parameter, or into some of its rows."""

    what: Matrices | Constant
    scheme: Scheme
    reason: str = ""
    source: str = ""
    """The stream of the weight whose matrices these are, if not its own."""
    first: int = 0
    """The number of its first matrix."""
    bias: Scheme | None = None
    """How the layer's biases are drawn; None for zeros."""


Draws = dict[str, list[Draw]]
"""What is drawn into each weight, by the name of its stream."""


def reason_of(bias: Scheme) -> str:
    """Why biases are drawn."""
    if not isinstance(bias, Offsets):
        return ""
    reasons = ["set the units apart"] if bias.deviation else []
    return " and ".join([*reasons, *(["raise the common level"] if bias.level else [])])


def recipe(weights: Iterable[Weight], roles: Roles) -> Draws:
    """What is drawn into all weights of a model."""
    known = {weight.name: weight for weight in weights}
    linked = _attention({name: weight for name, weight in known.items() if weight.linked}, roles)
    ends = [known[name] for name in roles.branches if name in known and name not in linked]
    ends = [weight for weight in ends if weight.layer.kind in ("linear", "convolution")]
    branches = dict.fromkeys((weight.name for weight in ends), sum(weight.matrices.count for weight in ends))
    return {
        name: linked.get(name) or [_scaled(_draw(weight, roles), weight.matrices, branches.get(name, 1))]
        for name, weight in known.items()
    }


def _scaled(draw: Draw, held: Matrices, branches: int) -> Draw:
    """The draw at the end of one of several residual branches; Note [branches without normalization]."""
    if branches == 1:
        return draw
    filled = draw.what if isinstance(draw.what, Matrices) else held
    scheme = replace(draw.scheme, spread=1.0) if isinstance(draw.scheme, Blend) else Orthogonal()
    matrices = replace(filled, scale=filled.scale / math.sqrt(branches))
    return Draw(matrices, scheme, f"ends one of {branches} residual branches without normalization")


def _draw(weight: Weight, roles: Roles) -> Draw:
    """What is drawn into a weight on its own."""
    matrices, kind, role = weight.matrices, weight.layer.kind, roles.of(weight.name)
    m, n = matrices.m, matrices.n
    if 0 in weight.shape or kind == "members":
        return Draw(matrices, Stiefel())
    if kind == "gates":  # Note [gates]
        if not role.stem or m <= n:
            return Draw(matrices, Stiefel())
        return Draw(matrices, Orthogonal(math.sqrt(2 * m / n)), role.stem)
    if kind == "state":
        return Draw(matrices, STATE, "the state of a ReLU network: near the identity")
    if kind == "convolution" and not is_patches(weight.layer, weight.shape):
        return _kernel(weight, role)
    scheme, reason = linear(m, n, role, biased=weight.biased)
    if isinstance(scheme, Lifted):
        scaled = replace(matrices, scale=scheme.scale(m, n))
        return Draw(scaled, Stiefel(), reason + ", lifted", bias=scheme.bias(n))
    return Draw(matrices, Stiefel() if isinstance(scheme, Raised) else scheme, reason, bias=scheme.bias(n))


def _kernel(weight: Weight, role: Role) -> Draw:
    """A convolution's kernel, whose matrix is at the centre where every layer is in the set."""
    at_centre, layer = weight.matrices, weight.layer
    whole = kernel_matrices(layer, weight.shape, "delta", entrywise=True)
    upsamples = math.sqrt(math.prod(layer.stride)) if layer.transposed else 1.0  # each output has that fewer inputs
    if role.head:
        if upsamples > 1:
            return Draw(whole, Orthogonal(upsamples), role.head)
        return Draw(at_centre, Centred(), role.head)
    fades = not role.normalized and level(role.activation, role.chain + 1) > 0
    factor = gain(role.activation) if role.activation is not None and fades else math.sqrt(_power(role.activation))
    if role.stem:
        return Draw(whole, Orthogonal(factor), role.stem)
    if upsamples > 1:
        return Draw(whole, Orthogonal(factor * upsamples))
    if fades:  # Note [gains]
        reason = f"one of {role.chain} in a chain before {role.activation}: keeps the signal's size"
        return Draw(whole, Orthogonal(factor), reason)
    tap = int(np.ravel_multi_index(at_centre.tap, weight.shape[2:]))
    return Draw(whole, Blend(1 / math.sqrt(role.chain), whole.receptive, tap, factor))


def _attention(weights: Mapping[str, Weight], roles: Roles) -> Draws:
    """What is drawn into all weights of self-attention that belong together; Note [attention as a filter]."""
    draws: Draws = {}
    for attention in attentions(weights, roles):
        query, key, value = attention.query, attention.key, attention.value
        if attention.crossed:
            continue
        size = query.matrices.n
        if query.weight == key.weight:
            draws[query.weight] = [
                Draw(query.matrices, Stiefel(), "k starts as 0.7 q", query.weight, 0),
                Draw(replace(key.matrices, scale=KEY), Stiefel(), "", query.weight, 0),
                Draw(value.matrices, Stiefel(), "", query.weight, 2),
            ]
        elif weights[query.weight].shape == weights[key.weight].shape:
            draws[query.weight] = [Draw(replace(key.matrices, scale=1.0), Stiefel())]
            reason = f"starts as 0.7 {query.weight}"
            draws[key.weight] = [Draw(replace(key.matrices, scale=KEY), Stiefel(), reason, query.weight)]
            if weights[value.weight].shape != (size, size):
                continue
            draws[value.weight] = [Draw(replace(value.matrices, scale=1.0), Stiefel())]
        else:
            continue
        name = attention.output
        if name is not None and name.startswith(attention.stem) and weights[name].shape == (size, size):
            mirrored = Matrices(1, size, size, order=weights[name].matrices.order, scale=OUTPUT, mirrored=True)
            reason = f"starts as -1/4 of the transpose of {value.weight}"
            draws[name] = [Draw(mirrored, Stiefel(), reason, value.weight, value.first)]
    return draws
