"""The roles of a model's layers: stems, heads, and how many layers are in a chain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.activations import RECTIFIERS, SATURATING
from .trace import ATTENDED, BATCH, INPUT, Flow, Norm, Signal

_PERIODIC = ("sin", "cos")
_FEW = 4
"""Layers whose signals meet at a layer inside a branch: those of q, k and v, or of two that are multiplied."""
_LONG = 64
"""Layers of a branch."""


class Role(NamedTuple):
    """What one layer is to its network: all that the recipe asks."""

    stem: str = ""
    """How it is known that it reads the model's input; empty if it does not."""
    head: str = ""
    """How it is known that it makes the model's output."""
    chain: int = 1
    """Hidden layers in its chain, with nothing but activations in between; of a stem, in the chain that reads it."""
    activation: str | None = None
    """What follows; None where that is nothing, or not known."""
    normalized: bool = False
    """Whether a normalization comes before that."""
    on_tokens: bool = False
    """Whether it mixes the token axis, and not channels."""
    makes_code: bool = False
    reads_code: bool = False
    held: Norm = ""
    """The normalization that it reads, or that is behind it, or that what it reads has been through, in its branch."""


@dataclass(frozen=True)
class Roles:
    """What is known of each weight, by its name."""

    stems: dict[str, str] = field(default_factory=dict)
    """The layers that read the model's input, and how that is known."""
    heads: dict[str, str] = field(default_factory=dict)
    """The layers that make its output."""
    chains: dict[str, int] = field(default_factory=dict)
    """Of a hidden layer: the number of hidden layers in its chain, with nothing but activations in between."""
    next: dict[str, str] = field(default_factory=dict)
    """The activation between a layer and the next; absent where there is none, or nothing is known."""
    normalized: frozenset[str] = frozenset()
    """The layers with a normalization before that."""
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    """The layers whose signal a layer reads, where that is known."""
    branches: frozenset[str] = frozenset()
    """The last layers of residual branches without a normalization."""
    residual: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The last layer of every residual branch, and the layers of that branch, normalized or not."""
    gains: dict[str, str] = field(default_factory=dict)
    """The last layers of residual branches that a parameter scales, and that parameter."""
    on_tokens: frozenset[str] = frozenset()
    """The linear layers that mix the token axis, and not channels."""
    codes: frozenset[str] = frozenset()
    """The layers whose output is a code: read, or returned and read, as it is, with no rectifier or normalization."""
    decoders: frozenset[str] = frozenset()
    """The layers that read codes."""
    held: dict[str, Norm] = field(default_factory=dict)
    """The layers that a normalization holds, and its kind."""
    streams: dict[str, float] = field(default_factory=dict)
    """The last layers of residual branches, and the size of what each is added to, where it comes from embeddings."""
    sines: frozenset[str] = frozenset()
    """The layers before or behind a sine that is no encoding of the input."""
    encodings: frozenset[str] = frozenset()
    """The layers that read sines of the input."""
    altered: frozenset[str] = frozenset()
    """The weights that something is done to before a layer uses them."""

    def of(self, name: str) -> Role:
        """The role of one layer."""
        stem = self.stems.get(name, "")
        return Role(
            stem,
            self.heads.get(name, ""),
            self.chain_behind(name) if stem else self.chains.get(name, 1),
            self.next.get(name),
            name in self.normalized,
            name in self.on_tokens,
            name in self.codes,
            name in self.decoders,
            self.held.get(name, ""),
        )

    def chain_behind(self, name: str) -> int:
        """Layers of the chain that begins with the readers of a layer, the head not counted; 0 if there is none."""
        return max((self.chains.get(each, 0) for each, read in self.origins.items() if read == {name}), default=0)


def of_flow(
    flow: Flow,
    stems: Collection[str] | None,
    heads: Collection[str] | None,
    how: str,
    tables: Mapping[str, float | None] | None = None,
) -> Roles:
    """The roles of a model whose flow is known.

    Args:
        flow: What feeds what.
        stems: Those that the user has named, if any.
        heads: Likewise.
        how: The way in which the flow was found.
        tables: The weights of embeddings, which have no role, and the size of their entries.
    """
    tables = tables or {}
    consumed = frozenset[str]().union(*(signal.origins for signal in flow.reads.values()))
    if heads is None:
        parts = [part for signal in flow.returned for part in signal.parts or (signal,)]
        made = [signal for signal in parts if not signal.merged and signal.activation not in RECTIFIERS]
        heads_found = {
            origin: f"head: makes the output ({how})"
            for signal in made
            for origin in sorted(signal.origins)
            if origin in flow.reads and origin not in consumed and origin not in tables
        }
    else:
        heads_found = dict.fromkeys(heads, "head: named")
    if stems is None:
        stems_found = {
            weight: f"stem: reads the input ({how})"
            for weight, signal in flow.reads.items()
            if signal.origins == {INPUT} and weight not in heads_found and weight not in tables
        }
    else:
        stems_found = dict.fromkeys(stems, "stem: named")
    ends = {*stems_found, *heads_found, *tables}
    chain_of: dict[str, list[str]] = {}
    for weight, signal in flow.reads.items():
        if weight in ends:
            continue
        apart = signal.normalized or signal.merged or signal.activation == ATTENDED
        plain = len(signal.origins) == 1 and not apart
        chain = chain_of.get(next(iter(signal.origins)), []) if plain else []
        chain.append(weight)
        chain_of[weight] = chain
    chains = {weight: len(chain) for weight, chain in chain_of.items()}
    origins = {weight: signal.origins for weight, signal in flow.reads.items()}
    residual = {end: layers for end, layers in _branches(flow).items() if end not in ends}
    free = frozenset(end for end, row in residual.items() if not _holds_normalization(flow, row))
    gains = {end: gain for end, gain in _gains(flow).items() if end not in ends}
    codes = _codes(flow, chain_of) - ends
    decoders = frozenset(weight for weight, signal in flow.reads.items() if signal.origins <= codes) - ends
    streams = _streams(flow, residual, tables)
    sines = frozenset(weight for weight, signal in flow.reads.items() if _periodic(flow, weight, signal))
    encodings = frozenset(
        weight for weight, signal in flow.reads.items() if signal.activation in _PERIODIC and INPUT in signal.origins
    )
    return Roles(
        stems_found, heads_found, chains, flow.next, frozenset(flow.normalized), origins, free, residual, gains,
        _on_tokens(flow) - ends, codes, decoders, _held(flow), streams, sines, encodings, frozenset(flow.altered),
    )  # fmt: skip


def _periodic(flow: Flow, weight: str, signal: Signal) -> bool:
    """Whether a layer is before or behind a sine of another layer's outputs."""
    behind = signal.activation in _PERIODIC and INPUT not in signal.origins
    return behind or flow.next.get(weight) in _PERIODIC


