"""The ranking: how well each protocol explains the numbers that all of them cover."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..tables.compare import Comparison
from ..tables.protocol import TABULAR_WIDTH
from ..tables.published import Published
from .dead import test_rows
from .hypotheses import Protocol
from .likelihood import OUTLIERS, Noise
from .readings import Readings

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
    if key not in readings.laws:  # which other noise models share
        readings.laws[key] = _laws(readings, protocol, numbers, seeds)
    return Ranked(
        protocol,
        tuple(
            Judged(
                law.number, law.noise.log_likelihood(law.number.value, law.scores, runs=runs, outliers=outliers),
                law.explained, law.agrees,
            )
            for law in readings.laws[key]
        ),
    )  # fmt: skip


class _Law(NamedTuple):
    """The noise around one number's seeds, and what does not depend on how it is used."""

    number: Published
    scores: np.ndarray
    noise: Noise
    explained: bool
    agrees: bool


def _laws(readings: Readings, protocol: Protocol, numbers: Collection[Published], seeds: int) -> list[_Law]:
    found = []
    for dataset in TABULAR_WIDTH:
        samples = {n: readings.scores(protocol, n, seeds) for n in numbers if n.dataset == dataset}
        if not samples:
            continue
        noise = Noise.of(list(samples.values()), resolution(dataset), span(dataset))
        for number, scores in samples.items():
            if len(scores):
                explained, agrees = noise.explains(number.value, scores), Comparison(number, scores).agrees
                found.append(_Law(number, scores, noise, explained, agrees))
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
