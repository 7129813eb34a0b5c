"""Kernels before many smooth activations in a row: their gain, who gets it, and that such networks train from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from stiefel_init import draw
from stiefel_init.schemes import Orthogonal
from stiefel_init.schemes.level import gain
from stiefel_init.torch import diagnose, initialize_

SMOOTH: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU, "gelu": nn.GELU, "mish": nn.Mish, "hardswish": nn.Hardswish,
}  # fmt: skip
DIGITS = load_digits()
X, Y = torch.tensor(DIGITS.images[:, None] / 16, dtype=torch.float32), torch.tensor(DIGITS.target)


def plain(activation: Callable[[], nn.Module], layers: int, channels: int = 8, *, norm: bool = False) -> nn.Sequential:
    """So many convolutions with an activation behind each, a mean over the image and a head."""
    widths = [1] + [channels] * (layers - 1)
    norms = [nn.BatchNorm2d(channels)] if norm else []
    rows = ([nn.Conv2d(n, channels, 3, padding=1), *norms, activation()] for n in widths)
    body = [part for row in rows for part in row]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def actions(model: nn.Module) -> list[str]:
    return [row.action for row in initialize_(model, seed=0, dry_run=True) if len(row.shape) == 4]


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gain_keeps_the_power_of_a_normal_signal(name: str) -> None:
    z = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    power = torch.trapezoid(density * SMOOTH[name]()(z) ** 2, z)
    assert gain(name) ** 2 * float(power) == pytest.approx(1, abs=1e-3)  # hardswish has corners


@pytest.mark.parametrize("name", SMOOTH)
def test_all_kernels_of_a_long_plain_row_are_patches_with_that_gain(name: str) -> None:
    model = plain(SMOOTH[name], 6)
    plan = initialize_(model, seed=3)
    for at, inputs in ((0, 1), (2, 8), (10, 8)):
        layer: Any = model[at]
        expected = draw(Orthogonal(gain(name)), 8, 9 * inputs, seed=3, name=f"{at}.weight")
        np.testing.assert_allclose(layer.weight.detach().flatten(1), expected, atol=1e-6)
    assert plan["2.weight"].reason == f"one of 5 in a chain before {name}: keeps the signal's size"


def test_other_rows_are_as_they_were() -> None:
    def hidden(spread: str, layers: int) -> list[str]:
        return ["orthogonal 1.41 8×9", *[f"permutation + {spread} patches 8×72"] * (layers - 1)]

    assert actions(plain(nn.ReLU, 6)) == hidden("0.447", 6)
    assert actions(plain(nn.SiLU, 4)) == hidden("0.577", 4)  # short
    assert actions(plain(nn.SiLU, 6, norm=True)) == ["orthogonal 8×9 × 0.577", *["orthogonal 8×72 × 0.577"] * 5]
    stem, *rest = plain(nn.SiLU, 8)
    normalized = nn.Sequential(stem, nn.BatchNorm2d(8), *rest)
    assert actions(normalized)[:2] == ["orthogonal 1.41 8×9", "orthogonal 1.68 8×72"]


def test_what_torch_fx_cannot_read_is_run_on_a_guess() -> None:
    class Opaque(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = plain(nn.SiLU, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.parts(x if float(x.detach().sum()) > 0 else -x)  # which torch.fx cannot read

    for inputs in (None, X[:2]):
        assert "orthogonal 1.68" in str(initialize_(Opaque(), inputs=inputs, dry_run=True))


def test_fourteen_kernels_before_silu_train() -> None:
    torch.manual_seed(0)
    model = plain(nn.SiLU, 14)
    initialize_(model, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(80):
        rows = torch.randint(len(X), (32,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        left = float(nn.functional.cross_entropy(model(X), Y))
    assert left < 1.5  # a permutation and patches × √2, or He's weights, leave it at log 10 = 2.3


def test_diagnose_advises_it_where_a_row_fades() -> None:
    model = plain(nn.SiLU, 29)
    initialize_(model, "he", seed=0)
    (finding,) = diagnose(model, X[:128], Y[:128]).findings
    assert finding.cause == "activation"
    assert finding.advice == "call stiefel_init.torch.initialize_(model), whose kernels make up for it"
    initialize_(model, seed=0)
    assert diagnose(model, X[:128], Y[:128]).healthy