def _on_tokens(flow: Flow) -> frozenset[str]:
    """The layers over the token axis; where the axis of channels never comes back it was no such axis."""
    back = set(flow.turned)
    for weight, signal in reversed(flow.reads.items()):
        if weight in back and signal.on_tokens:
            back |= signal.origins
    return frozenset(weight for weight in back if weight in flow.reads and flow.reads[weight].on_tokens)


def _held(flow: Flow) -> dict[str, Norm]:
    """The layers that a normalization holds: behind them, before them, or before what they read in their branch."""
    held: dict[str, Norm] = {}
    for weight, signal in flow.reads.items():
        behind = signal.origins if len(signal.origins) <= _FEW else ()
        kinds = {flow.normalized.get(weight, ""), signal.normalized, *(held.get(each, "") for each in behind)} - {""}
        if kinds:
            held[weight] = BATCH if BATCH in kinds else "layer"
    return held


def _streams(flow: Flow, ends: Iterable[str], tables: Mapping[str, float | None]) -> dict[str, float]:
    """The size of what the ends of branches are added to, where that is known."""
    found: dict[str, float] = {}
    for signals in flow.sums:
        for signal in signals:
            size = next((other.size for other in signals if other is not signal and other.size), ())
            known = [times * (tables.get(name, 1.0) or 0.0) for name, times in size]
            if any(known) and len(signal.origins) <= _FEW:
                found.update(dict.fromkeys(signal.origins, math.hypot(*known)))
    return {end: found[end] for end in ends if end in found}


