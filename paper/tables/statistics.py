"""Tests behind the verdicts.

A difference of two samples counts as shown if Welch's one-sided test has p < 0.05/(number of comparisons in the claim),
so that chance does not decide a claim made of many comparisons.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ..experiment import Verdict


def greater_p(a: np.ndarray, b: np.ndarray) -> float:
    """p of Welch's one-sided test that the mean of `a` is above that of `b`."""
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return 0.0 if a[0] > b[0] else 1.0
    with warnings.catch_warnings():  # a sample may be constant, if all networks end at chance
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue)


@dataclass(frozen=True)
class Duels:
    """`stiefel` against its best rival in each row: (name of the row, rival, stiefel's scores, the rival's)."""

    rows: list[tuple[str, str, np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, settings: Sequence[tuple[str, Mapping[str, np.ndarray]]]) -> Duels:
        """From the scores of each scheme in each row; rows without two seeds of each are left out."""
        rows = []
        for name, scores in settings:
            if any(len(values) < 2 for values in scores.values()):
                continue
            rival = max((s for s in scores if s != "stiefel"), key=lambda s: scores[s].mean())
            rows.append((name, rival, scores["stiefel"], scores[rival]))
        return cls(rows)

    def verdict(self) -> tuple[Verdict, str]:
        """Whether stiefel is the best in every row, and the evidence."""
        if not self.rows:
            return "not tested", "No records."
        level = 0.05 / len(self.rows)
        best = [row for row in self.rows if row[2].mean() > row[3].mean()]
        clear = [row for row in best if greater_p(row[2], row[3]) < level]
        lost = [row for row in self.rows if row[2].mean() <= row[3].mean()]
        text = (
            f"stiefel has the highest mean in {len(best)} of {len(self.rows)} rows, significantly (p < {level:.4f}) in "
        )
        text += f"{len(clear)}."
        if lost:
            parts = (f"{name}: {rival} {b.mean():.2f}, stiefel {a.mean():.2f}" for name, rival, a, b in lost)
            text += f" Not best: {'; '.join(parts)}."
        return ("holds" if len(best) == len(self.rows) else "holds in part" if best else "does not hold"), text
