"""Bad input is told in one sentence, with its value and a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import one_sentence

import stiefel_init.torch as sit
from stiefel_init import StiefelError, cholesky_factor, complement, draw, sample
from stiefel_init.core import validate as _validate
from stiefel_init.core.validate import Method


@pytest.mark.parametrize("call", [sample, sit.sample], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((-1, 3), {}, ["m=-1", "negative"]),
        ((3, -2), {}, ["n=-2", "negative"]),
        ((2.0, 3), {}, ["m=2.0", "int"]),
        ((2, "3"), {}, ["n='3'", "int"]),
        ((2, None), {}, ["n=None"]),
        ((2, 3), {"batch": (2, -1)}, ["batch[1]=-1"]),
        ((2, 3), {"batch": 1.5}, ["batch=1.5"]),
        ((2, 3), {"method": "qr"}, ["method='qr'", "householder", "algorithm1", "algorithm2"]),
        ((0, 3), {"method": "qr"}, ["method='qr'"]),
    ],
)
def test_sample(call: Callable[..., Any], arguments: tuple, options: dict, words: list[str]) -> None:
    with pytest.raises(StiefelError) as error:
        call(*arguments, **options)
    assert all(word in one_sentence(error) for word in words)


@pytest.mark.parametrize("dtype", [np.int32, np.complex128, "float8", np.longdouble, object, "nonsense"])
def test_numpy_dtypes(dtype: Any) -> None:
    with pytest.raises(StiefelError) as error:
        sample(2, 3, dtype=dtype)
    assert "float16, float32 or float64" in one_sentence(error)


@pytest.mark.parametrize("seed", [-1, 1.5, "zero"])
@pytest.mark.parametrize("method", ["householder", "algorithm2"])
def test_numpy_seeds(seed: Any, method: Method) -> None:
    with pytest.raises(StiefelError) as error:
        sample(2, 3, seed=seed, method=method)
    assert f"seed={seed!r}" in one_sentence(error)


def test_complement_and_cholesky_factor() -> None:
    for W, words in (
        (np.ones(3), "shape (3,)"),
        (np.ones((2, 2), int), "int64"),
        (sample(5, 3, seed=0), "pass W.T"),
        (np.full((2, 3), np.nan), "finite"),
    ):
        with pytest.raises(StiefelError) as error:
            complement(W)
        assert words in one_sentence(error)
    sizes: tuple[Any, ...] = (-1, 1.5)
    for m in sizes:
        with pytest.raises(StiefelError) as error:
            cholesky_factor(m)
        assert f"m={m}" in one_sentence(error)


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        (math.nan, {}, "x=nan is not a finite number; give a finite float."),
        ("1", {}, "x='1' is not a finite number"),
        (b"1", {}, "x=b'1' is not"),
        (True, {}, "x=True is not"),
        (None, {}, "x=None is not"),
        ([1.0], {}, "x=[1.0] is not"),
        (-math.inf, {"at_least": 0}, "x=-inf is not a finite number ≥ 0;"),
        (-0.5, {"at_least": 0, "hint": "half a step up"}, "x=-0.5 is not a finite number ≥ 0; half a step up."),
        (0, {"above": 0}, "x=0 is not a finite number > 0;"),
    ],
)
def test_numbers_out_of_their_range_are_named_with_it(value: Any, options: dict, words: str) -> None:
    with pytest.raises(StiefelError) as error:
        _validate.number("x", value, **options)
    assert words in one_sentence(error)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0)])
def test_numbers_of_any_kind_come_back_as_floats(value: Any) -> None:
    found = _validate.number("x", value, at_least=2)
    assert (type(found), found) == (float, 2.0)


@pytest.mark.parametrize("seed", [-1, 1.5, "zero"])
def test_seeds_of_a_scheme_that_needs_none(seed: Any) -> None:
    with pytest.raises(StiefelError) as error:
        draw("lee", 2, 3, seed=seed)
    assert f"seed={seed!r}" in one_sentence(error)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("glorot", 2, 3), {}, ["scheme='glorot'", "'stiefel'", "'rotation'"]),
        (("he", -1, 3), {}, ["m=-1", "negative"]),
        (("he", 2, 3.0), {}, ["n=3.0", "int"]),
        (("he", 2, 3), {"batch": (2, -1)}, ["batch[1]=-1"]),
        (("he", 2, 3), {"dtype": np.int32}, ["float16, float32 or float64"]),
        (("glorot", 0, 0), {}, ["scheme='glorot'"]),
    ],
)
def test_draw(arguments: tuple, options: dict, words: list[str]) -> None:
    with pytest.raises(StiefelError) as error:
        draw(*arguments, **options)
    assert all(word in one_sentence(error) for word in words)
