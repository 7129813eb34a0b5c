"""The one test of significance: Welch's, with intervals, corrected for how many comparisons share the level."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from ..train.problem import Metric

LEVEL = 0.95


class Compared(NamedTuple):
    """One scheme in a setting."""

    mean: float
    std: float | None
    """None for a single network, or if one diverged; so the interval."""
    low: float | None
    """Ends of Student's interval of the mean. It is cut off where the scale ends: no mean lies beyond, so what is left
    covers the true one as often."""
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


def greater_p(a: np.ndarray, b: np.ndarray) -> float:
    """p of Welch's one-sided test that the first mean is above the second; 1 where nothing can be told."""
    p = welch(a, b, "greater")
    return 1.0 if p is None else p


class Verdict(NamedTuple):
    """Two samples of scores compared, for which more is better."""

    gain: float
    """The first mean minus the second."""
    low: float
    """Ends of its 95 % interval, not corrected; infinite if the verdict is open."""
    high: float
    p: float
    """That the means do not differ, corrected for all comparisons."""
    word: Literal["better", "worse", "not worse", "not shown", "open"]


def verdicts(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    correction: Callable[[Sequence[float]], list[float]] | None = None,
    margin: float | None = None,
    margin_level: float = 0.025,
) -> list[Verdict]:
    """Of each pair, whether the first scores are above the second: Welch's tests at 0.05 for all pairs together.

    Networks that diverged lose against any that did not; two such samples are open, as are single networks.

    Args:
        pairs: Samples of scores, for which more is better.
        correction: `holm`, which is the default, or `bonferroni`.
        margin: What is worse by less is not worse.
        margin_level: Level of the one-sided test for that; by default the 95 % interval excludes the margin.

    >>> good, bad = np.array([90.0, 91.0, 92.0]), np.array([50.0, 51.0, 52.0])
    >>> [verdict.word for verdict in verdicts([(good, bad), (bad, good), (good, good), (good[:1], bad)])]
    ['better', 'worse', 'not shown', 'open']
    """
    raw = [welch(*pair) for pair in pairs]
    corrected = iter((correction or holm)([p for p in raw if p is not None]))
    return [
        _verdict(a, b, None if p is None else next(corrected), margin, margin_level) for (a, b), p in zip(pairs, raw)
    ]


def _verdict(a: np.ndarray, b: np.ndarray, p: float | None, margin: float | None, margin_level: float) -> Verdict:
    if p is None:
        whole = [bool(np.isfinite(sample).all()) for sample in (a, b)]
        word: Literal["better", "worse", "open"] = "better" if whole[0] else "worse"
        with np.errstate(invalid="ignore"):
            gain = float(a.mean() - b.mean())
        told = word if min(len(a), len(b)) > 1 and whole[0] != whole[1] else "open"
        return Verdict(gain, -math.inf, math.inf, 1.0, told)
    gain, (low, high) = float(a.mean() - b.mean()), interval(a, b)
    if p < 1 - LEVEL:
        return Verdict(gain, low, high, p, "better" if gain > 0 else "worse")
    within = margin is not None and greater_p(a + margin, b) < margin_level
    return Verdict(gain, low, high, p, "not worse" if within else "not shown")


def interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Ends of Welch's 95 % interval of the difference of means."""
    gain = float(a.mean() - b.mean())
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return gain, gain
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(LEVEL)
    return float(low), float(high)


def different(differences: np.ndarray) -> float:
    """p of Student's two-sided test that the mean of paired differences is not zero.

    >>> different(np.array([1.0, 1.1, 0.9])) < 0.01 < different(np.array([1.0, -1.1, 0.9]))
    True
    """
    if np.ptp(differences) == 0:
        return float(differences[0] == 0)
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


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


def bonferroni(p: Sequence[float]) -> list[float]:
    """Bonferroni's correction: each p times their number.

    >>> bonferroni([0.01, 0.6])
    [0.02, 1.0]
    """
    return [min(1.0, len(p) * value) for value in p]
