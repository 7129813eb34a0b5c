"""`stiefel_` and `orthogonal_` inside `torch.func` and `torch.compile`, as `torch.nn.init.orthogonal_` works there."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from stiefel_init import check
from stiefel_init.torch import orthogonal_, stiefel_

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which torch.compile loads
SHAPES = [(1, 1), (1, 5), (5, 1), (4, 4), (4, 7), (7, 4)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_under_vmap(shape: tuple[int, int], dtype: torch.dtype) -> None:
    for axis in (0, 2):
        weights = torch.empty(*shape, dtype=dtype).unsqueeze(axis).repeat_interleave(3, axis)
        drawn = torch.func.vmap(stiefel_, in_dims=axis, randomness="different")(weights)
        assert all(check(matrix).ok for matrix in drawn)
        if min(shape) > 1:
            assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_compiled_in_one_graph(shape: tuple[int, int]) -> None:
    torch.compiler.reset()
    compiled: Callable[[Tensor], Tensor] = torch.compile(stiefel_, fullgraph=True, backend="eager")
    weight = torch.empty(shape, dtype=torch.float64)
    assert check(compiled(weight).numpy())
    assert check(weight.numpy())


def test_orthogonal_matrices_too() -> None:
    weights = torch.func.vmap(orthogonal_, randomness="different")(torch.empty(3, 4, 6, dtype=torch.float64))
    torch.testing.assert_close(weights @ weights.mT, torch.eye(4, dtype=torch.float64).expand(3, 4, 4))


@pytest.mark.parametrize(("shape", "aligned"), [((3, 5), True), ((5, 3), True), ((3, 5), False)])
def test_the_law_is_the_same(shape: tuple[int, int], aligned: bool) -> None:
    """A coordinate of the first row in a direction orthogonal to the ones, which is symmetric and Beta distributed.

    For members it is that of a uniform unit vector in n - 1 dimensions, shortened by the part along the ones; here only
    equality in law is tested, with 4,000 matrices of each kind: a false alarm once in 10⁴ runs of each case.
    """
    fill = stiefel_ if aligned else orthogonal_
    torch.manual_seed(0)
    usual = torch.stack([fill(torch.empty(shape, dtype=torch.float64)) for _ in range(4000)])
    traced = torch.func.vmap(fill, randomness="different")(torch.empty(4000, *shape, dtype=torch.float64))
    direction = np.zeros(shape[1])
    direction[:2] = 1 / math.sqrt(2), -1 / math.sqrt(2)
    for row in (0, 1):
        a, b = ((matrices.numpy() @ direction)[:, row] for matrices in (usual, traced))
        assert stats.ks_2samp(a, b).pvalue > 1e-4 / 2
