"""The default recipe: from a layer's role to the distribution of its weights and biases.

Every framework, scikit-learn and the scheme `recipe` of the laboratory ask here, and nobody else decides. Each
principle stands in one place; docs/zoo.md compares networks trained from it with others.

Note [members]
    Where layers follow one another with neither normalization nor sums, members of the set let a level survive. L in a
    chain start near passing it on: linear layers as small rotations (`Rotation.in_a_row`), kernels as a permutation at
    the centre plus 1/√L times random patches, a ReLU recurrence, which is as long as its sequences, near the identity.
    Smooth activations take a share of a low level: biases of the stem raise it (`schemes.level`); kernels, which lose
    any level at the borders, keep the size of what differs instead.
Note [no level]
    A head, a bottleneck that nothing rectifies and the layer that reads it, layers over the token axis, and recurrences
    with gates or tanh, which would add it up step by step, have no use for a common level: rows orthogonal to it, or no
    preferred direction. So have layers at a normalization with statistics for each channel: it takes the level off, and
    alignment gives all channels what they have in common.
Note [sizes]
    A normalization makes a weight's size its learning rate, which the author chose: directions are ours, the size is
    the author's, unless it was chosen for wider layers, as 0.02 is.
Note [branches]
    B residual branches that no normalization holds each add as much as there was, and the signal doubles B times: times
    1/√B, in random directions, they add up to a fixed multiple of it. Where the stream begins with embeddings that the
    branches would drown, being more than `DROWNS` times as large, they begin almost silent: at `JOINS` times that size.
Note [attention as a filter]
    W_K = 0.7 W_Q lets a token look for tokens like itself, and W_O = -W_Vᵀ/4 takes off a part of what they share; both
    as trained attention does (Trockman and Kolter: Mimetic initialization of self-attention layers, 2023), but with
    W_Q and W_V in the set. Of several queries for one key, the first is the one that it is like.
Note [short]
    A short plain network needs no level to pass its signal on, and the optimizer's first steps would move all outputs
    together with it: directions without a preferred one, and weights and biases of the author's sizes. A member of one
    column would also give all its units the same.
Note [gates]
    What multiplies another signal says how much of it passes: its size is the author's, and no direction is preferred.
Note [meant]
    What the author set to zero, or mostly so, made small at a head, or made for sines, stays (`author.meant`). So do
    biases and gains of a few values other than zero and one, and weights that a layer masks or scales before use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..core.activations import SATURATING

# By module: the scheme `recipe` is one of the package, and is made of what is here.
from ..schemes.base import Array, Scheme, Source
from ..schemes.entrywise import Offsets
from ..schemes.level import gain, level
from ..schemes.on_set import Blend, Centred, Rotation, Stiefel
from ..schemes.orthogonal import Orthogonal
from .attention import Attention, attentions
from .author import Default, meant, settled, usual_bias
from .layers import Constant, Matrices, Weight, is_patches, kernel_matrices
from .roles import Role, Roles
from .trace import BATCH, INPUT, Norm

KEY, OUTPUT = 0.7, 0.25  # Note [attention as a filter]
STATE = Rotation(0.15)  # Note [members]
DROWNS, JOINS = 1.5, 0.15  # Note [branches]
LARGE, WIDE, POOR = 2.0, 0.5, 0.35
"""The most and the least output, for inputs of size 1, of a size that was chosen for a layer's width; and the least of
a unit matrix for others."""
COORDINATES, SHORT, SHORT_OF_COORDINATES, CHAIN = 4, 7, 10, 5
"""The most inputs that count as coordinates; the layers from which on a network, one of coordinates, and a chain beside
a normalization need a level."""


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

    The layer has m outputs and n inputs; `biased` says whether it has biases that can be set.
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
    if role.on_tokens:  # Note [no level]
        gain_after = 1.0 if role.activation is None else math.sqrt(_power(role.activation))
        return Orthogonal(gain_after), "mixes tokens, not channels"
    if role.makes_code and m < n:  # Note [no level]
        return Centred(), "makes a code: nothing rectifies it"
    if role.reads_code and m > n:
        return Orthogonal(math.sqrt(_power(role.activation))), "reads a code"
    return Rotation.in_a_row(role.chain) if role.chain > 1 and m == n else Stiefel(), ""


def _power(activation: str | None) -> float:
    """What makes up for the part of a random signal's power that an activation takes."""
    return 1.0 if activation is not None and activation in SATURATING else 2.0


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

    @property
    def matrices(self) -> Matrices:
        """What is drawn into a weight."""
        assert isinstance(self.what, Matrices)
        return self.what


