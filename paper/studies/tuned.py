"""Contenders at their best rates: networks of their own choose each rate, fresh seeds are compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

TUNING = (1000, 1001)
"""Seeds of the networks that choose the rates; no compared network has one of them."""
FIRST = 2000
"""First seed of the compared networks, unless a study has its own."""
WORKS = 0.9
"""A rate works if its networks reach this share of the best score of any contender at any rate."""
FEW = 5
"""Seeds of a contender without hope: enough to show that it fails, where hundreds of comparisons share the level."""
Contender = TypeVar("Contender", bound=Hashable)


class Setting(NamedTuple):
    """What a network is trained on, and its depth: contenders are compared within one."""

    dataset: str
    depth: int
    shots: int | None = None

    def __str__(self) -> str:
        few = "" if self.shots is None else f", {self.shots} per class"
        return f"{self.dataset}{few}, {self.depth:,} layers"


def setting_of(cell: Cell) -> Setting:
    """The setting of a network."""
    return Setting(cell.dataset, cell.depth, cell.shots)


def quality(record: Record) -> float:
    """The score, turned so that more is better; a network that diverged has the worst."""
    score = record.metric.better(record.score)
    return score if math.isfinite(score) else -math.inf


@dataclass(frozen=True)
class Search(Generic[Contender]):
    """The rates of contenders in settings, and the networks that follow from them."""

    tuning: tuple[Cell, ...]
    """The networks that choose the rates."""
    contender: Callable[[Cell], Contender]
    """Whose network it is."""
    final: Callable[[Contender, Setting, float, int], Cell]
    """The compared network of a contender in a setting, at so many times 0.001/√depth, with a seed."""
    first: int = FIRST
    """First seed of the compared networks."""
    hopeless: float = 0.0
    """A contender whose best rate reaches less than this share of the best of its setting gets `FEW` seeds."""

    @cached_property
    def _rates(self) -> dict[tuple[tuple[Setting, Contender], float], list[Cell]]:
        """The tuning networks of each setting, contender and rate."""
        found: dict[tuple[tuple[Setting, Contender], float], list[Cell]] = {}
        for cell in self.tuning:
            found.setdefault(((setting_of(cell), self.contender(cell)), cell.lr_multiplier), []).append(cell)
        return found

    def by_rate(self, records: Mapping[Cell, Record]) -> dict[tuple[Setting, Contender], dict[float, float]]:
        """Of each setting and contender: rate → mean quality of its tuning networks, where all of them are finished."""
        found: dict[tuple[Setting, Contender], dict[float, float]] = {}
        for (key, times), networks in self._rates.items():
            if all(cell in records for cell in networks):
                mean = sum(quality(records[cell]) for cell in networks) / len(networks)
                found.setdefault(key, {})[times] = mean
        return found

    def best(self, records: Mapping[Cell, Record]) -> dict[tuple[Setting, Contender], float]:
        """The rate that each contender does best with; of equal ones, the smallest. Only where all rates were tried."""
        return self._best(self.by_rate(records))

    def _best(
        self, reached: Mapping[tuple[Setting, Contender], Mapping[float, float]]
    ) -> dict[tuple[Setting, Contender], float]:
        tried = Counter(key for key, _ in self._rates)
        return {
            key: max(rates, key=lambda times: (rates[times], -times))
            for key, rates in reached.items()
            if len(rates) == tried[key]
        }

    def compared(self, seeds: int, records: Mapping[Cell, Record]) -> list[Cell]:
        """Every contender at its best rate, with so many seeds that did not choose it, or a few if it is hopeless."""
        reached = self.by_rate(records)
        best = self._best(reached)
        top: dict[Setting, float] = {}
        for (setting, _), rates in reached.items():
            top[setting] = max(top.get(setting, -math.inf), *rates.values())
        return [
            self.final(contender, setting, times, seed)
            for seed in range(self.first, self.first + seeds)
            for (setting, contender), times in best.items()
            if seed < self.first + FEW or reached[setting, contender][times] >= share_of(top[setting], self.hopeless)
        ]

    def samples(
        self,
        seeds: int,
        records: Mapping[Cell, Record],
        value: Callable[[Record], float | None] = quality,
    ) -> dict[tuple[Setting, Contender], np.ndarray]:
        """A value of the compared networks, for each setting and contender; None is left out."""
        found: dict[tuple[Setting, Contender], list[float]] = {}
        for cell in self.compared(seeds, records):
            if cell in records and (number := value(records[cell])) is not None:
                found.setdefault((setting_of(cell), self.contender(cell)), []).append(number)
        return {key: np.array(values) for key, values in found.items()}


def share_of(best: float, share: float) -> float:
    """The quality that is a share of the best one: of an accuracy so much of it, of an error so much more.

    >>> share_of(90.0, 0.5), share_of(-3.0, 0.5), share_of(-3.0, 0.0)
    (45.0, -6.0, -inf)
    """
    return best * share if best > 0 else best / share if share else -math.inf


def top(tuned: Mapping[tuple[Setting, Contender], Mapping[float, float]], setting: Setting) -> float:
    """What the best contender of a setting reached at its best rate; 0 if there is none."""
    return max((max(rates.values()) for (where, _), rates in tuned.items() if where == setting), default=0.0)


def working(
    tuned: Mapping[tuple[Setting, Contender], Mapping[float, float]], key: tuple[Setting, Contender]
) -> float | None:
    """The highest rate that comes close to the best of its setting, over the lowest; None if none does."""
    least = share_of(top(tuned, key[0]), WORKS)
    works = [times for times, reached in tuned.get(key, {}).items() if reached >= least]
    return max(works) / min(works) if works else None
