"""How well each protocol explains the published numbers: its readings of our records, their noise, and the ranking.

The noise model: a published number is one run (or the mean of k runs), drawn from the distribution of our seeds: it
is estimated by kernels around the seeds' scores, for each cell of the table by itself, since networks that collapse for
some seeds only have two modes. A kernel is a mixture of Gaussians whose widths double from the resolution of a score
up; the shares of the widths are those under which each seed is most likely given the others, over all cells of one
data set under one protocol. So the noise comes from our seeds alone, never from the published numbers. With
probability OUTLIERS a number is anything at all (a slip, or a mode that our few seeds missed): no single number can
decide. Numbers count as independent given the protocol; where all share one split, they are not quite.

Published records keep only the last score of a network; the table READINGS keeps the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..tables.compare import Comparison
from ..tables.protocol import TABULAR_WIDTH
from ..tables.published import Published
from .dead import test_rows
from .hypotheses import EXPLAINING, STATED, Protocol, numbers, trainings

READINGS = "table5-protocol-readings"
_KEY = ("dataset", "scheme", "depth", "alpha", "batch", "rate", "epochs", "seed")
Reading = dict[tuple[int, bool], float]
"""(epochs, whether the best of them) → score."""


def reading(record: Record) -> Reading:
    """A record at half its epochs and at all, the last and the best tested so far."""
    epochs = record.cell.epochs
    found: Reading = {(epochs, False): record.score}
    curve = dict(zip(record.tested, record.test_score))
    pick = min if record.metric.less_is_better else max
    for upto in (epochs // 2, epochs):
        known = [score for epoch, score in curve.items() if epoch <= upto and np.isfinite(score)]
        if upto in curve and known:
            found.setdefault((upto, False), curve[upto])
            found[upto, True] = pick(known)
    return found


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The table READINGS: what of these records their last score does not say."""
    table = []
    for record in records:
        found, epochs = reading(record), record.cell.epochs
        if (epochs, True) in found:
            identity = record.cell.identity()
            values = found[epochs // 2, False], found[epochs // 2, True], found[epochs, True]
            names = ("half", "half_best", "best")
            key = {name: identity[name] for name in _KEY}
            table.append(key | {name: round(value, 4) for name, value in zip(names, values)})
    return table


def merged(before: Sequence[Mapping[str, Any]], fresh: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Two such tables as one, in which each network is once: as in the second, if that has it."""
    return list({_key(row): row for row in (*before, *fresh)}.values())


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str("" if row[name] is None else row[name]) for name in _KEY)


class Readings:
    """Scores of our seeds, for each protocol and published number."""

    def __init__(self, records: Mapping[Cell, Record], kept: Sequence[Mapping[str, Any]] = ()) -> None:
        table = {_key(row): row for row in kept}
        self._found: dict[Cell, dict[int, Reading]] = {}
        self._scores: dict[tuple[Protocol, Published], np.ndarray] = {}
        self.distributions: dict[Any, Any] = {}
        """What rankings of these readings have computed, for the next one."""
        wanted = {protocol.cell(number) for protocol in trainings() for number in numbers()}
        for record in records.values():
            cell = record.cell
            if cell.setting not in wanted:
                continue
            found = reading(record)
            if (row := table.get(_key(cell.identity()))) is not None:
                half = cell.epochs // 2
                found |= {(half, False): row["half"], (half, True): row["half_best"], (cell.epochs, True): row["best"]}
            self._found.setdefault(cell.setting, {})[cell.seed] = found

    def scores(self, protocol: Protocol, number: Published, seeds: int | None = None) -> np.ndarray:
        """The scores of our seeds, the first `seeds` of them."""
        place = protocol, number
        if place not in self._scores:
            found, key = self._found.get(protocol.cell(number), {}), (protocol.epochs, protocol.best)
            self._scores[place] = np.array([found[seed][key] for seed in sorted(found) if key in found[seed]], float)
        return self._scores[place][:seeds]

    def covered(self, protocol: Protocol, least: int = 2) -> frozenset[Published]:
        """The numbers that it concerns and for which there are so many seeds."""
        concerned = (number for number in numbers() if protocol.concerns(number.dataset))
        return frozenset(number for number in concerned if len(self.scores(protocol, number)) >= least)

    def protocols(self) -> list[Protocol]:
        """The hypotheses for which there is anything: each training in all its readings."""
        read: list[Protocol] = []
        for protocol in dict.fromkeys([STATED, EXPLAINING, *trainings()]):
            longer = protocol.epochs != STATED.epochs  # at half its epochs it is another training
            read += [r for r in protocol.readings() if not longer or r.epochs == protocol.epochs]
        return [protocol for protocol in read if self.covered(protocol)]


OUTLIERS = 0.1
"""The share of numbers that may be anything."""
_ROUNDS = 60
_DRAWS = 200


@dataclass(frozen=True)
class Noise:
    """The distribution of one more run, around the scores of our seeds."""

    widths: np.ndarray
    shares: np.ndarray
    span: float
    """Length of the range of possible scores."""

    @classmethod
    def of(cls, samples: Sequence[np.ndarray], resolution: float, span: float) -> Noise:
        """The noise of our seeds: by expectation maximization on each seed given the others of its cell.

        Args:
            samples: The scores of each cell; cells with one score say nothing.
            resolution: The least difference of two scores that means anything.
            span: Length of the range of possible scores.

        Returns:
            The noise.

        >>> noise = Noise.of([np.array([90.0, 90.0, 90.0]), np.array([10.0, 10.0, 10.0])], 1.0, 100.0)
        >>> int(noise.shares.argmax())
        0
        """
        widths = resolution * 2.0 ** np.arange(1 + int(math.log2(span / 4 / resolution)))
        known = [scores[np.isfinite(scores)] for scores in samples]
        parts = [part for scores in known if len(scores) > 1 for part in _held_out(scores, widths)]
        shares = np.full(len(widths), 1 / len(widths))
        density = np.array(parts).reshape(-1, len(widths))
        for _ in range(_ROUNDS):
            mixed = (1 - OUTLIERS) * density * shares
            belongs = mixed / (mixed.sum(axis=1, keepdims=True) + OUTLIERS / span)
            shares = (belongs.sum(axis=0) + 1 / len(widths)) / (belongs.sum() + 1)  # one seed's worth of doubt
        return cls(widths, shares, span)

    def density(self, number: float, scores: np.ndarray, runs: int = 1) -> float:
        """The density of one run at `number`, or of the mean of `runs` that are drawn from our seeds."""
        widths = self.widths
        if runs > 1:
            draws = np.random.default_rng(0).integers(len(scores), size=(_DRAWS, runs))  # the same for every protocol
            scores, widths = scores[draws].mean(axis=1), widths / math.sqrt(runs)
        known = scores[np.isfinite(scores)]  # a network that diverged supports no number
        return float((_gaussians(number - known, widths).sum(axis=0) / len(scores)) @ self.shares)

    def log_likelihood(self, number: float, scores: np.ndarray, *, runs: int = 1, outliers: float = OUTLIERS) -> float:
        """log p(number) = log((1 - ε)·density + ε/span)."""
        return math.log((1 - outliers) * self.density(number, scores, runs) + outliers / self.span)

    def explains(self, number: float, scores: np.ndarray) -> bool:
        """Whether the number is rather a run like ours than anything at all."""
        return (1 - OUTLIERS) * self.density(number, scores) > OUTLIERS / self.span


def _held_out(scores: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """(seeds, widths): the density at each score, of kernels around the others."""
    kernels = _gaussians(scores[:, None] - scores[None, :], widths)
    kernels[np.arange(len(scores)), np.arange(len(scores))] = 0.0
    return np.asarray(kernels.sum(axis=1) / (len(scores) - 1))


def _gaussians(distance: np.ndarray, widths: np.ndarray) -> np.ndarray:
    z = distance[..., None] / widths
    return np.asarray(np.exp(-0.5 * z * z) / (widths * math.sqrt(2 * math.pi)))


ROUNDING = 0.02
"""Published numbers have two decimals; a kernel is no narrower than this."""
ERROR_SPAN = 200.0
"""Errors on Diabetes lie between 0 and this."""


def resolution(dataset: str) -> float:
    """What one row of the test part changes; for the errors of a regression, what rounding does."""
    return ROUNDING if dataset == "diabetes" else max(ROUNDING, 100 / test_rows(dataset))


def span(dataset: str) -> float:
    """Length of the range of scores."""
    return ERROR_SPAN if dataset == "diabetes" else 100.0


class Judged(NamedTuple):
    """One published number under one protocol."""

    number: Published
    log_likelihood: float
    explained: bool
    agrees: bool


@dataclass(frozen=True)
class Ranked:
    """One protocol with its numbers."""

    protocol: Protocol
    judged: tuple[Judged, ...]

    def of(self, dataset: str | None = None) -> list[Judged]:
        """Its numbers, or those of one data set."""
        return [one for one in self.judged if dataset in (None, one.number.dataset)]

    def total(self, dataset: str | None = None) -> float:
        """The log-likelihood."""
        return sum(one.log_likelihood for one in self.of(dataset))

    def lead(self, other: Ranked) -> tuple[float, float]:
        """How much likelier the numbers are than under another protocol, and its standard error over numbers."""
        theirs = {one.number: one.log_likelihood for one in other.judged}
        parts = np.array([one.log_likelihood - theirs[one.number] for one in self.judged])
        return float(parts.sum()), float(parts.std() * math.sqrt(len(parts)))

    def explained(self, dataset: str | None = None) -> int:
        """Numbers that are rather a run like ours than anything at all."""
        return sum(one.explained for one in self.of(dataset))

    def agree(self, dataset: str | None = None) -> int:
        """Numbers within the 95 % interval for one more run."""
        return sum(one.agrees for one in self.of(dataset))


def judge(
    readings: Readings,
    protocol: Protocol,
    numbers: Collection[Published],
    seeds: int,
    *,
    runs: int = 1,
    outliers: float = OUTLIERS,
) -> Ranked:
    """The likelihood of numbers under one protocol, from the first `seeds` of our seeds."""
    key = protocol, tuple(numbers), seeds
    if key not in readings.distributions:  # which other noise models share
        readings.distributions[key] = _distributions(readings, protocol, numbers, seeds)
    return Ranked(
        protocol,
        tuple(
            Judged(
                each.number, each.noise.log_likelihood(each.number.value, each.scores, runs=runs, outliers=outliers),
                each.explained, each.agrees,
            )
            for each in readings.distributions[key]
        ),
    )  # fmt: skip


class _Distribution(NamedTuple):
    """The noise around one number's seeds, and what does not depend on how it is used."""

    number: Published
    scores: np.ndarray
    noise: Noise
    explained: bool
    agrees: bool


def _distributions(
    readings: Readings, protocol: Protocol, numbers: Collection[Published], seeds: int
) -> list[_Distribution]:
    found = []
    for dataset in TABULAR_WIDTH:
        samples = {n: readings.scores(protocol, n, seeds) for n in numbers if n.dataset == dataset}
        if not samples:
            continue
        noise = Noise.of(list(samples.values()), resolution(dataset), span(dataset))
        for number, scores in samples.items():
            if len(scores):
                explained, agrees = noise.explains(number.value, scores), Comparison(number, scores).agrees
                found.append(_Distribution(number, scores, noise, explained, agrees))
    return found


def ranking(
    readings: Readings,
    protocols: Sequence[Protocol],
    numbers: Collection[Published],
    *,
    runs: int = 1,
    outliers: float = OUTLIERS,
) -> list[Ranked]:
    """Protocols that cover all of these numbers, the likeliest first; each is given equally many seeds."""
    wanted = frozenset(numbers)
    able = [protocol for protocol in protocols if readings.covered(protocol) >= wanted]
    if not able or not wanted:
        return []
    seeds = min(len(readings.scores(protocol, number)) for protocol in able for number in wanted)
    ranked = [judge(readings, protocol, numbers, seeds, runs=runs, outliers=outliers) for protocol in able]
    return sorted(ranked, key=lambda one: -one.total())


def common(readings: Readings, protocols: Sequence[Protocol], datasets: Collection[str]) -> list[Published]:
    """The numbers of these data sets that all of these protocols cover, in the table's order."""
    shared = frozenset.intersection(*(readings.covered(protocol) for protocol in protocols)) if protocols else ()
    return sorted((n for n in shared if n.dataset in datasets), key=_order)


def _order(number: Published) -> tuple[int, int, float, str]:
    return list(TABULAR_WIDTH).index(number.dataset), number.depth, number.alpha or 0.0, str(number.scheme)
