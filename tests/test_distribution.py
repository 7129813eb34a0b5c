"""Every sampler draws uniformly on Õ(m,n), and a sampler without the sign correction is caught.

Every test below rejects a right sampler with probability at most FALSE_ALARM, in the randomness of the fixed seeds. The
tests look at the same matrices, so that what they say of one sampler is not independent; each rate holds nevertheless.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from conftest import COUNT, FALSE_ALARM, SAMPLERS, Sampler, assert_same_distribution, beta_pvalue, plain_member
from scipy import stats

import stiefel_init

SHAPES = [(2, 2), (3, 3), (2, 5), (5, 2), (4, 7), (6, 6)]


@cache
def drawn(sampler: Sampler, shape: tuple[int, int], seed: int = 1) -> np.ndarray:
    """COUNT matrices, which all tests share; those of another seed are independent of them."""
    W = sampler(COUNT, *shape, seed)
    W.setflags(write=False)
    return W


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_projections_are_beta_distributed(sampler: Sampler, shape: tuple[int, int]) -> None:
    assert beta_pvalue(drawn(sampler, shape)) > FALSE_ALARM / 8  # eight tests inside


@pytest.mark.parametrize("size", [2, 3, 6])
def test_both_components_of_the_square_set_are_equally_likely(sampler: Sampler, size: int) -> None:
    W = drawn(sampler, (size, size))
    positive = int((np.linalg.det(W) > 0).sum())
    assert stats.binomtest(positive, COUNT).pvalue > FALSE_ALARM


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (6, 6)], ids=str)
def test_invariant_under_multiplication_by_fixed_members(sampler: Sampler, shape: tuple[int, int]) -> None:
    m, n = shape
    left, right = stiefel_init.sample(m, m, seed=10), stiefel_init.sample(n, n, seed=11)
    there = left @ drawn(sampler, shape, 2) @ right
    assert_same_distribution(drawn(sampler, shape), there, "first entry", "largest", "fourth powers")


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "numpy-algorithm1"])
@pytest.mark.parametrize("shape", [(2, 5), (6, 6)], ids=str)
def test_agrees_with_the_papers_algorithm_1(name: str, shape: tuple[int, int]) -> None:
    ours, theirs = drawn(SAMPLERS[name], shape), drawn(SAMPLERS["numpy-algorithm1"], shape, 2)
    assert_same_distribution(ours, theirs, "first entry", "last of the first column", "largest", "least")


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4, 7)], ids=str)
def test_without_the_sign_correction_the_distribution_is_wrong_and_the_tests_see_it(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((COUNT, *shape))
    right = np.stack([plain_member(row) for row in x])
    wrong = np.stack([plain_member(row, signs=False) for row in x])
    assert all(stiefel_init.check(W).ok for W in wrong[:50])  # every one a member: only the distribution tells
    assert beta_pvalue(right) > FALSE_ALARM / 8
    assert beta_pvalue(wrong) < 1e-30


def test_batches_and_calls_are_independent(sampler: Sampler) -> None:
    W = drawn(sampler, (6, 6)).reshape(COUNT, -1)
    z = (W - W.mean(0)) / W.std(0)
    neighbours = np.abs((z[:-1] * z[1:]).mean(0)) * np.sqrt(COUNT - 1)
    assert (neighbours < stats.norm.isf(FALSE_ALARM / 2 / 36)).all()
