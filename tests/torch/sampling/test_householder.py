"""Members from reflections with PyTorch: by LAPACK and by blocks the textbook's, in every dtype and batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from conftest import METHODS, SHAPES, TORCH_DTYPES, plain_member
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel_init.torch
from stiefel_init import check, draw
from stiefel_init.core import stream as _stream
from stiefel_init.core.validate import Method
from stiefel_init.schemes import Orthogonal, Stiefel
from stiefel_init.torch.sampling import householder
from stiefel_init.torch.sampling.source import fill_


def given_numbers(x: np.ndarray) -> householder.Numbers:
    """Numbers that are handed out instead of drawn: those of `x`, of shape (count, p, q)."""

    def numbers(like: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        block = torch.from_numpy(x[:, start:stop, start:].copy())
        return block if like.ndim == 3 else block[0]

    return numbers


@pytest.mark.parametrize("method", METHODS)
def test_torch_samples_are_members(method: Method) -> None:
    """Every shape; every dtype and batch; a batch of matrices too large to stack, which is drawn one by one."""
    cases: list[tuple[tuple[int, int], torch.dtype, tuple[int, ...]]] = [
        *((shape, torch.float64, (3,)) for shape in SHAPES),
        *(((6, 11), dtype, ()) for dtype in TORCH_DTYPES),
        *(((11, 6), torch.float32, batch) for batch in ((0,), (2, 2))),
        *(((300, 260), torch.bfloat16, (count,)) for count in (1, 3)),
        ((64, 64), torch.bfloat16, (3,)),
    ]
    for shape, dtype, batch in cases:
        W = stiefel_init.torch.sample(*shape, batch=batch, method=method, dtype=dtype)
        assert (W.shape, W.dtype) == ((*batch, *shape), dtype)
        assert check(W).ok, check(W)
        assert batch != (3,) or min(shape) < 3 or not torch.equal(W[0], W[1])


@given(
    m=st.integers(1, 150),
    n=st.integers(1, 150),
    block=st.integers(1, 160),
    count=st.integers(1, 3),
    aligned=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_blocks_of_any_size_give_the_plain_result(m: int, n: int, block: int, count: int, aligned: bool) -> None:
    p, q = min(m, n), max(m, n)
    x = np.random.default_rng(block).standard_normal((count, p, q))
    out = torch.empty(count, p, q, dtype=torch.float64)
    householder._compact_wy(out, block, given_numbers(x), aligned)
    np.testing.assert_allclose(out, [plain_member(row, aligned=aligned) for row in x], atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (5, 9), (64, 64)], ids=str)
@pytest.mark.parametrize("aligned", [True, False])
def test_lapack_gives_the_plain_result(shape: tuple[int, int], aligned: bool) -> None:
    x = np.random.default_rng(0).standard_normal((1, *shape))
    for out in (torch.empty(shape, dtype=torch.float64), torch.empty(shape[::-1], dtype=torch.float64).T):
        householder._lapack(out, given_numbers(x), aligned)
        np.testing.assert_allclose(out, plain_member(x[0], aligned=aligned), atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (5, 3), (70, 70), (300, 280)], ids=str)
@pytest.mark.parametrize("batch", [(), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("aligned", [True, False])
def test_torch_gives_numpys_matrices_for_the_same_keys(
    shape: tuple[int, int], batch: tuple[int, ...], aligned: bool
) -> None:
    scheme = Stiefel() if aligned else Orthogonal()
    keys = _stream.fold(_stream.key(9, "w"), np.arange(math.prod(batch)).reshape(batch))
    ours = fill_(torch.empty(*batch, *shape, dtype=torch.float64), scheme, keys=keys)
    np.testing.assert_allclose(ours, draw(scheme, *shape, batch=batch, seed=9, name="w"), atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (6, 6), (3, 8)], ids=str)
@pytest.mark.parametrize("aligned", [True, False])
def test_a_generator_that_returns_zeros_still_gives_orthonormal_matrices(shape: tuple[int, int], aligned: bool) -> None:
    tiny = np.full((1, *shape), 1e-18)  # what a zero becomes: the mean of the draw
    lapack, blocks = torch.empty(2, 1, *shape, dtype=torch.float64)
    householder._lapack(lapack[0], given_numbers(tiny), aligned)
    householder._compact_wy(blocks, 2, given_numbers(tiny), aligned)
    for found in map(check, (lapack, blocks)):
        assert found.orthogonality_error <= found.tolerance
        assert found.ok or not aligned
