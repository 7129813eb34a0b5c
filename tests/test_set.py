"""What the paper proves about Õ(m,n), and its two worked examples with their slips named."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from conftest import METHODS, SHAPES, TORCH_DTYPES, Sampler, plain_member
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import stiefel_init
from stiefel_init import _stream, check, cholesky_factor, complement, sample
from stiefel_init.torch import _sample as torch_sample

NUMPY_DTYPES = (np.float64, np.float32, np.float16)
R2, R3, R6 = np.sqrt([2, 3, 6])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numpy_samples_are_members(shape: tuple[int, int], dtype: type, method: str) -> None:
    W = sample(*shape, batch=(2, 1), method=method, seed=0, dtype=dtype)
    assert W.shape == (2, 1, *shape)
    assert W.dtype == dtype
    assert W.flags.c_contiguous
    assert check(W).ok, check(W)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (0,), (2, 2)], ids=str)
def test_torch_samples_are_members(shape: tuple[int, int], dtype: torch.dtype, method: str, batch: tuple) -> None:
    W = stiefel_init.torch.sample(*shape, batch=batch, method=method, dtype=dtype)
    assert W.shape == (*batch, *shape)
    assert W.dtype == dtype
    assert check(W).ok, check(W)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (2, 2), (5, 5), (3, 8), (8, 3)], ids=str)
def test_every_sampler_draws_members(sampler: Sampler, shape: tuple[int, int]) -> None:
    assert check(sampler(20, *shape, 0)).ok


@pytest.mark.parametrize("shape", [(64, 64), (64, 784), (784, 64), (300, 300), (512, 512), (400, 1000)], ids=str)
def test_errors_stay_at_rounding(shape: tuple[int, int]) -> None:
    root = np.sqrt(max(shape))
    for W in (sample(*shape, seed=1), stiefel_init.torch.sample(*shape, dtype=torch.float64)):
        result = check(W)
        assert max(result.orthogonality_error, result.alignment_error) <= 1e-15 * root
    for W in (sample(*shape, seed=1, dtype=np.float32), stiefel_init.torch.sample(*shape, dtype=torch.float32)):
        result = check(W)
        assert result.orthogonality_error <= 2e-6
        assert result.alignment_error <= 5e-7


@pytest.mark.parametrize("batch", [1, 3])
def test_a_batch_of_matrices_too_large_to_stack_is_drawn_one_by_one(batch: int) -> None:
    W = stiefel_init.torch.sample(300, 260, batch=batch, dtype=torch.bfloat16)
    assert check(W).ok
    assert batch == 1 or not torch.equal(W[0], W[1])


@given(
    m=st.integers(0, 40),
    n=st.integers(0, 40),
    seed=st.integers(0, 2**70),
    method=st.sampled_from(METHODS),
    dtype=st.sampled_from(NUMPY_DTYPES),
)
@settings(max_examples=150, deadline=None)
def test_any_shape_seed_method_and_dtype(m: int, n: int, seed: int, method: str, dtype: type) -> None:
    W = sample(m, n, seed=seed, method=method, dtype=dtype)
    assert check(W).ok, check(W)
    np.testing.assert_array_equal(W, sample(m, n, seed=seed, method=method, dtype=dtype))


@given(m=st.integers(1, 150), n=st.integers(1, 150), block=st.integers(1, 160), count=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_blocks_of_any_size_give_the_plain_result(m: int, n: int, block: int, count: int) -> None:
    p, q = min(m, n), max(m, n)
    x = np.random.default_rng(block).standard_normal((count, p, q))
    out = torch.empty(count, p, q, dtype=torch.float64)
    torch_sample._compact_wy(out, block, given_numbers(x))
    np.testing.assert_allclose(out, [plain_member(row) for row in x], atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (5, 9), (64, 64)], ids=str)
def test_lapack_gives_the_plain_result(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((1, *shape))
    out = torch.empty(shape, dtype=torch.float64)
    torch_sample._lapack(out, given_numbers(x))
    np.testing.assert_allclose(out, plain_member(x[0]), atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (5, 3), (70, 70), (300, 280)], ids=str)
@pytest.mark.parametrize("batch", [(), (1,), (2, 3)], ids=str)
def test_torch_gives_numpys_matrices_for_the_same_keys(shape: tuple[int, int], batch: tuple[int, ...]) -> None:
    keys = _stream.fold(_stream.key(9, "w"), np.arange(math.prod(batch)).reshape(batch))
    ours = torch_sample.fill_seeded_(torch.empty(*batch, *shape, dtype=torch.float64), keys)
    np.testing.assert_allclose(ours, sample(*shape, batch=batch, seed=9, name="w"), atol=1e-13)


@pytest.mark.parametrize("shape", [(2, 2), (3, 7), (7, 3)], ids=str)
def test_seeded_matrices_that_are_not_aligned_are_haar(shape: tuple[int, int]) -> None:
    """Each check rejects the right law with probability at most 1e-6."""
    keys = _stream.fold(_stream.key(1, "haar"), np.arange(4000))
    W = torch_sample.fill_seeded_(torch.empty(4000, *shape, dtype=torch.float64), keys, aligned=False).numpy()
    assert max(check(w).orthogonality_error for w in W[:50]) < 1e-13
    for place in ((0, 0), (-1, -1), (0, -1)):
        entry = W[:, *place]
        assert stats.kstest(entry**2, stats.beta(0.5, (max(shape) - 1) / 2).cdf).pvalue > 1e-6
        assert stats.binomtest(int((entry > 0).sum()), 4000).pvalue > 1e-6
    if shape[0] == shape[1]:
        assert stats.binomtest(int((np.linalg.det(W) > 0).sum()), 4000).pvalue > 1e-6


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (5, 9), (9, 5), (70, 70)], ids=str)
def test_numpy_gives_the_plain_result_of_its_stream(shape: tuple[int, int]) -> None:
    p, q = min(shape), max(shape)
    W = sample(*shape, batch=2, seed=3, name="w")
    for index in range(2):
        x = _stream.normals(_stream.fold(_stream.key(3, "w"), index), (0, p), (0, q), np.float64)
        expected = plain_member(x)
        np.testing.assert_allclose(W[index], expected if shape[0] <= shape[1] else expected.T, atol=1e-13)


def given_numbers(x: np.ndarray) -> torch_sample.Numbers:
    """Numbers that are handed out instead of drawn: those of `x`, of shape (count, p, q)."""

    def numbers(like: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        block = torch.from_numpy(x[:, start:stop, start:].copy())
        return block if like.ndim == 3 else block[0]

    return numbers


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (6, 6), (3, 8)], ids=str)
def test_a_generator_that_returns_zeros_still_gives_members(shape: tuple[int, int]) -> None:
    tiny = np.full((1, *shape), 1e-18)  # what a zero becomes: the mean of the draw
    lapack, blocks = torch.empty(2, 1, *shape, dtype=torch.float64)
    torch_sample._lapack(lapack[0], given_numbers(tiny))
    torch_sample._compact_wy(blocks, 2, given_numbers(tiny))
    assert check(lapack).ok
    assert check(blocks).ok


def test_single_members_of_the_degenerate_sets() -> None:
    np.testing.assert_allclose(sample(1, 7, seed=0), np.full((1, 7), 7**-0.5))
    np.testing.assert_allclose(sample(7, 1, seed=0), np.full((7, 1), 7**-0.5))
    assert sample(0, 4).shape == (0, 4)


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (5, 3), (10, 64)], ids=str)
def test_theorem_1_no_semi_orthogonal_matrix_sums_to_more_than_a_member(shape: tuple[int, int]) -> None:
    m, n = shape
    assert sample(m, n, seed=0).sum() == pytest.approx(np.sqrt(m * n))
    rng = np.random.default_rng(0)
    for _ in range(200):
        q, _ = np.linalg.qr(rng.standard_normal((max(m, n), min(m, n))))
        assert q.sum() < np.sqrt(m * n)


@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (6, 3)], ids=str)
def test_lemma_1_the_three_conditions_are_equivalent(shape: tuple[int, int]) -> None:
    m, n = shape

    def conditions(W: np.ndarray) -> list[bool]:
        xi_m, xi_n = np.full(m, m**-0.5), np.full(n, n**-0.5)
        return [
            bool(np.isclose(xi_m @ W @ xi_n, 1)),
            np.allclose(W @ xi_n, xi_m),
            np.allclose(W.T @ xi_m, xi_n),
        ]

    rng = np.random.default_rng(1)
    generic, _ = np.linalg.qr(rng.standard_normal((max(m, n), min(m, n))))
    assert conditions(sample(m, n, seed=2)) == [True] * 3
    assert conditions(generic if m >= n else generic.T) == [False] * 3
    assert conditions(-sample(m, n, seed=2)) == [False] * 3


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", [(0, 4), (4, 4), (1, 5), (3, 8)], ids=str)
def test_proposition_1_the_complement_is_orthogonal_to_the_ones(shape: tuple[int, int], dtype: type) -> None:
    m, n = shape
    W = sample(m, n, batch=2, seed=4, dtype=dtype)
    C = complement(W)
    assert C.shape == (2, n - m, n)
    assert C.dtype == dtype
    atol = 8 * np.finfo(dtype).eps
    basis = np.concatenate((W, C), axis=1).astype(np.float64)
    np.testing.assert_allclose(basis @ basis.mT, np.broadcast_to(np.eye(n), (2, n, n)), atol=atol)
    if m:
        np.testing.assert_allclose(C.astype(np.float64).sum(-1), 0, atol=atol)


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (5, 9)], ids=str)
def test_proposition_2_gram_matrix_of_the_centred_rows(shape: tuple[int, int]) -> None:
    m, n = shape
    W = sample(m, n, seed=5)
    H = (W - W.mean(1, keepdims=True)).T  # h_i = w_i minus its projection on ξ_n
    np.testing.assert_allclose(H.T @ H, np.eye(m) - 1 / m, atol=1e-14)


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


def test_cholesky_factor_of_nothing_and_of_one() -> None:
    assert cholesky_factor(0).shape == (0, 0)
    assert cholesky_factor(1).tolist() == [[0.0]]


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
