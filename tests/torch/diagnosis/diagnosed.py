"""What the tests of `diagnose` share: images, networks, and its columns by plain computation."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import Diagnosis, initialize_

DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.data[:256] / 16, dtype=torch.float32)
LABELS = torch.tensor(DIGITS.target[:256])


def mlp(depth: int, scheme: str | None = "stiefel", activation: type[nn.Module] = nn.ReLU, width: int = 64) -> Any:
    """A plain network for the images, initialized."""
    layers: list[nn.Module] = []
    for n in [64] + [width] * (depth - 1):
        layers += [nn.Linear(n, width), activation()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    initialize_(model, scheme, seed=0)
    return model


def learn(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    rates: tuple[float, ...] = (3e-3, 1e-3),
    steps: int = 100,
    keep: bool = False,
    enough: float = -math.inf,
) -> float:
    """The least loss on the way of training a copy, or with `keep` the model itself, with Adam; at the best rate.

    Not the last: deep networks have steps that throw them back, at which step depends on the processor's rounding.
    A loss below `enough` is returned at once.
    """
    losses = []
    for rate in rates:
        trained = model if keep else copy.deepcopy(model)
        optimizer = torch.optim.Adam(trained.parameters(), lr=rate, fused=True)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = _loss(trained(x), y)
            losses.append(loss.detach())
            if losses[-1] < enough:
                return float(losses[-1])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(_loss(trained(x), y))
    return float(torch.stack(losses).nan_to_num(torch.inf).min())


def _loss(outputs: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(outputs, y) if y.is_floating_point() else F.cross_entropy(outputs, y)


def constant_loss(y: Tensor) -> float:
    """That of the best constant output."""
    if y.is_floating_point():
        return float(y.double().var(correction=0))
    return float(torch.special.entr(torch.bincount(y) / len(y)).sum())


def kinds(found: Diagnosis) -> list[str]:
    """What is found, in its order."""
    return [finding.kind for finding in found.findings]


def exploding(scale: float) -> Any:
    """A network whose every layer multiplies by `scale`, about."""
    model = mlp(30, "he")
    with torch.no_grad():
        for layer in model[::2]:
            layer.weight *= scale
    return model


class Residual(nn.Module):
    """A block that is called three times, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + self.outer(F.relu(self.inner(x)))
        return self.head(x)


def plain(pre: Tensor, post: Tensor) -> dict[str, float]:
    """The columns of a row, written out: of (samples, units)."""
    pre, post = pre.detach().double(), post.detach().double()
    units = [post[:, i] for i in range(post.shape[1]) if len(set(post[:, i].tolist())) > 1]
    squares = sum(float(torch.corrcoef(torch.stack((a, b)))[0, 1]) ** 2 for a in units for b in units)
    return {
        "units": post.shape[1],
        "samples": len(post),
        "pre_mean": float(pre.mean()),
        "pre_std": float(pre.std(correction=0)),
        "alpha": float(pre.mean() / pre.std(correction=0)),
        "post_mean": float(post.mean()),
        "post_std": float(post.std(correction=0)),
        "spread": float(post.var(0, correction=0).mean().sqrt()),
        "distinct": len(units) ** 2 / squares,
    }


def firing(pre: Tensor) -> dict[str, float]:
    """The columns of a rectifier, written out."""
    return {
        "active": float((pre > 0).double().mean()),
        "dead": sum(bool((pre[:, i] <= 0).all()) for i in range(pre.shape[1])),
    }


def agrees(row: Any, **expected: float | None) -> None:
    """The row has these values, to rounding in float32."""
    rounding = 1e-6 * (expected.get("pre_std") or 0.0)  # of a mean near 0
    for name, value in expected.items():
        found = getattr(row, name)
        assert found is None if value is None else found == pytest.approx(value, rel=2e-5, abs=rounding), name
