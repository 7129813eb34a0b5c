"""Bad input is told in one sentence, with its value and a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_refused

import stiefel_init.torch as sit
from stiefel_init import check, cholesky_factor, complement, draw, sample
from stiefel_init.core import validate

SIZES: list[tuple[tuple, dict[str, Any], list[str]]] = [
    ((-1, 3), {}, ["m=-1", "negative"]),
    ((3, -2), {}, ["n=-2", "negative"]),
    ((2.0, 3), {}, ["m=2.0", "int"]),
    ((2, "3"), {}, ["n='3'", "int"]),
    ((2, None), {}, ["n=None"]),
    ((2, 3), {"batch": (2, -1)}, ["batch[1]=-1"]),
    ((2, 3), {"batch": 1.5}, ["batch=1.5"]),
]
METHODS: list[tuple[tuple, dict[str, Any], list[str]]] = [
    ((2, 3), {"method": "qr"}, ["method='qr'", "householder", "algorithm1", "algorithm2"]),
    ((0, 3), {"method": "qr"}, ["method='qr'"]),
]
BAD_SEEDS: tuple[Any, ...] = (-1, 1.5, "zero")
BAD_TOLERANCES: tuple[Any, ...] = (-1, math.nan, math.inf, "small")
CASES: list[tuple[Callable[[], Any], list[str]]] = [
    *(
        (partial(call, *arguments, **options), words)
        for call in (sample, sit.sample)
        for arguments, options, words in (*SIZES, *METHODS)
    ),
    *((partial(draw, "he", *arguments, **options), words) for arguments, options, words in SIZES),
    *((partial(draw, "glorot", *shape), ["scheme='glorot'", "'stiefel'", "'rotation'"]) for shape in ((2, 3), (0, 0))),
    *(
        (partial(call, 2, 3, dtype=dtype), ["float16, float32 or float64"])
        for call in (sample, partial(draw, "he"))
        for dtype in (np.int32, np.complex128, "float8", np.longdouble, object, "nonsense")
    ),
    *(
        (partial(sit.sample, 2, 3, dtype=dtype), ["float64, float32, bfloat16, float16"])
        for dtype in (torch.int64, torch.complex64, torch.bool, torch.float8_e4m3fn)
    ),
    *(
        (partial(call, 2, 3, seed=seed), [f"seed={seed!r}"])
        for call in (sample, partial(sample, method="algorithm2"), partial(draw, "lee"))  # the last needs none
        for seed in BAD_SEEDS
    ),
    (partial(complement, np.ones(3)), ["shape (3,)"]),
    (partial(complement, np.ones((2, 2), int)), ["int64"]),
    (partial(complement, sample(5, 3, seed=0)), ["pass W.T"]),
    (partial(complement, np.full((2, 3), np.nan)), ["finite"]),
    (partial(cholesky_factor, -1), ["m=-1"]),
    (partial(cholesky_factor, 1.5), ["m=1.5"]),  # type: ignore[arg-type]
    (partial(check, np.ones(3)), ["shape (3,)"]),
    (partial(check, np.float64(1)), ["shape ()"]),
    (partial(check, np.eye(3, dtype=int)), ["int64"]),
    (partial(check, np.eye(3, dtype=complex)), ["complex128"]),
    (partial(check, torch.eye(3, dtype=torch.int32)), ["torch.int32"]),
    (partial(check, torch.empty(3, 3, device="meta")), ["meta"]),
    (partial(check, "abc"), ["dtype"]),
    *((partial(check, np.eye(2), tol=tol), ["tol="]) for tol in BAD_TOLERANCES),
    *((partial(validate.number, "x", x), [f"x={x!r} is not a finite number"]) for x in ("1", b"1", True, None, [1.0])),
    (partial(validate.number, "x", math.nan), ["x=nan is not a finite number; give a finite float."]),
    (partial(validate.number, "x", -math.inf, at_least=0), ["x=-inf is not a finite number ≥ 0;"]),
    (partial(validate.number, "x", -0.5, at_least=0, hint="half a step up"), ["x=-0.5", "≥ 0; half a step up."]),
    (partial(validate.number, "x", 0, above=0), ["x=0 is not a finite number > 0;"]),
    *((partial(validate.decay, "beta", b), [f"beta={b!r} is not in [0, 1)"]) for b in (-0.1, 1, 1.5)),
]


@pytest.mark.parametrize(("call", "words"), CASES, ids=[" ".join(words) for _, words in CASES])
def test_bad_input_is_refused_in_one_sentence(call: Callable[[], Any], words: list[str]) -> None:
    assert_refused(call, words)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0)])
def test_numbers_of_any_kind_come_back_as_floats(value: Any) -> None:
    number = validate.number("x", value, at_least=2)
    assert (type(number), number) == (float, 2.0)
