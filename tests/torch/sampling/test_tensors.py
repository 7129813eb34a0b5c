"""Tensors, dtypes, options and generators that PyTorch's samplers refuse: in one sentence, with nothing changed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FILLERS, PAPER_SCHEMES, one_sentence

import stiefel_init.torch as sit
from stiefel_init import StiefelError


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bool, torch.float8_e4m3fn])
def test_torch_dtypes(dtype: torch.dtype) -> None:
    with pytest.raises(StiefelError) as error:
        sit.sample(2, 3, dtype=dtype)
    assert "float64, float32, bfloat16, float16" in one_sentence(error)


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
def test_tensors_that_cannot_be_filled_are_left_as_they_were(tensor: Any, words: str) -> None:
    before = tensor.clone() if isinstance(tensor, torch.Tensor) else tensor
    with pytest.raises(StiefelError) as error:
        sit.draw_(tensor, "he")
    assert words in one_sentence(error)
    if isinstance(tensor, torch.Tensor):
        assert torch.equal(tensor.to_dense(), before.to_dense())


@pytest.mark.parametrize("name", PAPER_SCHEMES)
def test_every_function_looks_at_its_tensor_first(name: str) -> None:
    tensor = torch.ones(3, 1).expand(3, 4)
    with pytest.raises(StiefelError) as error:
        FILLERS[f"{name}_"](tensor)
    assert "share memory" in one_sentence(error)
    assert (tensor == 1).all()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("stiefel_", {"gain": math.nan}, "gain=nan"),
        ("stiefel_", {"gain": math.inf}, "gain=inf"),
        ("stiefel_", {"gain": "two"}, "gain='two'"),
        ("stiefel_", {"method": "QR"}, "method='QR'"),
        ("orthogonal_", {"gain": -math.inf}, "gain=-inf"),
        ("lee_", {"variant": "sum"}, "'product', 'direct'"),
        ("lee_", {"epsilon": 0}, "epsilon=0"),
        ("lee_", {"epsilon": math.nan}, "epsilon=nan"),
        ("random_", {"std": -1}, "std=-1"),
        ("random_", {"std": math.inf}, "std=inf"),
    ],
)
def test_options(name: str, options: dict, words: str) -> None:
    tensor = torch.full((3, 4), 7.0)
    with pytest.raises(StiefelError) as error:
        FILLERS[name](tensor, **options)
    assert words in one_sentence(error)
    assert (tensor == 7).all()


@pytest.mark.parametrize("scheme", ["stiefel", "lee"])  # one that draws, and one that needs no numbers
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"seed": "zero"}, "seed='zero'"),
        ({"batch_dims": 1}, "batch_dims=1"),
        ({"batch_dims": -1}, "batch_dims=-1"),
        ({"generator": SimpleNamespace(device=torch.device("cuda"))}, "generator is on cuda, the tensor on cpu"),
    ],
    ids=["negative seed", "broken seed", "word as seed", "no dimension left", "negative batch", "another device"],
)
def test_options_that_every_scheme_shares(scheme: str, options: dict, words: str) -> None:
    tensor = torch.full((3, 4), 7.0)
    with pytest.raises(StiefelError) as error:
        sit.draw_(tensor, scheme, **options)
    assert words in one_sentence(error)
    assert (tensor == 7).all()


@pytest.mark.parametrize("scheme", ["glorot", "", "rotation wide", "he 2", "orthogonal nan", None, 3])
def test_schemes_that_are_none(scheme: Any) -> None:
    tensor = torch.full((3, 4), 7.0)
    with pytest.raises(StiefelError) as error:
        sit.draw_(tensor, scheme)
    one_sentence(error)
    assert (tensor == 7).all()
