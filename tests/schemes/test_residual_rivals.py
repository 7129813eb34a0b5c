"""SkipInit and embeddings: each has the property that defines it, however a model is written."""

from __future__ import annotations

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

    def __init__(self, gain: tuple[int, ...] | None = None, norm: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.gain = None if gain is None else nn.Parameter(torch.ones(gain))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.outer(torch.relu(self.inner(x))))
        return x + (y if self.gain is None else self.gain * y)


def residual(*blocks: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), *blocks, nn.Linear(8, 3))


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("gains", [(None, None), ((), (8,))])
def test_skip_init_networks_are_their_skip_connections(
    gains: tuple[tuple[int, ...] | None, tuple[int, ...] | None], traced: bool
) -> None:
    model, x = residual(*map(Residual, gains)), torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    plan = initialize_(model, "skip-init", seed=0, inputs=x if traced else None)
    weights = {name: p for name, p in model.named_parameters() if not name.endswith("bias")}
    silenced = {name for name, p in weights.items() if not p.any()}
    assert silenced == {"1.outer.weight", "2.outer.weight"}
    assert all("2 residual branches" in plan[name].reason for name in silenced)
    torch.testing.assert_close(model(x), model[-1](model[0](x)))
    model(x).square().mean().backward()
    assert all((grad := weights[name].grad) is not None and grad.any() for name in silenced)  # they leave zero


def test_skip_init_silences_both_branches_of_a_transformer_block() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    x = torch.randn(2, 5, 8)
    initialize_(layer, "skip-init", inputs=x)
    torch.testing.assert_close(layer(x), x)


def test_it_is_refused_where_it_does_not_belong() -> None:
    for model in (nn.Sequential(nn.Linear(4, 4)), residual(Residual(norm=True))):
        assert_refused_unchanged(model, "skip-init", ["residual"])
    assert_refused(lambda: Cell("digits", "skip-init"), ["scheme='skip-init' is for residual networks", "plain"])