Draws = dict[str, list[Draw]]
"""What is drawn into each weight, by the name of its stream."""


def reason_of(bias: Scheme) -> str:
    """Why biases are drawn."""
    if not isinstance(bias, Offsets):
        return ""
    reasons = ["set the units apart"] if bias.deviation else []
    return " and ".join([*reasons, *(["raise the common level"] if bias.level else [])])


def recipe(weights: Iterable[Weight], roles: Roles, default: Default = "uniform") -> tuple[Draws, dict[str, str]]:
    """What is drawn into all weights of a model; and those that stay as they are, with the reason."""
    given = list(weights)
    left = meant(given, roles)
    known = settled({weight.name: weight for weight in given if weight.name not in left}, default)
    draws = _attention({name: weight for name, weight in known.items() if weight.linked}, roles)
    alone = {name: weight for name, weight in known.items() if name not in draws}
    ends = {
        name for name, weight in alone.items() if roles[name].free and weight.layer.kind in ("linear", "convolution")
    }
    branches = sum(known[name].matrices.count for name in ends)
    short = _short(known, roles)
    for name, weight in alone.items():
        role, scaled = roles[name], name in ends and branches > 1
        if name in short and scaled:  # by PyTorch's size: the author's may be one so scaled before
            weight = weight._replace(size=1 / math.sqrt(3 * weight.matrices.n))
        draw = _in_short(weight, role) if name in short else _gated(weight, role) or _draw(weight, role)
        draw = _scaled(draw, branches) if scaled else draw
        draws[name] = [_joining(_apart(draw), role.stream)]
    return draws, left


def _scaled(draw: Draw, branches: int) -> Draw:
    """The draw at the end of one of several residual branches; Note [branches]."""
    scheme = replace(draw.scheme, spread=1.0) if isinstance(draw.scheme, Blend) else Orthogonal()
    matrices = replace(draw.matrices, scale=draw.matrices.scale / math.sqrt(branches))
    return Draw(matrices, scheme, f"ends one of {branches} residual branches without normalization")


def _joining(draw: Draw, stream: float | None) -> Draw:
    """The draw at the end of a branch that is added to a stream of that size; Note [branches]."""
    if stream is None or DROWNS * stream >= abs(draw.matrices.scale):
        return draw
    reason = f"ends a branch, almost silent beside a signal of size {stream:.2g}"
    return draw._replace(what=replace(draw.matrices, scale=JOINS * stream), reason=reason)


def _gated(weight: Weight, role: Role) -> Draw | None:
    """What is drawn into a layer whose output multiplies another's; None if that is not so; Note [gates]."""
    own = role.held or role.stem or role.head or role.makes_code
    apart = role.gated and not own and weight.layer.kind == "linear"
    if not apart or (size := _size(weight, weight.matrices, "layer")) is None:
        return None
    return Draw(replace(weight.matrices, scale=size), Orthogonal(), "multiplies another signal: its author's size")


def _apart(draw: Draw) -> Draw:
    """The draw, with units that differ: a member of one column has none that do; Note [short]."""
    alike = draw.matrices.n == 1 < draw.matrices.m and draw.bias is None
    return draw._replace(scheme=Orthogonal()) if alike and isinstance(draw.scheme, Stiefel | Rotation) else draw


def _size(weight: Weight, matrices: Matrices, kind: Norm) -> float | None:
    """The author's size of a weight, beside that of a unit matrix; None if it is not known, or poor."""
    size, m, n = weight.size, matrices.m, matrices.n
    if size is None or (kind != BATCH and size * math.sqrt(n) > LARGE):
        return None
    if kind == BATCH or size * math.sqrt(n) >= WIDE:
        return round(size * math.sqrt(max(m, n)), 6)
    small = round(size * math.sqrt(min(m, n)), 6)  # a size such as 0.02, the same for all shapes
    return small if small >= POOR else None


