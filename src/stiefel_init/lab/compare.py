"""Our records beside the published numbers: mean, interval, difference and verdict for each cell, and the claims.

A published number of tables 1, 2 and 5 is one run, so it is held against the 95 % interval in which one more run of
ours would fall; table 3's are means of 50 repeats, so they are held against the difference of two means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .paper import Published, published
from .records import Record

COLLAPSED_WITHIN = 1.0
"""A classifier has collapsed if it does no better than the larger of chance and the biggest class, within this (%)."""
ERRORS = ("diabetes",)
"""Data sets whose score is an error: less is better."""
REPEATS = 50
"""Repeats behind a published mean of table 3."""
FLOOR = {
    "mnist": 11.35, "fashion-mnist": 10.0, "adult": 76.07, "cancer": 63.16, "pima": 64.94, "ionosphere": 64.79,
    "wine": 38.89,
}  # fmt: skip
"""Test accuracy (%) of always answering the class that a collapsed network settles on."""


def score(record: Record) -> float:
    """The score of a record; a network that diverged has the worst there is."""
    worst = math.inf if record["dataset"] in ERRORS else 0.0
    return worst if record["score"] is None else float(record["score"])


@dataclass(frozen=True)
class Comparison:
    """One published number and what our seeds say of it."""

    published: Published
    scores: np.ndarray

    @property
    def mean(self) -> float:
        """Our mean."""
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Our standard deviation over seeds."""
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of our mean (Student)."""
        return self._around(1 / len(self.scores))

    @property
    def single(self) -> tuple[float, float]:
        """The 95 % interval in which one more run of ours would fall."""
        return self._around(1 + 1 / len(self.scores))

    def _around(self, factor: float) -> tuple[float, float]:
        if len(self.scores) < 2:
            return -math.inf, math.inf
        half = float(stats.t.isf(0.025, len(self.scores) - 1)) * self.std * math.sqrt(factor)
        return self.mean - half, self.mean + half

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return self.mean - self.published.value

    @property
    def standard_errors(self) -> float:
        """|difference| in combined standard errors; for table 3."""
        theirs = (self.published.std or 0.0) ** 2 / REPEATS
        error = math.sqrt(self.std**2 / len(self.scores) + theirs)
        return abs(self.difference) / error if error else (0.0 if not self.difference else math.inf)

    @property
    def collapsed(self) -> int:
        """How many of our seeds ended at the floor."""
        floor = FLOOR.get(self.published.dataset)
        return 0 if floor is None else int((self.scores <= floor + COLLAPSED_WITHIN).sum())

    @property
    def judged(self) -> bool:
        """Whether there are seeds enough to say anything: two or more."""
        return len(self.scores) > 1

    @property
    def agrees(self) -> bool:
        """Whether the published number is one that our seeds would give."""
        if not self.judged:
            return False
        if self.published.std is not None:
            return self.standard_errors <= 3 or abs(self.difference) < 0.01
        low, high = self.single
        return low - 0.005 <= self.published.value <= high + 0.005

    @property
    def verdict(self) -> str:
        """In words."""
        n = len(self.scores)
        if not self.judged:
            return f"one seed only ({self.difference:+.2f})"
        if self.agrees:
            text = "agrees" if self.published.std is None else f"agrees ({self.standard_errors:.1f} SE)"
        else:
            text = f"differs by {self.difference:+.2f}"
        if 0 < self.collapsed < n:
            text += f"; {self.collapsed} of {n} seeds collapse"
        elif n and self.collapsed == n:
            text += "; every seed collapses"
        return text


def match(one: Published, records: Iterable[Record]) -> list[Record]:
    """The records that answer a published number: those of its experiment, protocol and settings."""
    names = {"table2": ("table2", "table1")}.get(one.table, (one.table,))
    return [
        r
        for r in records
        if r["experiment"] in names
        and (r["dataset"], r["scheme"], r["depth"], r["activation"])
        == (one.dataset, one.scheme, one.depth, one.activation)
        and (r["shots"], r["alpha"]) == (one.shots, one.alpha)
        and r["variant"] == ("direct" if one.table == "table2" and one.scheme == "lee" else None)
    ]


def compare(table: str, records: Sequence[Record]) -> list[Comparison]:
    """Every published number of a table that our records answer."""
    found = []
    relevant = [r for r in records if r["experiment"] in (table, "table1")]
    for one in published(table):
        scores = [score(r) for r in match(one, relevant)]
        if scores:
            found.append(Comparison(one, np.array(scores)))
    return found
