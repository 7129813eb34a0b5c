"""The roles of a model's layers: stems, heads, and how many layers are in a chain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from ..core.activations import RECTIFIERS
from .trace import ATTENDED, BATCH, FEW, INPUT, Flow, Norm, Signal

_PERIODIC = ("sin", "cos")
_LONG = 64
"""Layers of a branch."""
_NOTHING = Signal(frozenset())
_UNTRACED = "(not traced; give inputs= to trace)"


class Role(NamedTuple):
    """What one layer is to its network: all that the recipe asks."""

    stem: str = ""
    """How it is known that it reads the model's input; empty if it does not."""
    head: str = ""
    """How it is known that it makes the model's output."""
    chain: int = 1
    """Hidden layers in its chain, with nothing but activations in between; of an end, in the chain that reads it."""
    activation: str | None = None
    """What follows; None where that is nothing, or not known."""
    normalized: bool = False
    """Whether a normalization comes before that."""
    on_tokens: bool = False
    """Whether it mixes the token axis, and not channels."""
    makes_code: bool = False
    """Whether its output is read, or returned and read, as it is, with no rectifier or normalization."""
    reads_code: bool = False
    held: Norm = ""
    """The normalization that it reads, or that is behind it, or that what it reads has been through, in its branch."""
    origins: frozenset[str] = frozenset()
    """The layers whose signal it reads, where that is known."""
    branch: int = 0
    """Layers of the residual branch that it is in; 0 if it is in none."""
    ends_branch: bool = False
    free: bool = False
    """Whether it ends a branch without a normalization."""
    stream: float | None = None
    """The size of what the branch that it ends is added to, where that comes from embeddings."""
    at_sine: bool = False
    """Whether it is before or behind a sine that is no encoding of the input."""
    reads_encoding: bool = False
    """Whether it reads sines of the input."""
    gated: bool = False
    """Whether its output multiplies that of another layer."""
    altered: bool = False
    """Whether something is done to its weight before it is used."""


class Roles(dict[str, Role]):
    """The role of each layer, by the name of its weight; those of which nothing is known have none of their own."""

    followed: tuple[str, ...] = ()
    """Those with an activation behind them, in the order in which these are applied."""

    def __missing__(self, name: str) -> Role:
        return Role()

    @cached_property
    def traced(self) -> bool:
        """Whether it is known what feeds what."""
        return any(role.origins for role in self.values())

    @cached_property
    def branches(self) -> int:
        """The number of residual branches."""
        return sum(role.ends_branch for role in self.values())


def of_flow(
    flow: Flow,
    stems: Collection[str] | None,
    heads: Collection[str] | None,
    how: str,
    tables: Mapping[str, float | None] | None = None,
) -> Roles:
    """The roles of a model whose flow is known, and `how`; the user may have named the ends.

    `tables` are the weights of embeddings, which have no role, and the size of their entries.
    """
    tables = tables or {}
    reads, following = flow.reads, flow.next
    found_heads = _ends("head", heads, _making(flow, tables), f"makes the output ({how})")
    ends = {*found_heads, *tables}
    first = [name for name, signal in reads.items() if signal.origins == {INPUT} and name not in ends]
    found_stems = _ends("stem", stems, first, f"reads the input ({how})")
    ends |= found_stems.keys()
    chain_of: dict[str, list[str]] = {}
    for name, signal in reads.items():
        if name in ends:
            continue
        apart = signal.normalized or signal.merged or signal.activation == ATTENDED
        plain = len(signal.origins) == 1 and not apart
        chain = chain_of.get(next(iter(signal.origins)), []) if plain else []
        chain.append(name)
        chain_of[name] = chain
    behind: dict[str, int] = {}
    for name, chain in chain_of.items():
        if len(reads[name].origins) == 1:
            before = next(iter(reads[name].origins))
            behind[before] = max(behind.get(before, 0), len(chain))
    residual = {end: row for end, row in _branches(flow).items() if end not in ends}
    branch = {name: len(row) for row in residual.values() for name in row}
    held, on_tokens = _held(flow), _on_tokens(flow)
    codes = _codes(flow, chain_of) - ends
    streams = _streams(flow, tables)

    def role(name: str) -> Role:
        signal, inside, ends_branch = reads.get(name, _NOTHING), name not in ends, name in residual
        periodic, of_input = signal.activation in _PERIODIC, INPUT in signal.origins
        return Role(
            stem=found_stems.get(name, ""),
            head=found_heads.get(name, ""),
            chain=len(chain_of[name]) if name in chain_of else behind.get(name, 0),
            activation=following.get(name),
            normalized=name in flow.normalized,
            on_tokens=inside and name in on_tokens,
            makes_code=name in codes,
            reads_code=inside and name in reads and signal.origins <= codes,
            held=held.get(name, ""),
            origins=signal.origins,
            branch=branch.get(name, 0),
            ends_branch=ends_branch,
            free=ends_branch and not _holds_normalization(flow, residual[name]),
            stream=streams.get(name) if ends_branch else None,
            at_sine=(periodic and not of_input) or following.get(name) in _PERIODIC,
            reads_encoding=periodic and of_input,
            gated=name in flow.gated,
            altered=name in flow.altered,
        )

    known = [*reads, *following, *found_stems, *found_heads, *flow.altered]
    roles = Roles({name: role(name) for name in dict.fromkeys(known)})
    roles.followed = tuple(following)
    return roles