def _codes(flow: Flow, chain_of: dict[str, list[str]]) -> frozenset[str]:
    """The layers whose output is a code.

    Either only the next layer reads it, as it is; or the model returns it, as it is, and what else is made of it has no
    rectifier, as with the mean and the variance of a variational autoencoder. Two codes in a chain are factors of a
    product, not codes.
    """
    # As unions of sets: a residual stream comes from all layers before it, which is long to go through one by one.
    bare: set[str] = set()
    changed: set[str] = set()
    rectified: set[str] = set()
    for signal in flow.reads.values():
        (bare if _as_it_is(signal) else changed).update(signal.origins)
        if signal.normalized or signal.activation in RECTIFIERS:
            rectified |= signal.origins
    as_it_is = bare - changed
    given = frozenset[str]().union(*(signal.origins for signal in flow.returned if _as_it_is(signal)))
    returned = (given & (bare | changed)) - rectified
    in_chain = Counter(id(chain_of[weight]) for weight in as_it_is & chain_of.keys())
    alone = {weight for weight in as_it_is & chain_of.keys() if in_chain[id(chain_of[weight])] == 1}
    return frozenset(alone | (returned & flow.reads.keys()))


def _as_it_is(signal: Signal) -> bool:
    """Whether a signal is what one layer made, and nothing was done to it."""
    return len(signal.origins) == 1 and not (signal.normalized or signal.merged or signal.activation)


def _gains(flow: Flow) -> dict[str, str]:
    """The last layers of residual branches that a parameter scales, and that parameter."""
    ends = _branches(flow, normalized=True)
    return {
        origin: signal.gain
        for signals in flow.sums
        for signal in signals
        if signal.gain and len(signal.origins) == 1 and (origin := next(iter(signal.origins))) in ends
    }


def _branches(flow: Flow, *, normalized: bool = False) -> dict[str, tuple[str, ...]]:
    """The last layers of residual branches, and all layers of each, the first one first.

    A branch reads what it is added to; or what the shortcut reads that it is added to, if it has more layers than that.
    Its last layer comes into the sum as it is, or `normalized` if that counts.
    """
    found: dict[str, tuple[str, ...]] = {}
    for signals in flow.sums:
        for signal in signals:
            if signal.activation or (signal.normalized and not normalized) or len(signal.origins) > _FEW:
                continue
            others = [other for other in signals if other is not signal]
            stream = frozenset[str]().union(*(other.origins for other in others))
            shortcuts = [each for other in others if len(other.origins) == 1 for each in other.origins]
            before = frozenset[str]().union(*(flow.reads[each].origins for each in shortcuts if each in flow.reads))
            for end in sorted(signal.origins - stream & flow.reads.keys()):
                if (row := _behind(flow, end, stream)) or len(row := _behind(flow, end, before - {INPUT})) > 1:
                    found[end] = tuple(reversed(row))
    return found


def _holds_normalization(flow: Flow, row: Iterable[str]) -> bool:
    return any(flow.reads[weight].normalized or weight in flow.normalized for weight in row)


def _behind(flow: Flow, end: str, stream: frozenset[str]) -> list[str]:
    """A layer and those before it, back to where they read of a stream; none if they do not."""
    row = {end: None}  # in order, and quick to ask
    reached = False
    for weight in (todo := [end]):
        origins = flow.reads[weight].origins
        if not stream.isdisjoint(origins):
            reached = True
        elif len(origins) <= _FEW and len(row) < _LONG:
            new = [each for each in sorted(origins) if each in flow.reads and each not in row]
            row.update(dict.fromkeys(new))
            todo += new
    return list(row) if reached else []


def of_order(
    weights: Iterable[str],
    stems: Collection[str] | None,
    heads: Collection[str] | None,
    held: Mapping[str, Norm],
    *,
    embedded: bool = False,
) -> Roles:
    """The roles of a model whose flow is not known, from the order in which its linear layers and convolutions appear.

    The last one is taken for the head, for a head that is not would read the common level alone; the first one is a
    stem unless what it reads is `embedded`. Where normalization layers hold the weights, each layer is a chain of its
    own; where there are none, they are one chain.
    """
    names = list(weights)
    why = "(not traced; give inputs= to trace)"
    if heads is None:
        heads_found = {names[-1]: f"head: the last layer {why}"} if len(names) > 1 else {}
    else:
        heads_found = dict.fromkeys(heads, "head: named")
    if stems is None:
        stems_found = {names[0]: f"stem: the first layer {why}"} if len(names) > 1 and not embedded else {}
    else:
        stems_found = dict.fromkeys(stems, "stem: named")
    hidden = [name for name in names if name not in stems_found and name not in heads_found]
    held_by = {name: kind for name, kind in held.items() if name not in stems_found and name not in heads_found}
    return Roles(stems_found, heads_found, dict.fromkeys(hidden, 1 if held else len(hidden)), held=held_by)


def saturates(activation: str) -> bool:
    """Whether an activation has no rectifier's loss of half the signal."""
    return activation in SATURATING
