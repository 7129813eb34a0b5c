"""Rotations near the identity: the exponential in a few products, and the formula of their law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from torch.overrides import TorchFunctionMode

from stiefel_init import check, draw
from stiefel_init.core import construct as _construct
from stiefel_init.core import stream as _stream
from stiefel_init.torch import draw_
from stiefel_init.torch.sampling import rotations


def skew(p: int, norm: float, dtype: type) -> np.ndarray:
    """Two skew-symmetric matrices of that spectral norm."""
    a = np.random.default_rng(p).standard_normal((2, p, p))
    a -= a.mT
    size = np.linalg.norm(a, 2, (1, 2), keepdims=True) if p > 1 else 1.0
    return (norm * a / size).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm", [0.0, 1e-4, 0.06, 0.08, 0.3, 0.4, 0.65, 0.75, 1.6, 1.8, 5.0, 40.0])
@pytest.mark.parametrize("p", [0, 1, 7])
def test_expm1_skew_is_the_exponential_less_the_identity(p: int, norm: float, dtype: type) -> None:
    """In each of its ways: of degree 4 to 16, and squared. Rounding of a turns the result by as much as its norm."""
    a, eps = skew(p, norm, dtype), float(np.finfo(dtype).eps)
    found = _construct.expm1_skew(a, norm, eps)
    assert found.dtype == dtype
    assert found.shape == a.shape
    exact = expm(a.astype(np.float64)) - np.eye(p) if p else a
    np.testing.assert_allclose(found, exact, rtol=0, atol=8 * eps * max(norm, 1))
    whole = found.astype(np.float64) + np.eye(p)
    np.testing.assert_allclose(whole.mT @ whole, np.broadcast_to(np.eye(p), a.shape), rtol=0, atol=16 * eps)


@pytest.mark.parametrize("p", [1, 2, 5, 64])
@pytest.mark.parametrize("spread", [0.03, 0.5, 2.0])
def test_a_rotation_is_its_formula(p: int, spread: float) -> None:
    """R = H diag(1, exp(A - Aᵀ)) H with the numbers of its stream."""
    numbers = _stream.normals(_stream.fold(_stream.key(1, "w"), 0), (0, p - 1), (0, p - 1), np.float64)
    a = numbers * spread / math.sqrt(2 * p)
    inner = np.eye(p)
    inner[1:, 1:] = expm(a - a.T) if p > 1 else inner[1:, 1:]
    h = _construct.left_reflection(p, "float64")
    found = draw(f"rotation {spread}", p, 3 * p, batch=1, seed=1, name="w", dtype=np.float64)[0]
    np.testing.assert_allclose(found, np.repeat(h @ inner @ h, 3, 1) / math.sqrt(3), rtol=0, atol=1e-14)


@pytest.mark.parametrize("way", _construct._WAYS)
def test_few_products_make_the_polynomial_that_is_meant(way: tuple[int, int]) -> None:
    a, (cosine, sine) = skew(6, 1.0, np.float64), _construct._meeting_exp(way[1], 1.0)
    found = _construct._evaluated(a, *way, 1.0, _construct.NUMPY)
    powers = [np.linalg.matrix_power(a @ a.mT, power) for power in range(way[1] + 1)]
    expected = sum(c * power + f * a @ power for c, f, power in zip(cosine, sine, powers))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("arrays", "like"), [(_construct.NUMPY, np.asarray), (rotations.Arrays(), torch.from_numpy)])
def test_of_large_products_half_is_computed(arrays: _construct.Arrays, like: Any) -> None:
    """By strips, the last of another height than the others."""
    a = skew(arrays.striped + 3, 1.0, np.float64)
    for b, sign in ((a, 1), (a @ a, -1)):
        found = arrays.mirrored(like(a), like(b), "product", sign)
        np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("spread", [0.1, 0.35, 1.0])
def test_large_rotations_and_parts_of_a_batch_are_those_of_numpy(spread: float) -> None:
    for count, size in ((1, rotations.Arrays.striped + 3), (70, 64)):
        found = draw_(torch.empty(count, size, size), f"rotation {spread}", seed=2, name="w", batch_dims=1)
        expected = draw(f"rotation {spread}", size, size, batch=count, seed=2, name="w", dtype=np.float32)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    part = rotations._BYTES["cpu"] // (64 * 64 * 4)
    assert part < 70


@pytest.mark.parametrize("norm_is_exceeded_by", [1.5, 4])
def test_where_the_bound_is_exceeded_digits_are_lost_and_no_more(norm_is_exceeded_by: float) -> None:
    a = skew(9, 0.6 * norm_is_exceeded_by, np.float32)
    exact = expm(a.astype(np.float64)) - np.eye(9)
    chebyshev = math.cosh(7 * math.acosh(norm_is_exceeded_by))  # T_7, as what a polynomial of degree 6 lacks grows
    assert abs(_construct.expm1_skew(a, 0.6, 1e-7) - exact).max() < 1e-7 * chebyshev


def test_no_rotation_comes_near_its_bound() -> None:
    """20,000 small matrices, whose norms vary most, where one of 10⁷ or more exceeds the mean by 6/p^⅔."""
    for p in (2, 3, 8):
        a = np.random.default_rng(p).standard_normal((20_000, p - 1, p - 1)) / math.sqrt(2 * p)
        assert np.linalg.norm(a - a.mT, 2, (1, 2)).max() < 2 + 6 * p ** (-2 / 3)


def test_products_are_in_float32_whatever_the_settings() -> None:
    """torch.set_float32_matmul_precision and autocast are for training, not for the weights it starts from."""
    before = torch.get_float32_matmul_precision()
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func.__name__ in ("matmul", "__matmul__", "baddbmm_"):
                seen.append(torch.backends.mkldnn.matmul.fp32_precision)  # type: ignore[attr-defined]
            return func(*args, **(kwargs or {}))

    try:
        torch.set_float32_matmul_precision("medium")
        plain = draw_(torch.empty(64, 64), "rotation 0.3", seed=0)
        with Watch(), torch.autocast("cpu", dtype=torch.bfloat16):
            drawn = draw_(torch.empty(64, 64), "rotation 0.3", seed=0)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {"ieee"}
    assert torch.equal(drawn, plain)
    assert check(drawn).orthogonality_error < 5e-7
