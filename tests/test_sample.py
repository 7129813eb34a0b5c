"""`sample` and `draw` with NumPy: members of the set, to rounding, and the seeds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ALL_SCHEMES, DRAWN_SCHEMES, METHODS, SHAPES, Sampler, plain_member
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel_init.torch
from stiefel_init import check, draw, sample
from stiefel_init.core import stream as _stream
from stiefel_init.core.sample import MEMBERS, Member
from stiefel_init.core.validate import Method

NUMPY_DTYPES = (np.float64, np.float32, np.float16)
EVERY_SCHEME = sorted({*ALL_SCHEMES, *DRAWN_SCHEMES})
FIXED = ("lee", "lee direct", "identity", "idinit", "zero", "sinusoidal")  # one matrix for each shape


@pytest.mark.parametrize("method", METHODS)
def test_numpy_samples_are_members(method: Method) -> None:
    for shape, dtype in itertools.product(SHAPES, NUMPY_DTYPES):
        W = sample(*shape, batch=(2, 1), method=method, seed=0, dtype=dtype)
        assert (W.shape, W.dtype) == ((2, 1, *shape), np.dtype(dtype))
        assert W.flags.c_contiguous
        assert check(W).ok, check(W)


def test_every_sampler_draws_members(sampler: Sampler) -> None:
    for shape in ((1, 1), (1, 4), (4, 1), (2, 2), (5, 5), (3, 8), (8, 3)):
        assert check(sampler(20, *shape, 0)).ok, shape


@pytest.mark.parametrize("shape", [(64, 64), (64, 784), (784, 64), (300, 300), (512, 512), (400, 1000)], ids=str)
def test_errors_stay_at_rounding(shape: tuple[int, int]) -> None:
    root = np.sqrt(max(shape))
    W: Any
    for W in (sample(*shape, seed=1), stiefel_init.torch.sample(*shape, dtype=torch.float64)):
        result = check(W)
        assert max(result.orthogonality_error, result.alignment_error) <= 1e-15 * root
    for W in (sample(*shape, seed=1, dtype=np.float32), stiefel_init.torch.sample(*shape, dtype=torch.float32)):
        result = check(W)
        assert result.orthogonality_error <= 2e-6
        assert result.alignment_error <= 5e-7


@given(
    m=st.integers(0, 40),
    n=st.integers(0, 40),
    seed=st.integers(0, 2**70),
    method=st.sampled_from(METHODS),
    dtype=st.sampled_from(NUMPY_DTYPES),
)
@settings(max_examples=150, deadline=None)
def test_any_shape_seed_method_and_dtype(m: int, n: int, seed: int, method: Method, dtype: type) -> None:
    W = sample(m, n, seed=seed, method=method, dtype=dtype)
    assert check(W).ok, check(W)
    np.testing.assert_array_equal(W, sample(m, n, seed=seed, method=method, dtype=dtype))


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (5, 9), (9, 5), (70, 70)], ids=str)
@pytest.mark.parametrize("aligned", [True, False])
def test_numpy_gives_the_plain_result_of_its_stream(shape: tuple[int, int], aligned: bool) -> None:
    p, q = min(shape), max(shape)
    W = draw("stiefel" if aligned else "orthogonal", *shape, batch=2, seed=3, name="w")
    for index in range(2):
        x = _stream.normals(_stream.fold(_stream.key(3, "w"), index), (0, p), (0, q), np.float64)
        expected = plain_member(x, aligned=aligned)
        np.testing.assert_allclose(W[index], expected if shape[0] <= shape[1] else expected.T, atol=1e-13)


def test_single_members_of_the_degenerate_sets() -> None:
    np.testing.assert_allclose(sample(1, 7, seed=0), np.full((1, 7), 7**-0.5))
    np.testing.assert_allclose(sample(7, 1, seed=0), np.full((7, 1), 7**-0.5))
    assert sample(0, 4).shape == (0, 4)


@pytest.mark.parametrize("scheme", EVERY_SCHEME)
def test_draw_gives_finite_arrays_of_the_shape_and_dtype_asked_for(scheme: str) -> None:
    cases = [*((shape, np.float64) for shape in SHAPES), ((6, 11), np.float32), ((6, 11), np.float16)]
    for (shape, dtype), seed, batch in itertools.product(cases, (None, 0, np.random.default_rng(0)), ((2, 1), ())):
        W = draw(scheme, *shape, batch=batch, seed=seed, dtype=dtype)
        assert (W.shape, W.dtype) == ((*batch, *shape), np.dtype(dtype))
        assert W.flags.c_contiguous
        assert np.isfinite(W).all(), (shape, dtype)
        W += 1  # an array of one's own, not to be had from elsewhere


@pytest.mark.parametrize("scheme", EVERY_SCHEME)
def test_the_seed_the_name_and_the_place_in_the_batch_decide(scheme: str) -> None:
    fixed = scheme in FIXED
    first = draw(scheme, 6, 12, batch=(2, 2), seed=1, name="a")
    np.testing.assert_array_equal(draw(scheme, 6, 12, batch=4, seed=1, name="a"), first.reshape(4, 6, 12))
    np.testing.assert_array_equal(draw(scheme, 6, 12, seed=1, name="a"), first[0, 0])
    assert len(np.unique(first.reshape(4, -1), axis=0)) == (1 if fixed else 4)
    for seed, name in ((2, "a"), (1, "b"), (10**30, "a")):
        assert np.array_equal(draw(scheme, 6, 12, batch=(2, 2), seed=seed, name=name), first) == fixed


@pytest.mark.parametrize("scheme", EVERY_SCHEME)
def test_float32_is_float64_to_rounding(scheme: str) -> None:
    for shape in ((1, 1), (6, 12), (12, 6), (7, 5), (100, 100)):
        single, double = (draw(scheme, *shape, seed=2, dtype=dtype) for dtype in (np.float32, np.float64))
        np.testing.assert_allclose(single, double, rtol=0, atol=5e-6)


@pytest.mark.parametrize("scheme", EVERY_SCHEME)
def test_a_generator_is_drawn_from_and_fresh_entropy_is_fresh(scheme: str) -> None:
    fixed = scheme in FIXED
    rng, again = np.random.default_rng(5), np.random.default_rng(5)
    first = draw(scheme, 6, 12, seed=rng)
    np.testing.assert_array_equal(first, draw(scheme, 6, 12, seed=again))
    assert np.array_equal(first, draw(scheme, 6, 12, seed=rng)) == fixed
    assert np.array_equal(draw(scheme, 6, 12), draw(scheme, 6, 12)) == fixed


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_is_the_scheme_of_that_name(member: Member) -> None:
    scheme = {"uniform": "stiefel", "rotation": "rotation 0.3"}.get(member, member)
    for shape in ((1, 1), (4, 4), (3, 12), (3, 5)):
        expected = draw(scheme, *shape, batch=3, seed=4, name="w")
        np.testing.assert_array_equal(sample(*shape, batch=3, member=member, spread=0.3, seed=4, name="w"), expected)
