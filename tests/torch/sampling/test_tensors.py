"""Tensors, options and generators that PyTorch's samplers refuse: in one sentence, with nothing changed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FILLERS, PAPER_SCHEMES, assert_refused

import stiefel_init.torch as sit


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
    assert_refused(lambda: sit.draw_(tensor, "he"), [words])
    if isinstance(tensor, torch.Tensor):
        assert torch.equal(tensor.to_dense(), before.to_dense())


@pytest.mark.parametrize("name", PAPER_SCHEMES)
def test_every_function_looks_at_its_tensor_first(name: str) -> None:
    tensor = torch.ones(3, 1).expand(3, 4)
    assert_refused(lambda: FILLERS[f"{name}_"](tensor), ["share memory"])
    assert (tensor == 1).all()


OPTIONS: list[tuple[Any, dict[str, Any], str]] = [
    ("stiefel_", {"gain": math.nan}, "gain=nan"),
    ("stiefel_", {"gain": math.inf}, "gain=inf"),
    ("stiefel_", {"gain": "two"}, "gain='two'"),
    ("stiefel_", {"method": "QR"}, "method='QR'"),
    ("stiefel_", {"batch_dims": 2}, "batch_dims=2"),
    ("stiefel_", {"batch_dims": 0.5}, "batch_dims=0.5"),
    ("orthogonal_", {"gain": -math.inf}, "gain=-inf"),
    ("lee_", {"variant": "sum"}, "'product', 'direct'"),
    ("lee_", {"epsilon": 0}, "epsilon=0"),
    ("lee_", {"epsilon": math.nan}, "epsilon=nan"),
    ("random_", {"std": -1}, "std=-1"),
    ("random_", {"std": math.inf}, "std=inf"),
    *(
        (scheme, options, words)
        for scheme in ("stiefel", "lee")  # one that draws, and one that needs no numbers
        for options, words in (
            ({"seed": -1}, "seed=-1"),
            ({"seed": 1.5}, "seed=1.5"),
            ({"seed": "zero"}, "seed='zero'"),
            ({"batch_dims": 1}, "give at most 0"),
            ({"batch_dims": -1}, "batch_dims=-1 is negative"),
            ({"generator": SimpleNamespace(device=torch.device("cuda"))}, "generator is on cuda, the tensor on cpu"),
        )
    ),
    *((scheme, {}, "scheme=") for scheme in ("glorot", "", "rotation wide", "he 2", None, 3)),
    ("orthogonal nan", {}, "gain=nan"),
]


@pytest.mark.parametrize(("name", "options", "words"), OPTIONS, ids=lambda value: str(value)[:40])
def test_options_that_are_refused_leave_the_tensor_as_it_was(name: Any, options: dict[str, Any], words: str) -> None:
    tensor = torch.full((3, 4), 7.0)
    fill = FILLERS.get(name) or (lambda tensor, **given: sit.draw_(tensor, name, **given))
    assert_refused(lambda: fill(tensor, **options), [words])
    assert (tensor == 7).all()