def _draw(weight: Weight, role: Role) -> Draw:
    """What is drawn into a weight on its own."""
    matrices, kind = weight.matrices, weight.layer.kind
    m, n = matrices.m, matrices.n
    if 0 in weight.shape or kind == "members":
        return Draw(matrices, Stiefel())
    if kind == "gates" and role.stem and m > n:  # of few inputs: gates would else stay half open
        return Draw(matrices, Orthogonal(math.sqrt(2 * m / n)), role.stem)
    if kind in ("gates", "recurrent"):  # Note [no level]
        return Draw(matrices, Orthogonal())
    if kind == "state":
        return Draw(matrices, STATE, "the state of a ReLU network: near the identity")
    if kind == "convolution" and not is_patches(weight.layer, weight.shape):
        return _held(_kernel(weight, role), weight, role)
    scheme, reason = linear(m, n, role, biased=weight.biased)
    if isinstance(scheme, Lifted):
        scaled = replace(matrices, scale=scheme.scale(m, n))
        return Draw(scaled, Stiefel(), reason + ", lifted", bias=scheme.bias(n))
    draw = Draw(matrices, Stiefel() if isinstance(scheme, Raised) else scheme, reason, bias=scheme.bias(n))
    return _held(draw, weight, role)


def _held(draw: Draw, weight: Weight, role: Role) -> Draw:
    """The draw of a layer that a normalization holds; Note [sizes], and Note [no level] for its direction."""
    if not role.held or role.head or (role.stem and not role.normalized) or role.chain >= CHAIN:
        return draw
    matrices = draw.matrices
    if matrices.tap:
        matrices = kernel_matrices(weight.layer, weight.shape, "delta", entrywise=True)
    drawn = Orthogonal() if role.held == BATCH or not isinstance(draw.scheme, Stiefel) else draw.scheme
    size = _size(weight, matrices, role.held)
    if size is None:
        return draw._replace(scheme=drawn) if isinstance(draw.scheme, Stiefel) else draw
    reason = draw.reason or "at a normalization: its author's size"
    return Draw(replace(matrices, scale=size), drawn, reason)


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
    if fades:  # Note [members]
        reason = f"one of {role.chain} in a chain before {role.activation}: keeps the signal's size"
        return Draw(whole, Orthogonal(factor), reason)
    tap = int(np.ravel_multi_index(at_centre.tap, weight.shape[2:]))
    return Draw(whole, Blend(1 / math.sqrt(role.chain), whole.receptive, tap, factor))


def _short(weights: Mapping[str, Weight], roles: Roles) -> set[str]:
    """The linear layers of short plain networks; Note [short]."""
    depth: dict[str, int] = {}
    coordinates = set[str]()
    for name, role in roles.items():
        weight, before = weights.get(name), role.origins - {INPUT}
        if not role.origins:
            continue
        if weight is None:
            depth[name] = 0  # an embedding, or what stays as it is
        elif weight.layer.kind == "linear" and not role.held and all(each in depth for each in before):
            depth[name] = 1 + max((depth[each] for each in before), default=0)
            few = INPUT in role.origins and weight.matrices.n <= COORDINATES < weight.matrices.m
            if few or role.reads_encoding or not coordinates.isdisjoint(before):
                coordinates.add(name)
    longest = max(depth.values(), default=0)
    if longest < SHORT:
        return {name for name in depth if depth[name]}
    return coordinates if longest < SHORT_OF_COORDINATES else set()


def _in_short(weight: Weight, role: Role) -> Draw:
    """What is drawn into a layer of a short plain network."""
    matrices = weight.matrices
    m, n = matrices.m, matrices.n
    power = 1.0 if role.activation is None else _power(role.activation)
    size = _size(weight, matrices, "layer")
    few, reason = n <= COORDINATES < m, role.head or role.stem or "in a short plain network: its author's size"
    bias = Offsets(size_of_bias) if weight.biased and (size_of_bias := usual_bias(weight)) else None
    if role.head:
        return Draw(replace(matrices, scale=size or 1.0), Centred(), reason, bias=bias)
    if few and not bias and weight.biased and role.activation is not None:
        lifted = Lifted()
        return Draw(replace(matrices, scale=lifted.scale(m, n)), Orthogonal(), reason + ", lifted", bias=lifted.bias(n))
    scale = size or math.sqrt(power * m / n if few else power)
    return Draw(replace(matrices, scale=scale), Orthogonal(), reason, bias=bias)


