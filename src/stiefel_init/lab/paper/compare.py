"""Our records beside the published numbers: mean, interval, difference and verdict for each.

A published number of tables 1, 2 and 5 is one run, so it is held against the 95 % interval in which one more run of
ours would fall; table 3's are means of 50 repeats, so they are held against the difference of two means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ..data import CATALOG
from ..report.tables import Table
from .published import Published

COLLAPSED_WITHIN = 1.0
"""A classifier has collapsed if it does no better than its data set's floor, within this (%)."""
REPEATS = 50
"""Repeats behind a published mean of table 3."""


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
        floor = CATALOG[self.published.dataset].floor
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


def setting(one: Published) -> str:
    """Which cell of its table a number is, but for the scheme."""
    parts = [one.dataset, f"depth {one.depth}"]
    if one.table == "table2":
        parts.append(one.activation)
    if one.shots is not None:
        parts.append(f"{one.shots}-shot")
    if one.alpha is not None:
        parts.append(f"α {one.alpha:g}")
    return ", ".join(parts)


def comparison_table(title: str, comparisons: Sequence[Comparison]) -> Table:
    """Each published number with ours."""
    rows = []
    for one in comparisons:
        p = one.published
        low, high = one.interval
        interval = f"{low:.2f} … {high:.2f}" if math.isfinite(low) and math.isfinite(high) else "—"
        theirs = f"{p.value:.2f}" + (f" ± {p.std:.2f}" if p.std is not None else "")
        rows.append(
            [
                setting(p), str(p.scheme), theirs, f"{one.mean:.2f}", interval, str(len(one.scores)),
                f"{one.difference:+.2f}", one.verdict,
            ]
        )  # fmt: skip
    header = ["cell", "scheme", "published", "ours", "95 % interval", "seeds", "difference", "verdict"]
    return Table(title, header, rows)
