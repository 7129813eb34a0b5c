"""The roles of a model's layers: stems, heads, and how many layers are in a chain."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.activations import RECTIFIERS, SATURATING
from .trace import ATTENDED, INPUT, Flow, Signal

_HEADS = ("head", "fc", "classifier", "out", "logits", "score", "readout", "predict")


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
        )

    def chain_behind(self, name: str) -> int:
        """Layers of the chain that begins with the readers of a layer, the head not counted; 0 if there is none."""
        return max((self.chains.get(each, 0) for each, read in self.origins.items() if read == {name}), default=0)


def of_flow(
    flow: Flow, stems: Collection[str] | None, heads: Collection[str] | None, how: str, tables: Collection[str] = ()
) -> Roles:
    """The roles of a model whose flow is known.

    Args:
        flow: What feeds what.
        stems: Those that the user has named, if any.
        heads: Likewise.
        how: The way in which the flow was found.
        tables: The weights of embeddings, which have no role.
    """
    consumed = frozenset[str]().union(*(signal.origins for signal in flow.reads.values()))
    if heads is None:
        made = [signal for signal in flow.returned if not signal.merged and signal.activation not in RECTIFIERS]
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
    on_tokens = frozenset(weight for weight, signal in flow.reads.items() if signal.on_tokens and weight not in ends)
    residual = {end: layers for end, layers in _branches(flow).items() if end not in ends}
    free = frozenset(end for end in residual if not _holds_normalization(flow, _behind(flow, end)))
    gains = {end: gain for end, gain in _gains(flow).items() if end not in ends}
    codes = _codes(flow, chain_of) - ends
    decoders = frozenset(weight for weight, signal in flow.reads.items() if signal.origins <= codes) - ends
    return Roles(
        stems_found, heads_found, chains, flow.next, frozenset(flow.normalized), origins, free, residual, gains,
        on_tokens, codes, decoders,
    )  # fmt: skip


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

    They are added to something else as they are, or `normalized` if that counts. Of two layers that are added, such as
    a block's last one and its shortcut's, it is the one with more layers behind it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for signals in flow.sums:
        behind = {
            origin: _behind(flow, origin)
            for signal in signals
            if not (signal.merged or signal.activation) and len(signal.origins) == 1
            if normalized or not signal.normalized
            for origin in signal.origins
            if origin in flow.reads
        }
        lengths = [len(row) for row in behind.values()]
        if behind and (len(behind) < len(signals) or min(lengths) < max(lengths)):
            found |= {
                origin: tuple(reversed(_apart(row, signals)))
                for origin, row in behind.items()
                if len(behind) < len(signals) or len(row) == max(lengths)
            }
    return found


def _apart(row: list[str], signals: list[Signal]) -> list[str]:
    """The layers of a row, from the last one on, until one that feeds the other side of the sum too."""
    end = row[0]
    others = [signal.origins for signal in signals if signal.origins != {end}]
    return list(itertools.takewhile(lambda weight: weight == end or not any(weight in side for side in others), row))


def _holds_normalization(flow: Flow, row: Iterable[str]) -> bool:
    return any(flow.reads[weight].normalized or weight in flow.normalized for weight in row)


def _behind(flow: Flow, weight: str) -> list[str]:
    """A layer and those before it, back to where branches part."""
    row = {weight: None}  # in order, and quick to ask
    while True:
        signal = flow.reads[weight]
        weight = next(iter(signal.origins))
        if len(signal.origins) > 1 or signal.merged or weight not in flow.reads or weight in row:
            return list(row)
        row[weight] = None


def of_order(
    weights: Iterable[str], stems: Collection[str] | None, heads: Collection[str] | None, *, normalized: bool
) -> Roles:
    """The roles of a model whose flow is not known, from the order in which its linear layers and convolutions appear.

    The last one is a head if it is called so. Where the model has normalization layers, each of its layers is a chain
    of its own; where it has none, they are one chain.
    """
    names = list(weights)
    why = "(not traced; give inputs= to trace)"
    if heads is None:
        called = names[-1].removesuffix(".weight").rpartition(".")[2].lower() if names else ""
        is_head = any(word in called for word in _HEADS)
        heads_found = {names[-1]: f"head: the last layer, by its name {why}"} if is_head else {}
    else:
        heads_found = dict.fromkeys(heads, "head: named")
    if stems is None:
        stems_found = {names[0]: f"stem: the first layer {why}"} if len(names) > 1 else {}
    else:
        stems_found = dict.fromkeys(stems, "stem: named")
    hidden = [name for name in names if name not in stems_found and name not in heads_found]
    return Roles(stems_found, heads_found, dict.fromkeys(hidden, 1 if normalized else len(hidden)))


def saturates(activation: str) -> bool:
    """Whether an activation has no rectifier's loss of half the signal."""
    return activation in SATURATING
