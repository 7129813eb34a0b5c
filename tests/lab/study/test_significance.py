"""Comparisons of schemes: intervals, Welch's test and Holm's correction, against SciPy and by their error rates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stiefel_init.lab.study.significance import compared, holm, welch
from stiefel_init.lab.train.problem import ACCURACY, RMSE

RNG = np.random.default_rng(0)


def test_intervals_and_p_are_those_of_scipy() -> None:
    a, b = RNG.normal(90, 1, 5), RNG.normal(88, 3, 6)
    best, other = compared([a, b], ACCURACY)
    assert (best.best, best.p, other.best) == (True, None, False)
    assert other.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert (best.low, best.high) == pytest.approx(stats.t.interval(0.95, 4, a.mean(), stats.sem(a)))


def test_intervals_end_where_the_scale_does() -> None:
    high, low = compared([np.array([99.9, 97.0, 99.9]), np.array([0.0, 3.0, 0.5])], ACCURACY)
    assert (high.high, low.low) == (100.0, 0.0)
    assert high.low == pytest.approx(stats.t.interval(0.95, 2, high.mean, 2.9 / 3)[0]), "the other end stays"
    assert low.high == pytest.approx(low.mean * 2 - stats.t.interval(0.95, 2, low.mean, (low.std or 0) / 3**0.5)[0])
    (error,) = compared([np.array([1.0, 400.0, 3.0])], RMSE)
    assert error.low == 0.0, "no error is below 0"
    assert error.high is not None
    assert error.high > 400, "and none is too large"


def test_of_errors_the_least_is_best() -> None:
    first, second = compared([np.array([3.0, 3.1]), np.array([2.0, 2.1])], RMSE)
    assert (first.best, second.best) == (False, True)


def test_one_network_or_one_that_diverged_allows_no_test() -> None:
    for sample in (np.array([50.0]), np.array([50.0, np.inf])):
        good, bad = compared([np.array([90.0, 91.0]), sample], ACCURACY)
        assert (bad.p, bad.low, good.best) == (None, None, bool(np.isfinite(sample).all())) or not good.best
    assert welch(np.array([10.0, 10.0]), np.array([10.0, 10.0])) == 1
    assert welch(np.array([10.0, 10.0]), np.array([11.0, 11.0])) == 0


def test_holm_keeps_its_promise() -> None:
    """Five true hypotheses: in 2,000 trials more than 130 rejections at 5 % happen once in a thousand."""
    trials = RNG.random((2000, 5))
    assert sum(min(holm(list(p))) < 0.05 for p in trials) < 130
    assert sum(p.min() < 0.05 for p in trials) > 300, "without it there are many"
    assert holm([0.5, 0.001, 0.02]) == pytest.approx([0.5, 0.003, 0.04])
    assert holm([]) == []
