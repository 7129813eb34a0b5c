"""The distribution of each scheme, in NumPy and PyTorch, seeded and not: what is drawn is what the scheme says.

Every test rejects a right sampler with probability at most FALSE_ALARM, in the randomness of the fixed seed; each says
what a wrong one would have to differ by.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from conftest import COUNT, FALSE_ALARM, Sampler, haar_pvalue, plain_member
from scipy import stats

from stiefel_init import check, draw
from stiefel_init.schemes import Centred, Scheme
from stiefel_init.torch import draw_

Draw = Callable[[str | Scheme, int, int, int, int], np.ndarray]  # (scheme, count, m, n, seed) -> (count, m, n)


def _torch(scheme: str | Scheme, *shape: int, **options: Any) -> np.ndarray:
    return draw_(torch.empty(shape, dtype=torch.float64), scheme, batch_dims=1, **options).numpy()


DRAWS: dict[str, Draw] = {
    "numpy": lambda scheme, k, m, n, seed: draw(scheme, m, n, batch=k, seed=np.random.default_rng(seed)),
    "numpy-stream": lambda scheme, k, m, n, seed: draw(scheme, m, n, batch=k, seed=seed),
    "torch": lambda scheme, k, m, n, seed: _torch(scheme, k, m, n, generator=torch.Generator().manual_seed(seed)),
    "torch-stream": lambda scheme, k, m, n, seed: _torch(scheme, k, m, n, seed=seed, name="w"),
}


@pytest.fixture(params=DRAWS, scope="module")
def sampled(request: pytest.FixtureRequest) -> Draw:
    """NumPy and PyTorch, each from its own generators and from the seeded stream."""
    return DRAWS[request.param]


# The entrywise ones: a wrong fan, factor or family moves the distribution function by more than the √(7.3/count) that
# so many entries allow, 0.02 of 20,000.

ENTRYWISE = {
    "he": lambda m, n: stats.norm(0, math.sqrt(2 / n)),
    "xavier": lambda m, n: stats.uniform(-math.sqrt(6 / (m + n)), 2 * math.sqrt(6 / (m + n))),
    "random": lambda m, n: stats.norm(0, 0.1),
    "random 0.03": lambda m, n: stats.norm(0, 0.03),
}


@pytest.mark.parametrize("scheme", ENTRYWISE)
@pytest.mark.parametrize("shape", [(200, 300), (300, 200), (1, 5), (5, 1)], ids=str)
def test_entries_are_independent_and_of_their_distribution(sampled: Draw, shape: tuple[int, int], scheme: str) -> None:
    m, n = shape
    expected = ENTRYWISE[scheme](m, n)
    W = sampled(scheme, 4000 if m * n < 10 else 4, m, n, 1)
    assert stats.kstest(W.ravel(), expected.cdf).pvalue > FALSE_ALARM
    z = W / expected.std()
    limit = stats.norm.isf(FALSE_ALARM / 2 / 3)  # three correlations below
    neighbours = [(z[:, :, :-1], z[:, :, 1:]), (z[:, :-1], z[:, 1:]), (z[:-1], z[1:])]
    for a, b in neighbours:
        if a.size:
            assert abs((a * b).sum()) < limit * math.sqrt(a.size)


def test_a_wrong_fan_would_be_noticed() -> None:
    """He with the fan-out for the fan-in, Xavier with its bound for its standard deviation."""
    he, xavier = (DRAWS["numpy-stream"](scheme, 500, 20, 30, 1).ravel() for scheme in ("he", "xavier"))
    assert stats.kstest(he, ENTRYWISE["he"](30, 20).cdf).pvalue < 1e-30
    assert stats.kstest(xavier, stats.uniform(-0.2, 0.4).cdf).pvalue < 1e-30
    assert stats.kstest(xavier, stats.norm(0, math.sqrt(2 / 50)).cdf).pvalue < 1e-30


# The orthogonal one: Haar.


def _one_by_one(count: int, m: int, n: int, seed: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.empty(count, m, n, dtype=torch.float64)
    for matrix in matrices:
        draw_(matrix, "orthogonal", generator=generator)
    return matrices.numpy()


HAAR: dict[str, Sampler] = {
    **{name: partial(sampled, "orthogonal") for name, sampled in DRAWS.items()},
    "torch one by one": _one_by_one,
}
SHAPES = [(2, 2), (3, 3), (2, 5), (5, 2), (6, 6)]


@cache
def haar(name: str, shape: tuple[int, int]) -> np.ndarray:
    """COUNT matrices, which the tests below share."""
    W = HAAR[name](COUNT, *shape, 1)
    W.setflags(write=False)
    return W


@pytest.mark.parametrize("name", HAAR)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orthogonal_is_haar(shape: tuple[int, int], name: str) -> None:
    """(aᵀWb)² is Beta for first axes and for the ones, and in square ones both determinants are equally likely."""
    W = haar(name, shape)
    assert all(check(w).orthogonality_error < 1e-14 for w in W[:50])
    assert haar_pvalue(W) > FALSE_ALARM / 18  # as many tests inside
    if shape[0] == shape[1]:
        assert stats.binomtest(int((np.linalg.det(W) > 0).sum()), COUNT).pvalue > FALSE_ALARM


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4, 7)], ids=str)
def test_without_the_sign_correction_orthogonal_would_be_noticed(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(8).standard_normal((COUNT, *shape))
    right, wrong = (np.stack([plain_member(row, aligned=False, signs=signs) for row in x]) for signs in (True, False))
    assert haar_pvalue(right) > FALSE_ALARM / 18
    assert haar_pvalue(wrong) < 1e-30
    assert haar_pvalue(-right) > FALSE_ALARM / 18


def test_the_gain_of_orthogonal_multiplies(sampled: Draw) -> None:
    for gain, (m, n) in itertools.product((2.0, -0.5, 0.0, math.sqrt(2)), ((3, 5), (5, 3), (4, 4))):
        plain = sampled("orthogonal", 3, m, n, 4)
        np.testing.assert_allclose(sampled(f"orthogonal {gain!r}", 3, m, n, 4), gain * plain)


# Members that exist where one side divides the other.


@pytest.mark.parametrize("shape", [(2, 6), (6, 2), (3, 3)], ids=str)
def test_permutations_put_every_column_in_every_group_alike(sampled: Draw, shape: tuple[int, int]) -> None:
    """Each of the 90, 90 and 6 arrangements is equally likely: χ²."""
    W = sampled("permutation", COUNT, *shape, 1)
    wide = W if shape[0] <= shape[1] else W.mT
    p, q = wide.shape[1:]
    arrangements = math.factorial(q) // math.factorial(q // p) ** p
    assert len({tuple(w.ravel()) for w in wide}) == arrangements
    counts = np.unique(wide.argmax(1) @ (p ** np.arange(q)), return_counts=True)[1]
    expected = COUNT / arrangements
    assert ((counts - expected) ** 2 / expected).sum() < stats.chi2(arrangements - 1).isf(FALSE_ALARM)


def test_the_identity_is_written_out(sampled: Draw) -> None:
    for shape in ((1, 4), (4, 1), (3, 3), (2, 6), (6, 2)):
        p, q = min(shape), max(shape)
        expected = np.kron(np.eye(p), np.ones((1, q // p))) / math.sqrt(q // p)
        for w in sampled("identity", 2, *shape, 1):
            np.testing.assert_allclose(w if shape[0] == p else w.T, expected, rtol=1e-15)


@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_rotations_have_gaussian_angles_of_their_spread(sampled: Draw, spread: float) -> None:
    """3 × 3: a turn about the ones by θ ~ N(0, spread²/3), for A_12 - A_21 has variance 2·spread²/(2·3).

    Kolmogorov–Smirnov; a spread that is off by a tenth is told apart below.
    """
    W = sampled(f"rotation {spread}", COUNT, 3, 3, 1)
    assert check(W).ok
    theta = np.arcsin(((W - W.mT)[:, [2, 0, 1], [1, 2, 0]]).sum(1) / math.sqrt(12))
    np.testing.assert_allclose(np.cos(theta), (np.trace(W, axis1=1, axis2=2) - 1) / 2, atol=1e-12)
    assert stats.kstest(theta, stats.norm(0, spread / math.sqrt(3)).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(theta, stats.norm(0, 1.2 * spread / math.sqrt(3)).cdf).pvalue < FALSE_ALARM


@pytest.mark.parametrize("shape", [(2, 5), (5, 5), (7, 4)], ids=str)
def test_centred_matrices_are_haar_beside_the_ones(sampled: Draw, shape: tuple[int, int]) -> None:
    """As many orthonormal rows, or columns, as the complement of the ones has, in no preferred direction of it."""
    m, n = shape
    W = sampled(Centred(), COUNT, m, n, 1)
    np.testing.assert_allclose(W.sum(2), 0, atol=1e-14)
    singular = np.linalg.svd(W[:50], compute_uv=False)[:, : min(m, n - 1)]
    np.testing.assert_allclose(singular, 1, atol=1e-13)
    basis = np.linalg.qr(np.eye(n) - 1 / n)[0][:, : n - 1]
    assert haar_pvalue(W @ basis) > FALSE_ALARM / 3


# Lee's matrices are fixed.


def _positive_q(a: np.ndarray) -> np.ndarray:
    q, r = np.linalg.qr(a)
    return q * np.sign(np.diag(r))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 3.0])
def test_lees_matrices_are_those_by_factorization(sampled: Draw, epsilon: float) -> None:
    """Q_m I Q_nᵀ, also with LAPACK's signs; and directly, the orthonormal factor of 11ᵀ + εI, for m < n transposed."""
    for m, n in ((1, 1), (1, 6), (6, 1), (2, 7), (7, 2), (10, 64), (64, 10), (5, 5)):
        ones = {k: np.ones((k, k)) + epsilon * np.eye(k) for k in (m, n)}
        direct = np.ones((m, n)) + epsilon * np.eye(m, n)
        expected = {
            "product": _positive_q(ones[m]) @ np.eye(m, n) @ _positive_q(ones[n]).T,
            "lapack": np.linalg.qr(ones[m]).Q @ np.eye(m, n) @ np.linalg.qr(ones[n]).Q.T,
            "direct": _positive_q(direct) if m >= n else _positive_q(direct.T).T,
        }
        for variant, matrix in expected.items():
            for w in sampled(f"lee {variant} epsilon={epsilon}", 2, m, n, 1):
                np.testing.assert_allclose(w, matrix, atol=1e-12, err_msg=f"{variant} {m}×{n}")
