"""What the paper proves about Õ(m,n), and its two worked examples with their slips named."""

from __future__ import annotations

import numpy as np
import pytest

from stiefel_init import check, cholesky_factor, complement, sample
from stiefel_init.theory import alignment_optimum

NUMPY_DTYPES = (np.float64, np.float32, np.float16)
R2, R3, R6 = np.sqrt([2, 3, 6])


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (5, 3), (10, 64)], ids=str)
def test_theorem_1_a_member_sums_to_the_most_that_a_semi_orthogonal_matrix_can(shape: tuple[int, int]) -> None:
    m, n = shape
    assert sample(m, n, seed=0).sum() == pytest.approx(alignment_optimum(m, n)) == pytest.approx(np.sqrt(m * n))


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", [(0, 4), (4, 4), (1, 5), (3, 8)], ids=str)
def test_proposition_1_the_complement_is_orthogonal_to_the_ones(shape: tuple[int, int], dtype: type) -> None:
    m, n = shape
    W = sample(m, n, batch=2, seed=4, dtype=dtype)
    C = complement(W)
    assert C.shape == (2, n - m, n)
    assert C.dtype == dtype
    atol = 8 * float(np.finfo(dtype).eps)
    basis = np.concatenate((W, C), axis=1).astype(np.float64)
    np.testing.assert_allclose(basis @ basis.mT, np.broadcast_to(np.eye(n), (2, n, n)), atol=atol)
    if m:
        np.testing.assert_allclose(C.astype(np.float64).sum(-1), 0, atol=atol)


@pytest.mark.parametrize("m", [2, 3, 10, 257])
def test_lemma_2_closed_form_of_the_cholesky_factor(m: int) -> None:
    L = cholesky_factor(m)
    np.testing.assert_allclose(L @ L.T, np.eye(m) - 1 / m, atol=1e-14)
    assert (np.triu(L, 1) == 0).all()
    assert (np.diag(L)[:-1] > 0).all()
    assert (L[:, -1] == 0).all()
    i, j = 2, 1  # the printed formula, at one place
    assert L[i - 1, j - 1] == pytest.approx(-1 / np.sqrt((m - j + 1) * (m - j)))
    assert L[j - 1, j - 1] == pytest.approx(np.sqrt((m - j) / (m - j + 1)))
    assert (cholesky_factor(0).shape, cholesky_factor(1).tolist()) == ((0, 0), [[0.0]])


U = np.array([[1, 1], [1, -1]]) / R2
V = np.array([[1 / R3, 1 / R6], [1 / R3, 1 / R6], [1 / R3, -2 / R6]])
PRINTED = np.array([[R6 - R3, R6 - R3, R6 + 2 * R3], [R6 + R3, R6 + R3, 2 * (R6 - 2 * R3)]]) / 6


def test_example_1_with_its_two_slips() -> None:
    W = U @ V.T
    assert check(W).ok
    assert not check(PRINTED).ok  # slip 1: the last entry has denominator 3 where 6 is meant
    mended = PRINTED.copy()
    mended[1, 2] = (R6 - 2 * R3) / 6
    assert check(mended).ok
    np.testing.assert_allclose(mended[::-1], W)  # slip 2: its rows are swapped against its own U and V


def test_example_2_with_its_slip() -> None:
    L = cholesky_factor(2)
    printed = np.array([[R3 / 6, R3 / 6, -2 * R3 / 6], [1 / R3, 1 / R3, 1 / R3]])
    assert np.linalg.norm(printed[0]) == pytest.approx(1 / R2)  # the slip: this row should have length 1
    np.testing.assert_allclose((L @ (printed * [[R2], [1]]))[0], printed[0])  # it is the first row of LQ, not of Q
    Q = printed * [[R2], [1]]
    np.testing.assert_allclose(Q @ Q.T, np.eye(2), atol=1e-15)
    np.testing.assert_allclose(L @ Q + 1 / R6, U @ V.T)


def test_theorem_3_it_is_the_last_row_of_q_that_is_fixed() -> None:
    m, n = 3, 5
    L = cholesky_factor(m)
    rows = np.linalg.qr(np.concatenate((np.ones((n, 1)), np.random.default_rng(0).standard_normal((n, 2))), 1)).Q.T
    rows[0] = n**-0.5
    last, first = np.roll(rows, -1, axis=0), rows
    assert check(L @ last + (m * n) ** -0.5).ok
    assert not check(L @ first + (m * n) ** -0.5).ok  # the printed condition Qᵀe_1 = ξ_n: a slip for Qᵀe_m = ξ_n
