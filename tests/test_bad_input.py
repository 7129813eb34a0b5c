"""Bad input is told in one sentence, with its value and a remedy, and changes nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import stiefel_init.torch as sit
from stiefel_init import StiefelError, cholesky_factor, complement, sample
from stiefel_init.torch import SCHEMES


def one_sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.mark.parametrize("draw", [sample, sit.sample])
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
def test_sample(draw, arguments: tuple, options: dict, words: list[str]) -> None:
    with pytest.raises(StiefelError) as error:
        draw(*arguments, **options)
    assert all(word in one_sentence(error) for word in words)


@pytest.mark.parametrize("dtype", [np.int32, np.complex128, "float8", np.longdouble, object, "nonsense"])
def test_numpy_dtypes(dtype) -> None:
    with pytest.raises(StiefelError) as error:
        sample(2, 3, dtype=dtype)
    assert "float16, float32 or float64" in one_sentence(error)


@pytest.mark.parametrize("seed", [-1, 1.5, "zero"])
@pytest.mark.parametrize("method", ["householder", "algorithm2"])
def test_numpy_seeds(seed, method: str) -> None:
    with pytest.raises(StiefelError) as error:
        sample(2, 3, seed=seed, method=method)
    assert f"seed={seed!r}" in one_sentence(error)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bool, torch.float8_e4m3fn])
def test_torch_dtypes(dtype: torch.dtype) -> None:
    with pytest.raises(StiefelError) as error:
        sit.sample(2, 3, dtype=dtype)
    assert "float64, float32, bfloat16, float16" in one_sentence(error)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.tensor(1.0), "shape ()"),
        (torch.ones(3), "shape (3,)"),
        (torch.ones(3, 3, dtype=torch.int64), "torch.int64"),
        (torch.ones(3, 3, dtype=torch.complex64), "torch.complex64"),
        (torch.ones(3, 1).expand(3, 4), "share memory"),
        (torch.ones(20).as_strided((4, 4), (2, 1)), "share memory"),
        (torch.eye(3).to_sparse(), "sparse"),
        (np.ones((3, 3)), "ndarray"),
        ([[1.0]], "list"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_tensors_that_cannot_be_filled_are_left_as_they_were(name: str, tensor, words: str) -> None:
    before = tensor.clone() if isinstance(tensor, torch.Tensor) else tensor
    with pytest.raises(StiefelError) as error:
        SCHEMES[name](tensor)
    assert words in one_sentence(error)
    if isinstance(tensor, torch.Tensor):
        assert torch.equal(tensor.to_dense(), before.to_dense())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("stiefel", {"gain": math.nan}, "gain=nan"),
        ("stiefel", {"gain": math.inf}, "gain=inf"),
        ("stiefel", {"gain": "two"}, "gain='two'"),
        ("stiefel", {"method": "QR"}, "method='QR'"),
        ("orthogonal", {"gain": -math.inf}, "gain=-inf"),
        ("lee", {"variant": "sum"}, "'product', 'direct'"),
        ("lee", {"epsilon": 0}, "epsilon=0"),
        ("lee", {"epsilon": math.nan}, "epsilon=nan"),
        ("random", {"std": -1}, "std=-1"),
        ("random", {"std": math.inf}, "std=inf"),
    ],
)
def test_options(name: str, options: dict, words: str) -> None:
    tensor = torch.full((3, 4), 7.0)
    with pytest.raises(StiefelError) as error:
        SCHEMES[name](tensor, **options)
    assert words in one_sentence(error)
    assert (tensor == 7).all()


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
    for m in (-1, 1.5):
        with pytest.raises(StiefelError) as error:
            cholesky_factor(m)
        assert f"m={m}" in one_sentence(error)
