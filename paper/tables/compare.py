"""Our records beside the published numbers: mean, interval, difference and verdict for each, and why they disagree.

A published number in tables 1, 2 and 5 is a single run, so it is compared with the 95 % prediction interval for one
more run of ours; those in table 3 are means of 50 repeats, so two means are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

from stiefel_init.lab.data import CATALOG
from stiefel_init.lab.report.tables import Table

from .published import Published

COLLAPSED_WITHIN = 1.0
"""A classifier has collapsed if it does no better than its data set's floor, within this (%)."""
REPEATS = 50
"""Repeats behind a published mean of table 3."""
CHANCE, SEEN, UNSEEN, NONE = "chance", "collapse", "unseen collapse", "unexplained"
REASONS = {
    CHANCE: "by itself no further out than the furthest of so many runs of ours would be (p ≥ 0.05 / judged numbers)",
    SEEN: "one of the two collapsed and the other did not, and our seeds do both",
    UNSEEN: "the same, but none of our seeds is on their side",
    NONE: "none of these",
}
"""Why a published number disagrees with ours; the first that holds is given."""


@cache
def _quantile(freedom: int) -> float:
    return float(stats.t.isf(0.025, freedom))


@dataclass(frozen=True)
class Comparison:
    """One published number and the scores of our seeds."""

    published: Published
    scores: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval that the verdict rests on: for one more run, or for the mean where theirs is one."""
        if not self.judged:
            return -math.inf, math.inf
        factor = (self.published.std is None) + 1 / len(self.scores)
        half = _quantile(len(self.scores) - 1) * self.std * math.sqrt(factor)
        highest = 100.0 if CATALOG[self.published.dataset].task == "classification" else math.inf
        return max(self.mean - half, 0.0), min(self.mean + half, highest)  # no score lies beyond

    @property
    def difference(self) -> float:
        return self.mean - self.published.value

    @property
    def standard_errors(self) -> float:
        """|difference| in combined standard errors; for table 3."""
        theirs = (self.published.std or 0.0) ** 2 / REPEATS
        error = math.sqrt(self.std**2 / len(self.scores) + theirs)
        return abs(self.difference) / error if error else (0.0 if not self.difference else math.inf)

    @property
    def collapsed(self) -> int:
        floor = CATALOG[self.published.dataset].floor
        return 0 if floor is None else int((self.scores <= floor + COLLAPSED_WITHIN).sum())

    @property
    def judged(self) -> bool:
        """Whether there are enough seeds to judge: two or more."""
        return len(self.scores) > 1

    @property
    def agrees(self) -> bool:
        """Whether the published number is consistent with our seeds."""
        if not self.judged:
            return False
        if self.published.std is not None:
            return self.standard_errors <= 3 or abs(self.difference) < 0.01
        low, high = self.interval
        return low - 0.005 <= self.published.value <= high + 0.005

    @property
    def one_run(self) -> float:
        """p of one more run of ours, or one more mean, being as far from ours as the published number (two-sided)."""
        n, distance = len(self.scores), abs(self.difference)
        if self.published.std is not None:
            return float(2 * stats.norm.sf(self.standard_errors))
        if self.std == 0:
            return 1.0 if distance < 0.005 else 0.0
        return float(2 * stats.t.sf(distance / (self.std * math.sqrt(1 + 1 / n)), n - 1))

    def reason(self, judged: int) -> str:
        """Why it disagrees, as one of so many judged numbers; empty if it does not."""
        if self.agrees or not self.judged:
            return ""
        highest = (CATALOG[self.published.dataset].floor or 0.0) + COLLAPSED_WITHIN
        same = (self.scores <= highest) == (self.published.value <= highest)
        if not same.all():
            return SEEN if same.any() else UNSEEN
        return CHANCE if self.one_run >= 0.05 / judged else NONE

    def verdict(self, judged: int) -> str:
        """As one of so many judged numbers."""
        n = len(self.scores)
        if not self.judged:
            return f"one seed only ({self.difference:+.2f})"
        if self.agrees:
            text = "agrees" if self.published.std is None else f"agrees ({self.standard_errors:.1f} SE)"
        else:
            text = f"differs by {self.difference:+.2f} ({self.reason(judged)})"
        if self.collapsed == n:
            return f"{text}; every seed collapses"
        return f"{text}; {self.collapsed} of {n} seeds collapse" if self.collapsed else text


def setting(number: Published) -> str:
    """Which cell of its table a number is, without the scheme."""
    more = {
        number.activation: number.table == "table2", f"{number.shots}-shot": number.shots is not None,
        f"α {number.alpha}".removesuffix(".0"): number.alpha is not None,
    }  # fmt: skip
    return ", ".join([number.dataset, f"depth {number.depth}", *(text for text, told in more.items() if told)])


def comparison_table(title: str, comparisons: Sequence[Comparison]) -> Table:
    """Each published number beside ours."""
    rows, judged = [], sum(comparison.judged for comparison in comparisons)
    for comparison in comparisons:
        p = comparison.published
        low, high = comparison.interval
        interval = f"{low:.2f} … {high:.2f}" if math.isfinite(low) and math.isfinite(high) else "—"
        theirs = f"{p.value:.2f}" + (f" ± {p.std:.2f}" if p.std is not None else "")
        ours = [f"{comparison.mean:.2f}", interval, str(len(comparison.scores)), f"{comparison.difference:+.2f}"]
        rows.append([setting(p), str(p.scheme), theirs, *ours, comparison.verdict(judged)])
    single = all(comparison.published.std is None for comparison in comparisons)
    which = "95 % of one run" if single else "95 % of the mean"
    header = ["cell", "scheme", "published", "ours", which, "seeds", "difference", "verdict"]
    return Table(title, header, rows)
