"""The column that needs an optimizer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from diagnosed import IMAGES, LABELS, mlp
from torch import nn

from stiefel_init import StiefelError
from stiefel_init.torch import diagnose


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 3),
        (lambda p: torch.optim.Adam(p, lr=1e-3), 0),
        (lambda p: torch.optim.AdamW(p, lr=1e-2), 3),
    ],
)
def test_the_update_is_that_of_the_next_step(make: Any, steps: int) -> None:
    model = mlp(3, "he")
    model[2].requires_grad_(False)
    optimizer = make(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
        optimizer.step()

    for _ in range(steps):
        step()
    optimizer.zero_grad()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    rows = diagnose(model, IMAGES, LABELS, optimizer=optimizer).layers
    after = (model.state_dict(), optimizer.state_dict())
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [row.update is None for row in rows] == [False, True, False, False]
    old = [model[at].weight.detach().clone() for at in (0, 4, 6)]
    step()
    for row, weight, at in zip((rows[0], rows[2], rows[3]), old, (0, 4, 6)):
        moved = (model[at].weight.detach() - weight).norm() / weight.norm()
        assert row.update == pytest.approx(float(moved), rel=1e-4)


def test_gradients_are_the_same_with_an_optimizer() -> None:
    model = mlp(3, "he")
    optimizer = torch.optim.Adam(model.parameters())
    plain, told = diagnose(model, IMAGES, LABELS), diagnose(model, IMAGES, LABELS, optimizer=optimizer)
    assert [row.gradient for row in plain.layers] == [row.gradient for row in told.layers]
    assert all(row.update is None for row in plain.layers)
    assert "update" in str(told)
    assert "update" not in str(plain)


def test_an_optimizer_needs_targets() -> None:
    model = mlp(2)
    with pytest.raises(StiefelError, match="optimizer was given without targets"):
        diagnose(model, IMAGES, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
