"""`check` tells members from near misses, in every array type, and says so in one line."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import stiefel_init.torch
from stiefel_init import check, sample


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_arrays_of_torch_and_jax_even_tensors_that_require_grad(dtype: str) -> None:
    tensor = stiefel_init.torch.sample(5, 8, dtype=getattr(torch, dtype)).requires_grad_()
    for W in (tensor, jnp.asarray(sample(5, 8, seed=0), "float32" if dtype == "float64" else dtype)):
        assert check(W).ok
        assert not check(-W).ok
    assert tensor.grad_fn is None


@pytest.mark.parametrize("shape", [(64, 64), (64, 784), (1000, 64)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_an_orthogonal_matrix_that_is_not_aligned_never_passes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    W = torch.nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64)).to(dtype)
    result = check(W)
    assert result.orthogonality_error <= result.tolerance
    assert result.alignment_error > 2 * result.tolerance


def test_measures_what_it_says() -> None:
    W = sample(3, 4, seed=0)
    W[0, 0] += 1e-3
    result = check(W)
    gram = W @ W.T - np.eye(3)
    backward = W.sum(0) / math.sqrt(3) - 0.5
    assert result.orthogonality_error == pytest.approx(np.abs(gram).max())
    assert result.alignment_error == pytest.approx(max(np.abs(W.sum(1) / 2 - 3**-0.5).max(), np.abs(backward).max()))
    assert result.alignment == pytest.approx(W.sum() / math.sqrt(12))
    assert not result.ok
    assert check(W, tol=1e-2).ok


def test_of_a_batch_the_worst_counts() -> None:
    W = sample(3, 3, batch=4, seed=0)
    W[2] = -np.eye(3)
    assert not check(W).ok
    assert check(W).alignment == pytest.approx(-1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_never_pass(bad: float) -> None:
    for place in ((0, 0), (2, 1)):
        W = sample(3, 3, seed=0)
        W[place] = bad
        assert not check(W).ok


def test_the_tolerance_follows_one_rule() -> None:
    for dtype in (np.float64, np.float32, np.float16):
        eps = np.finfo(dtype).eps
        expected = 2 * eps + 8 * math.sqrt(784) * min(eps, np.finfo(np.float32).eps)
        assert check(sample(64, 784, dtype=dtype)).tolerance == pytest.approx(expected)


def test_result_is_frozen_and_reads_as_one_line() -> None:
    result = check(sample(64, 784, batch=3, seed=0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.alignment = 0.0  # type: ignore[misc]
    assert str(result).startswith("3 of 64×784: in the set (")
    assert "\n" not in str(result)
    assert "NOT in the set" in str(check(-np.eye(2)))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 3)], ids=str)
def test_empty_matrices_are_members(shape: tuple[int, ...]) -> None:
    assert check(np.empty(shape)).ok
