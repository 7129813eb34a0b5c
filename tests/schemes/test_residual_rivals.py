"""SkipInit and embeddings: each has the property that defines it, however a model is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_refused, assert_refused_unchanged
from torch import Tensor, nn

from stiefel_init.lab import Cell
from stiefel_init.torch import initialize_


def test_an_embedding_that_is_frozen_or_skipped_stays() -> None:
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 5))
    model[0].requires_grad_(False)
    before = model.get_parameter("0.weight").clone()
    assert "frozen" in initialize_(model, "gpt-2")["0.weight"].reason
    assert torch.equal(before, model.get_parameter("0.weight"))
    model[0].requires_grad_(True)
    initialize_(model, "gpt-2", skip="0.weight")
    assert torch.equal(before, model.get_parameter("0.weight"))


class Residual(nn.Module):
    """x + gain · norm(outer(relu(inner(x)))), with what of it there is."""

    def __init__(self, gain: tuple[int, ...] | None = None, norm: bool = False, shortcut: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.shortcut = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) if shortcut else nn.Identity()
        self.gain = None if gain is None else nn.Parameter(torch.ones(gain))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.outer(torch.relu(self.inner(x))))
        return self.shortcut(x) + (y if self.gain is None else self.gain * y)


class OneVector(nn.Module):
    """ReZero with the gains of all branches in one parameter, or their sigmoids."""

    def __init__(self, gate: Callable[[Tensor], Tensor] = lambda gain: gain) -> None:
        super().__init__()
        self.inner, self.outer = (nn.ModuleList(nn.Linear(8, 8) for _ in range(3)) for _ in range(2))
        self.gains, self.gate = nn.Parameter(torch.ones(3)), gate

    def forward(self, x: Tensor) -> Tensor:
        for place, (inner, outer) in enumerate(zip(self.inner, self.outer)):
            x = x + outer(torch.relu(inner(x))) * self.gate(self.gains[place])
        return x


def residual(*blocks: nn.Module) -> Any:
    return nn.Sequential(nn.Linear(8, 8), *blocks, nn.Linear(8, 3))


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("build", "zero", "branches"),
    [
        (lambda: [Residual(), Residual()], ("outer.weight",), 2),
        (lambda: [Residual(norm=True), Residual(norm=True)], ("norm.weight",), 2),
        (lambda: [Residual(norm=True, shortcut=True)], ("1.norm.weight",), 1),
        (lambda: [Residual(()), Residual(())], ("gain",), 2),
        (lambda: [Residual((8,), norm=True)], ("gain",), 1),
        (lambda: [Residual((1,)), Residual()], ("1.gain", "2.outer.weight"), 1),
        (lambda: [OneVector()], ("gains",), 3),
        (lambda: [OneVector(torch.sigmoid)], tuple(f"outer.{place}.weight" for place in range(3)), 3),
    ],
)
def test_skip_init_networks_are_their_skip_connections(
    build: Callable[[], list[nn.Module]], zero: tuple[str, ...], branches: int, traced: bool
) -> None:
    blocks, x = build(), torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    model = residual(*blocks)
    plan = initialize_(model, "skip-init", seed=0, inputs=x if traced else None)
    weights = {name: p for name, p in model.named_parameters() if not name.endswith("bias")}
    silenced = {name for name, p in weights.items() if not p.any()}
    assert silenced == {name for name in weights if name.endswith(zero)}
    assert any(f"{branches} residual branches" in plan[name].reason for name in silenced)
    y = model[0](x)
    for block in blocks:
        y = block.shortcut(y) if isinstance(block, Residual) else y
    torch.testing.assert_close(model(x), model[-1](y))
    model(x).square().mean().backward()
    assert all((grad := weights[name].grad) is not None and grad.any() for name in silenced)  # they leave zero


def test_skip_init_silences_both_branches_of_a_transformer_block() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    x = torch.randn(2, 5, 8)
    initialize_(layer, "skip-init", inputs=x)
    torch.testing.assert_close(layer(x), x)


def test_a_gain_that_is_frozen_or_skipped_stays() -> None:
    model = residual(Residual(()), Residual(()))
    model[1].gain.requires_grad_(False)
    initialize_(model, "skip-init", skip="2.gain")
    assert all(model[place].gain.detach() == 1 for place in (1, 2))


def test_it_is_refused_where_it_does_not_belong() -> None:
    assert_refused_unchanged(nn.Sequential(nn.Linear(4, 4)), "skip-init", ["residual"])
    assert_refused(lambda: Cell("digits", "skip-init"), ["scheme='skip-init' is for residual networks", "plain"])
