"""Verdicts of our studies: which of two samples of scores is better, and by how much; for many pairs together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from stiefel_init.lab.study.significance import LEVEL, holm, welch


def greater_p(a: np.ndarray, b: np.ndarray) -> float:
    """p of Welch's one-sided test that the first mean is above the second; 1 where nothing can be told."""
    p = welch(a, b, "greater")
    return 1.0 if p is None else p


class Verdict(NamedTuple):
    """Two samples of scores compared, for which more is better."""

    gain: float
    """The first mean minus the second."""
    p: float
    """That the means do not differ, corrected for all comparisons."""
    word: Literal["better", "worse", "not shown", "open"]


def verdicts(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], correction: Callable[[Sequence[float]], list[float]] = holm
) -> list[Verdict]:
    """Of each pair, whether the first scores are above the second: Welch's tests at 0.05 for all pairs together.

    Networks that diverged lose against any that did not; two such samples are open, as are single networks.

    >>> good, bad = np.array([90.0, 91.0, 92.0]), np.array([50.0, 51.0, 52.0])
    >>> [verdict.word for verdict in verdicts([(good, bad), (bad, good), (good, good), (good[:1], bad)])]
    ['better', 'worse', 'not shown', 'open']
    """
    raw = [welch(*pair) for pair in pairs]
    corrected = iter(correction([p for p in raw if p is not None]))
    return [_verdict(a, b, None if p is None else next(corrected)) for (a, b), p in zip(pairs, raw)]


def _verdict(a: np.ndarray, b: np.ndarray, p: float | None) -> Verdict:
    with np.errstate(invalid="ignore"):
        gain = float(a.mean() - b.mean())
    if p is not None:
        return Verdict(gain, p, "not shown" if p >= 1 - LEVEL else "better" if gain > 0 else "worse")
    whole = [bool(np.isfinite(sample).all()) for sample in (a, b)]
    if min(len(a), len(b)) < 2 or whole[0] == whole[1]:
        return Verdict(gain, 1.0, "open")
    return Verdict(gain, 1.0, "better" if whole[0] else "worse")


def apart(a: np.ndarray, b: np.ndarray, digits: int = 1) -> str:
    """The difference of means in words, with Welch's 95 % interval; of single networks without.

    >>> apart(np.array([2.0, 2.0]), np.array([1.0, 1.0])), apart(np.array([2.0]), np.array([1.0, 1.0]))
    ('+1.0 [+1.0, +1.0]', '+1.0')
    """
    gain = low = high = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return f"{gain:+.{digits}f}"
    if np.ptp(a) or np.ptp(b):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(LEVEL)
    return f"{gain:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def different(differences: np.ndarray) -> float:
    """p of Student's two-sided test that the mean of paired differences is not zero.

    >>> different(np.array([1.0, 1.1, 0.9])) < 0.01 < different(np.array([1.0, -1.1, 0.9]))
    True
    """
    if np.ptp(differences) == 0:
        return float(differences[0] == 0)
    return float(stats.ttest_1samp(differences, 0.0).pvalue)