def _attention(weights: Mapping[str, Weight], roles: Roles) -> Draws:
    """What is drawn into all weights of self-attention that belong together; Note [attention as a filter]."""
    draws: Draws = {}
    for attention in attentions(weights, roles):
        if attention.crossed:
            for name in attention.weights:
                draw = Draw(_of_size(weights[name].matrices, weights[name], roles), Stiefel())
                draws[name] = [_joining(draw, roles[name].stream)]
            continue
        query, key, value = attention.query, attention.key, attention.value
        size = _of_size(query.matrices, weights[query.weight], roles).scale
        queries, reason = _queries(attention, weights, size), f"starts as 0.7 {query.weight}"
        if query.weight == key.weight:
            queries, reason = [queries[0]._replace(reason="k starts as 0.7 q")], ""
        if not queries:
            continue
        like = Draw(replace(key.matrices, scale=KEY * size), Stiefel(), reason, query.weight)
        taken = Draw(_of_size(value.matrices, weights[value.weight], roles), Stiefel(), first=value.first)
        found: Draws = {}
        for each, drawn in (query, queries), (key, [like]), (value, [taken]):
            found.setdefault(each.weight, []).extend(drawn)
        if attention.output is not None:
            found |= _output(weights, attention, roles[attention.output].stream)
        draws |= found
    return draws


def _of_size(matrices: Matrices, weight: Weight, roles: Roles) -> Matrices:
    """The matrices at the author's size where a normalization holds the weight; else as they are."""
    held = roles[weight.name].held
    return replace(matrices, scale=(_size(weight, matrices, held) if held else None) or 1.0)


def _queries(attention: Attention, weights: Mapping[str, Weight], size: float) -> list[Draw]:
    """What is drawn into the queries, one for each that has the same key; none if these are not known."""
    name, heads = attention.query.weight, attention.heads
    whole, rows = attention.query.matrices, attention.key.matrices.m
    if weights[name].shape == weights[attention.key.weight].shape:
        return [Draw(replace(whole, scale=size), Stiefel(), source=name)]
    if heads is None or whole.m % heads or whole.m % rows or rows % (each := whole.m // heads) or whole.order:
        return []
    shared = whole.m // rows
    places = [(at * each, (at + 1) * each) for at in range(shared)]
    parts = [Matrices(1, rows, whole.n, rows=place, period=shared * each, scale=size) for place in places]
    reasons = [f"{shared} queries for each key", *[""] * (shared - 1)]
    return [Draw(part, Stiefel(), reason, name, at) for at, (part, reason) in enumerate(zip(parts, reasons))]


def _output(weights: Mapping[str, Weight], attention: Attention, stream: float | None) -> Draws:
    """W_O = -W_Vᵀ/4; of unequal sizes, as small and in no preferred direction."""
    assert attention.output is not None
    output, value = weights[attention.output], attention.value
    size, order = value.matrices.n, output.matrices.order
    if output.shape == (size, size) and value.matrices.m == size:
        mirrored = Matrices(1, size, size, order=order, scale=-OUTPUT, mirrored=True)
        reason = f"starts as -1/4 of the transpose of {value.weight}"
        draw = Draw(mirrored, Stiefel(), reason, value.weight, value.first)
        if stream is not None and DROWNS * stream < OUTPUT:
            small = replace(mirrored, scale=-JOINS * stream)
            reason = f"starts as the transpose of {value.weight}, almost silent beside a signal of size {stream:.2g}"
            draw = draw._replace(what=small, reason=reason)
    elif len(output.shape) == 2:
        draw = _joining(Draw(replace(output.matrices, scale=OUTPUT), Orthogonal(), "ends attention"), stream)
    else:
        return {}
    return {output.name: [draw]}
