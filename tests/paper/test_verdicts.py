"""Verdicts of our studies: whether one sample of scores is above another, by how much, and among how many questions."""

from __future__ import annotations

import numpy as np
import pytest
from paper.verdicts import greater_p, verdicts
from scipy import stats

RNG = np.random.default_rng(0)


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


def test_a_verdict_has_the_corrected_p() -> None:
    a, b = RNG.normal(90, 1, 5), RNG.normal(89, 2, 6)
    known = stats.ttest_ind(a, b, equal_var=False)
    first, second = verdicts([(a, b), (b, a)])
    assert (first.gain, first.p) == pytest.approx((a.mean() - b.mean(), min(1.0, 2 * known.pvalue)))
    assert (second.gain, second.p) == pytest.approx((-first.gain, first.p))
    assert verdicts([(a, b), (b, a)], list)[0].p == pytest.approx(known.pvalue)
    assert verdicts([(np.array([2.0, 2.0]), np.array([1.0, 1.0]))])[0].p == 0.0


def test_the_one_sided_test_knows_constant_samples() -> None:
    """As of networks that all end at chance."""
    two, one = np.array([2.0, 2.0]), np.array([1.0, 1.0])
    assert (greater_p(two, one), greater_p(one, one), greater_p(one[:1], two)) == (0, 1, 1)
    assert greater_p(np.array([97.0, 96.0, 98.0]), np.array([11.35, 11.35, 11.35])) < 1e-3
    assert greater_p(np.array([11.35, 11.35]), np.array([97.0, 96.0])) > 0.99