def _ends(kind: str, named: Collection[str] | None, found: Iterable[str], how: str) -> dict[str, str]:
    """The layers at an end of a model, and how that is known: those that the user has named, else those found."""
    return dict.fromkeys(found, f"{kind}: {how}") if named is None else dict.fromkeys(named, f"{kind}: named")


def _making(flow: Flow, tables: Mapping[str, float | None]) -> Iterator[str]:
    """The layers that make what the model returns, and that nothing else reads."""
    consumed = frozenset[str]().union(*(signal.origins for signal in flow.reads.values()))
    parts = [part for signal in flow.returned for part in signal.parts or (signal,)]
    for signal in parts:
        if not signal.merged and signal.activation not in RECTIFIERS:
            yield from sorted((signal.origins & flow.reads.keys()) - consumed - tables.keys())


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
        behind = signal.origins if len(signal.origins) <= FEW else ()
        kinds = {flow.normalized.get(weight, ""), signal.normalized, *(held.get(each, "") for each in behind)} - {""}
        if kinds:
            held[weight] = BATCH if BATCH in kinds else "layer"
    return held


def _streams(flow: Flow, tables: Mapping[str, float | None]) -> dict[str, float]:
    """The size of what layers are added to, where that is known."""
    found: dict[str, float] = {}
    for signals in flow.sums:
        for signal in signals:
            size = next((other.size for other in signals if other is not signal and other.size), ())
            known = [times * (tables.get(name, 1.0) or 0.0) for name, times in size]
            if any(known) and len(signal.origins) <= FEW:
                found.update(dict.fromkeys(signal.origins, math.hypot(*known)))
    return found


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


def _branches(flow: Flow) -> dict[str, tuple[str, ...]]:
    """The last layers of residual branches, and all layers of each, the first one first.

    A branch reads what it is added to; or what the shortcut reads that it is added to, if it has more layers than that.
    Its last layer comes into the sum as it is.
    """
    found: dict[str, tuple[str, ...]] = {}
    for signals in flow.sums:
        for signal in signals:
            if signal.activation or signal.normalized or len(signal.origins) > FEW:
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
        elif len(origins) <= FEW and len(row) < _LONG:
            new = [each for each in sorted(origins) if each in flow.reads and each not in row]
            row.update(dict.fromkeys(new))
            todo += new
    return list(row) if reached else []


def of_order(
    weights: Iterable[str],
    stems: Collection[str] | None,
    heads: Collection[str] | None,
    *,
    held: Norm = "",
    embedded: bool = False,
    tied: bool = False,
) -> Roles:
    """The roles of a model whose flow is not known, from the order in which its linear layers and convolutions appear.

    The last one is taken for the head, for a head that is not would read the common level alone, unless the head is
    `tied` to an embedding; the first one is a stem unless what it reads is `embedded`. Where the model has
    normalizations, whose kind is `held`, each layer is a chain of its own; where it has none, they are one chain.
    """
    names = list(weights)
    first, last = ([] if embedded else names[:1], [] if tied else names[-1:]) if len(names) > 1 else ([], [])
    found_heads = _ends("head", heads, last, f"the last layer {_UNTRACED}")
    found_stems = _ends("stem", stems, first, f"the first layer {_UNTRACED}")
    hidden = [name for name in names if name not in found_stems and name not in found_heads]
    inside = Role(chain=1 if held else len(hidden), held=held)
    ends = {*found_stems, *found_heads}
    return Roles(
        dict.fromkeys(hidden, inside)
        | {name: Role(found_stems.get(name, ""), found_heads.get(name, "")) for name in ends}
    )
