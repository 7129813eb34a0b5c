"""What the optimizers, `project` and `aligned` refuse: one sentence each, and nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_refused, same, values
from torch import Tensor, nn

from stiefel_init.torch.optim import StiefelAdam, StiefelMuon, StiefelSGD, aligned, project, project_


def eye(k: int = 3) -> nn.Parameter:
    return nn.Parameter(torch.eye(k))


def on(*tensors: Any, **options: Any) -> list[dict[str, Any]]:
    return [{"params": list(tensors), "on_set": True, **options}]


TWICE = eye()
CASES: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: StiefelAdam([]), ["empty"]),
    (lambda: StiefelAdam([3]), ["int", "tensors"]),
    (lambda: StiefelAdam([[eye()], {"params": [eye()]}]), ["list"]),
    (lambda: StiefelAdam([{"lr": 1.0}]), ["dict", "params"]),
    (lambda: StiefelAdam([eye()], lr=-1), ["lr=-1", "≥ 0"]),
    (lambda: StiefelAdam([eye()], lr=float("nan")), ["lr=nan"]),
    (lambda: StiefelAdam([{"params": [eye()], "lr": -2.0}]), ["lr=-2"]),
    (lambda: StiefelAdam([eye()], betas=(0.9, 1.0)), ["betas=1.0", "[0, 1)"]),
    (lambda: StiefelAdam([eye()], eps=-1e-8), ["eps"]),
    (lambda: StiefelAdam([eye()], weight_decay=-1), ["weight_decay=-1"]),
    (lambda: StiefelSGD([eye()], momentum=1.5), ["momentum=1.5"]),
    (lambda: StiefelMuon([eye()], free_lr=-1), ["free_lr=-1"]),
    (lambda: StiefelAdam([TWICE, TWICE]), ["(3, 3)", "twice"]),
    (lambda: StiefelAdam([*on(TWICE), {"params": [TWICE], "on_set": False}]), ["(3, 3)", "twice"]),
    (lambda: StiefelAdam([{"params": [eye()], "on_set": "yes"}]), ["on_set='yes'"]),
    (lambda: StiefelAdam([nn.Parameter(torch.eye(3, dtype=torch.complex64))]), ["complex64", "real"]),
    (lambda: StiefelAdam([eye() * 2]), ["(3, 3)", "computed"]),
    (lambda: StiefelAdam(on(nn.Parameter(torch.ones(3)))), ["(3,)", "on_set=False"]),
    (lambda: StiefelAdam(on(eye(), batch_dims=1)), ["batch_dims=1"]),
    (lambda: StiefelAdam(on(nn.Parameter(torch.empty(3, 3, device="meta")))), ["meta", "materialize"]),
    (lambda: StiefelAdam(on(nn.Parameter(torch.zeros(3, 3)))), ["3×3", "rank below 2"]),
    (lambda: StiefelAdam(on(nn.Parameter(torch.full((3, 3), torch.nan)))), ["NaN"]),
    (lambda: StiefelAdam(on(nn.Parameter(torch.diag(torch.tensor([1.0, 1.0, 0, 0]))))), ["4×4", "rank below 3"]),
    (lambda: project(torch.ones(3)), ["(3,)"]),
    (lambda: project(torch.eye(3).int()), ["int32"]),
    (lambda: project(torch.ones(3, 4)), ["3×4", "rank below 2"]),
    (lambda: project(torch.empty(3, 3, device="meta")), ["meta"]),
    (lambda: project(torch.eye(3), batch_dims=1), ["batch_dims=1"]),
    (lambda: aligned(nn.Linear(3, 3), "kernel"), ["Linear", "'kernel'"]),
    (lambda: aligned(nn.Linear(3, 3), "bias"), ["(3,)"]),
]


@pytest.mark.parametrize(("call", "words"), CASES, ids=[" ".join(words) for _, words in CASES])
def test_bad_input_is_refused_in_one_sentence(call: Callable[[], Any], words: list[str]) -> None:
    assert_refused(call, words)


def test_a_refusal_leaves_everything_as_it_was() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    nn.init.zeros_(model[1].weight)
    before = values(model)
    assert_refused(lambda: StiefelAdam(on(model[0].weight, model[1].weight)), ["3×3"])
    optimizer = StiefelAdam(model[0])
    assert_refused(lambda: optimizer.add_param_group({"params": [model[1].weight], "on_set": True}), ["3×3"])
    assert_refused(lambda: optimizer.add_param_group({"params": [model[0].weight], "on_set": True}), ["twice"])
    assert_refused(lambda: aligned(model[1]), ["weight", "3×3"])
    assert_refused(lambda: project_(model[1].weight), ["3×3"])
    assert len(optimizer.param_groups) == 1
    assert same(values(model), before)


@pytest.mark.parametrize(("factor", "words"), [(0.0, "rank below 3"), (math.nan, "NaN"), (math.inf, "NaN or inf")])
def test_weights_ruined_between_steps_are_refused_before_any_update(factor: float, words: str) -> None:
    ruined, other, bias = eye(4), eye(4), nn.Parameter(torch.zeros(4))
    optimizer = StiefelAdam([ruined, other, bias])
    for parameter in (ruined, other, bias):
        parameter.grad = torch.cos(torch.arange(parameter.numel()).float()).view_as(parameter)
    optimizer.step()
    with torch.no_grad():
        ruined.mul_(factor)
    before = [parameter.detach().clone() for parameter in (ruined, other, bias)]
    assert_refused(optimizer.step, ["(4, 4)", "changed since the last step", words])
    for parameter, value in zip((ruined, other, bias), before):
        torch.testing.assert_close(parameter.detach(), value, equal_nan=True, atol=0, rtol=0)
    with torch.no_grad():
        ruined.copy_(torch.eye(4))
    optimizer.step()
    assert not torch.equal(ruined, torch.eye(4))


def test_a_sparse_gradient_is_refused_before_any_update() -> None:
    model = nn.ModuleDict({"linear": nn.Linear(3, 3), "table": nn.Embedding(4, 3, sparse=True)})
    nn.init.eye_(model["linear"].weight)  # type: ignore[arg-type]
    optimizer = StiefelAdam(model)
    model["linear"](model["table"](torch.tensor([1]))).sum().backward()
    before = values(model)
    assert_refused(optimizer.step, ["(4, 3)", "sparse_coo", "sparse=False"])
    assert same(values(model), before)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1), (1, 4), (4, 1)], ids=str)
def test_shapes_with_nothing_to_train_do_not_move(shape: tuple[int, int]) -> None:
    w = nn.Parameter(torch.full(shape, (shape[0] * shape[1] or 1) ** -0.5))
    for make in (StiefelAdam, StiefelSGD, StiefelMuon):
        optimizer: Any = make(on(w), lr=0.1)
        before: Tensor = w.detach().clone()
        w.grad = torch.randn(shape)
        optimizer.step()
        torch.testing.assert_close(w.detach(), before, atol=1e-7, rtol=0)
