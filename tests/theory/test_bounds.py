"""The bounds of theorems 4 and 5, and the shift for an α."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import ndtr

from stiefel_init import sample
from stiefel_init.theory import FAVOURED_ALPHA, berry_esseen_bound, max_entry_bound, shift_for_alpha


@pytest.mark.parametrize(("m", "n"), [(8, 1000), (1000, 8), (64, 784), (300, 300)], ids=str)
def test_theorem_4_no_entry_exceeds_the_bound_and_the_bound_is_not_idle(m: int, n: int) -> None:
    """At c = 3 a draw exceeds it with probability below 2mn·Φ(-3√log q) < 1e-6; all of 20 reach 40 % of it."""
    bound = max_entry_bound(m, n, 3)
    largest = np.array([np.abs(sample(m, n, seed=seed)).max() for seed in range(20)])
    assert (largest < bound).all()
    assert (largest > 0.4 * bound).all()
    assert bound == max_entry_bound(n, m, 3)


def test_theorem_5_bounds_the_distance_from_gaussian_of_a_known_law() -> None:
    """m = 1: Wx is the sum of n χ²(3) over √n, so its law is χ²(3n): no simulation is needed."""
    third = 2.1638  # E|z|³ of a standardized χ²(3)
    found, _ = integrate.quad(lambda x: abs((x - 3) / math.sqrt(6)) ** 3 * stats.chi2(3).pdf(x), 0, 200, limit=200)
    assert third == pytest.approx(found, abs=5e-4)
    distance, bound = [], []
    for n in (100, 10_000, 1_000_000):
        x = np.linspace(-5, 5, 20_001)
        distance.append(np.abs(stats.chi2(3 * n).cdf(3 * n + x * math.sqrt(6 * n)) - ndtr(x)).max())
        bound.append(berry_esseen_bound(np.full((1, n), 1 / math.sqrt(n)), third))
    assert (np.array(distance) < bound).all()
    assert bound[-1] < 1
    np.testing.assert_allclose(np.divide(bound[:-1], bound[1:]), 10)
    np.testing.assert_allclose(np.divide(distance[:-1], distance[1:]), 10, rtol=0.02)


def test_theorem_5_constant_and_columns() -> None:
    W = sample(3, 50, seed=0)
    lengths = np.sqrt((W**2).sum(0))
    assert berry_esseen_bound(W, 2.0) == pytest.approx((42 * 3**0.25 + 16) * 2 * (lengths**3).sum())
    assert berry_esseen_bound(W, 2.0) >= 58 * 2 * 3 * math.sqrt(3 / 50)


def test_shifted_data_have_the_alpha_asked_for() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(5, 3, (200, 7))
    z = (x - x.mean(0)) / x.std(0)
    for alpha in (-2, 0, FAVOURED_ALPHA, 50):
        shifted = shift_for_alpha(z, alpha)
        assert shifted.mean() / shifted.std() == pytest.approx(alpha, abs=1e-12)
        np.testing.assert_allclose(shifted, z + alpha, atol=1e-12)  # the paper's way: standardize, then add α
    raw = shift_for_alpha(x)
    assert raw.mean() / raw.std() == pytest.approx(2)
    np.testing.assert_allclose(raw - x, (raw - x)[0, 0])
    assert shift_for_alpha(x.astype(np.float32)).dtype == np.float32
    assert shift_for_alpha([[1, 2], [3, 4]]).dtype == np.float64
