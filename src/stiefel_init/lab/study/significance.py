"""The one test of significance: Welch's, with intervals, corrected for how many comparisons share the level."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from ..train.problem import Metric

LEVEL = 0.95


class Compared(NamedTuple):
    """One scheme in a setting."""

    mean: float
    std: float | None  # None for a single network, or if one diverged; so the interval
    low: float | None  # ends of Student's interval of the mean, cut off where the scale ends, beyond which no mean lies
    high: float | None
    p: float | None
    """That the best is no better, by Welch's test, corrected for all others by Holm; None for the best itself."""
    best: bool


def compared(samples: Sequence[np.ndarray], metric: Metric) -> list[Compared]:
    """Each sample of scores, compared with the one that has the best mean.

    >>> from stiefel_init.lab.train.problem import ACCURACY
    >>> good, bad = compared([np.array([90.0, 91.0, 92.0]), np.array([50.0, 51.0, 52.0])], ACCURACY)
    >>> good.best, bad.best, bad.p < 1e-4, f"{good.low:.1f} to {good.high:.1f}"
    (True, False, True, '88.5 to 93.5')
    """
    means = [float(sample.mean()) for sample in samples]
    top = (min if metric.less_is_better else max)(range(len(means)), key=means.__getitem__)
    others = [index for index in range(len(samples)) if index != top]
    raw = {index: welch(samples[index], samples[top]) for index in others}
    known = {index: p for index, p in raw.items() if p is not None}
    corrected = dict(zip(known, holm(list(known.values()))))
    rows = []
    for index, sample in enumerate(samples):
        std = low = high = None
        if len(sample) > 1 and np.isfinite(sample).all():
            std = float(sample.std(ddof=1))
            half = std / math.sqrt(len(sample)) * float(stats.t.ppf((1 + LEVEL) / 2, len(sample) - 1))
            low, high = max(means[index] - half, 0.0), min(means[index] + half, metric.highest)
        rows.append(Compared(means[index], std, low, high, corrected.get(index), index == top))
    return rows


def welch(a: np.ndarray, b: np.ndarray, alternative: Literal["two-sided", "greater"] = "two-sided") -> float | None:
    """p of Welch's test that the means differ, or that the first is greater; None without two finite scores each."""
    if min(len(a), len(b)) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return float(a[0] == b[0] if alternative == "two-sided" else a[0] <= b[0])
    with warnings.catch_warnings():  # a sample may be constant, if all networks end at chance
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(stats.ttest_ind(a, b, equal_var=False, alternative=alternative).pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction: the chance of any false alarm among all of them stays below the level.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p)[order] * (len(p) - np.arange(len(p)))
    result = np.empty(len(p))
    result[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in result]
