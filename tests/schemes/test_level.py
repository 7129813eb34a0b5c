"""The level that smooth activations need: its definition, and that deep networks train from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from stiefel_init.schemes.level import level
from stiefel_init.torch import initialize_

SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": nn.functional.silu, "gelu": nn.functional.gelu, "mish": nn.functional.mish,
    "hardswish": nn.functional.hardswish,
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_it_is_the_least_level_that_is_passed_on(name: str) -> None:
    for layers in (6, 12, 100, 1000):
        least = torch.tensor(level(name, layers), dtype=torch.float64)
        taken, more = (layers * float(1 - SMOOTH[name](x) / x) for x in (least, least - 1e-3))
        assert taken <= 2 + 1e-6
        assert more > 2


def test_it_grows_with_the_chain_and_begins_at_nothing() -> None:
    for name in SMOOTH:
        heights = [level(name, layers) for layers in range(60)]
        assert heights[:5] == [0.0] * 5
        assert all(a < b for a, b in itertools.pairwise(heights[6:]))
    for other in ("relu", "leakyrelu", "elu", "tanh", "sigmoid", "softplus", "", None):
        assert level(other, 1000) == 0


def plain(activation: Any, depth: int, bias: bool = True) -> Any:
    hidden = (part for _ in range(depth - 1) for part in (nn.Linear(32, 32, bias=bias), activation()))
    return nn.Sequential(nn.Linear(64, 32, bias=bias), activation(), *hidden, nn.Linear(32, 10))


def test_only_a_plain_row_with_a_bias_is_raised() -> None:
    model = plain(nn.SiLU, 30)
    plan = str(initialize_(model, seed=0))
    assert torch.equal(model[0].bias.detach(), torch.full((32,), level("silu", 30)))
    assert plan.count("raise the common level") == 1
    assert not any(part.bias.any() for part in list(model)[2:] if isinstance(part, nn.Linear))
    others: list[Any] = [
        plain(nn.ReLU, 30), plain(nn.SiLU, 4),
        nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.SiLU(), *plain(nn.SiLU, 30)[2:]),
    ]  # fmt: skip
    for other in others:
        assert "raise" not in str(initialize_(other, seed=0))
    assert "raise" not in str(initialize_(plain(nn.SiLU, 30, bias=False), seed=0))


def test_each_stem_is_raised_for_its_own_row() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.short, self.long = plain(nn.SiLU, 2), plain(nn.SiLU, 30)

        def forward(self, x: Tensor) -> Tensor:
            return self.short(x) + self.long(x)

    model = Two()
    initialize_(model, seed=0)
    assert not model.short[0].bias.any()
    assert model.long[0].bias.detach().min() > 1


@pytest.mark.parametrize("activation", [nn.SiLU, pytest.param(nn.GELU, marks=pytest.mark.slow)])
def test_thirty_layers_of_it_train(activation: Any) -> None:
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    left = {}
    for start in ("recipe", "he"):
        torch.manual_seed(0)
        model = plain(activation, 30)
        initialize_(model, start, seed=0)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(120):
            rows = torch.randint(len(x), (64,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        left[start] = float(nn.functional.cross_entropy(model(x), y).detach())
    assert left["recipe"] < 0.5
    assert left["he"] > 2 * left["recipe"]
