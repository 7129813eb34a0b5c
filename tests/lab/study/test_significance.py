"""Comparisons of schemes: intervals, Welch's test and Holm's correction, against SciPy and by their error rates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stiefel_init.lab.study.significance import bonferroni, compared, greater_p, holm, verdicts, welch
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


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ([90.0, 90.2, 89.8, 90.1], [80.0, 80.2, 79.9, 80.3], "better"),
        ([70.0, 70.2, 69.8, 70.1], [80.0, 80.2, 79.9, 80.3], "worse"),
        ([80.0, 80.4, 79.8, 80.1], [80.0, 80.2, 79.9, 80.3], "not shown"),
        ([90.0], [80.0], "open"),
        ([90.0, -np.inf], [80.0, 80.0], "worse"),
        ([90.0, 90.0], [80.0, -np.inf], "better"),
        ([-np.inf, -np.inf], [80.0, -np.inf], "open"),
    ],
)
def test_verdicts(a: list[float], b: list[float], word: str) -> None:
    """Also among pairs that show nothing, which share the level."""
    equal = np.array([50.0, 51.0, 52.0])
    found = verdicts([(np.array(a), np.array(b)), *[(equal, equal)] * 9])
    assert [verdict.word for verdict in found] == [word, *["not shown"] * 9]


def test_many_comparisons_ask_for_more_than_one() -> None:
    near = np.array([80.0, 80.4, 80.8, 81.2]), np.array([79.0, 79.4, 79.8, 80.2])
    equal = np.array([50.0, 51.0, 52.0])
    assert verdicts([near])[0].word == "better"
    assert verdicts([near, *[(equal, equal)] * 99])[0].word == "not shown"


def test_a_verdict_has_welchs_interval_and_the_corrected_p() -> None:
    a, b = RNG.normal(90, 1, 5), RNG.normal(89, 2, 6)
    known = stats.ttest_ind(a, b, equal_var=False)
    first, second = verdicts([(a, b), (b, a)], bonferroni)
    assert (first.low, first.high) == pytest.approx(tuple(known.confidence_interval()))
    assert (first.gain, first.p) == pytest.approx((a.mean() - b.mean(), min(1.0, 2 * known.pvalue)))
    assert (second.low, second.high) == pytest.approx((-first.high, -first.low))
    constant = verdicts([(np.array([2.0, 2.0]), np.array([1.0, 1.0]))])[0]
    assert (constant.low, constant.high, constant.p) == (1.0, 1.0, 0.0)


def test_what_is_worse_by_less_than_the_margin_is_not_worse() -> None:
    pair = np.array([90.0, 90.1, 90.2, 89.9]), np.array([90.1, 90.0, 90.1, 90.2])
    assert [verdicts([pair], margin=margin)[0].word for margin in (None, 0.01, 0.5)] == [
        "not shown", "not shown", "not worse"
    ]  # fmt: skip
    (alone,), (strict,) = verdicts([pair], margin=0.5), verdicts([pair], margin=0.5, margin_level=1e-4)
    assert (alone.word, strict.word) == ("not worse", "not shown")


def test_the_one_sided_test_knows_constant_samples() -> None:
    """As of networks that all end at chance."""
    two, one = np.array([2.0, 2.0]), np.array([1.0, 1.0])
    assert (greater_p(two, one), greater_p(one, one), greater_p(one[:1], two)) == (0, 1, 1)
    assert greater_p(np.array([97.0, 96.0, 98.0]), np.array([11.35, 11.35, 11.35])) < 1e-3
    assert greater_p(np.array([11.35, 11.35]), np.array([97.0, 96.0])) > 0.99
