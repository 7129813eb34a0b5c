"""What the rules go by, against plain computations: more columns of a layer, the inputs, the fit and the curvature."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from diagnosed import agrees
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import diagnose
from stiefel_init.torch.diagnosis.ends import readable

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 6, generator=GENERATOR)


def spread(values: Tensor) -> float:
    return float(values.double().var(0, correction=0).mean().sqrt())


def test_spread_and_bend_of_relu() -> None:
    model: Any = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        model[0].bias[:3] = torch.tensor([-50.0, 50.0, 50.0])  # never, always, always
    pre = model[0](X).detach()
    mixed = sum(bool((pre[:, i] > 0).any() and (pre[:, i] <= 0).any()) for i in range(8))
    agrees(diagnose(model, X).layers[0], pre_spread=spread(pre), bend=mixed / 8, saturated=None)


@pytest.mark.parametrize("inplace", [False, True])
def test_bend_of_a_smooth_activation_is_one_minus_the_squared_correlation(inplace: bool) -> None:
    model: Any = nn.Sequential(nn.Linear(6, 8), nn.SiLU(inplace=inplace), nn.Linear(8, 2))
    pre = model[0](X).detach()
    correlations = [float(torch.corrcoef(torch.stack((pre[:, i], F.silu(pre[:, i]))))[0, 1]) for i in range(8)]
    bend = diagnose(model, X).layers[0].bend
    assert bend == pytest.approx(sum(1 - r * r for r in correlations) / 8, rel=1e-4)


@pytest.mark.parametrize(("activation", "low", "high"), [(nn.Tanh, -1, 1), (nn.Sigmoid, 0, 1), (nn.Hardtanh, -1, 1)])
def test_saturation(activation: Any, low: float, high: float) -> None:
    model: Any = nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, 2))
    with torch.no_grad():
        model[0].weight *= 8
    out = model[:2](X).detach().double()
    edge = 0.01 * (high - low)
    share = ((out < low + edge) | (out > high - edge)).double().mean()
    agrees(diagnose(model, X).layers[0], saturated=float(share))
    assert 0.05 < float(share) < 0.95


def test_weights_biases_and_their_gradient() -> None:
    model: Any = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    y = torch.randn(40, 1, generator=GENERATOR)
    first, last = diagnose(model, X, y).layers
    weight, bias = model[0].weight.detach().double(), model[0].bias.detach().double()
    (gradient,) = torch.autograd.grad(F.mse_loss(model(X), y), model[0].weight)
    rows = gradient.double()
    agrees(
        first,
        row_norm=float(weight.square().sum(1).mean().sqrt()),
        level=float(weight.sum(1).square().sum() / (6 * weight.square().sum())),
        bias_mean=float(bias.mean()),
        bias_std=float(bias.std(correction=0)),
        common_gradient=float(8 * rows.mean(0).square().sum() / rows.square().sum()),
    )
    with torch.no_grad():
        model[2].weight.fill_(0.3)
    assert diagnose(model, X, y).layers[1].level == pytest.approx(1)
    assert last.common_gradient is None  # a single unit has it all in common
    assert diagnose(nn.Linear(6, 3, bias=False), X).layers[0].bias_mean is None


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", ["inputs", "embedded"])
def test_the_gradient_at_the_first_step(batch_first: bool, given: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Linear(3, 3)
            self.memory, self.head = nn.GRU(3, 5, batch_first=batch_first), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.memory(self.embedding(x) if given == "embedded" else x)[0]
            return self.head(hidden[:, -1] if batch_first else hidden[-1])

    torch.manual_seed(0)
    model, x, y = Net(), torch.randn(20, 7, 3), torch.randint(2, (20,))
    x = x if batch_first else x.transpose(0, 1).contiguous()
    row = next(row for row in diagnose(model, x, y).layers if row.kind == "GRU")
    seen = (model.embedding(x) if given == "embedded" else x).detach().requires_grad_()
    hidden = model.memory(seen)[0]
    value = F.cross_entropy(model.head(hidden[:, -1] if batch_first else hidden[-1]), y)
    (gradient,) = torch.autograd.grad(value, seen)
    steps = (gradient if not batch_first else gradient.transpose(0, 1)).flatten(1).norm(dim=1)
    agrees(row, steps=7, first_step=float(steps[0] / steps.max()))


def test_a_layer_that_reads_both_ways_has_no_first_step() -> None:
    model = nn.LSTM(3, 4, bidirectional=True)
    loss = lambda outputs, targets: outputs[0].square().mean()  # noqa: E731
    assert diagnose(model, torch.randn(9, 8, 3), "nothing", loss=loss).layers[0].first_step is None


def test_inputs() -> None:
    x = X * torch.tensor([1.0, 2, 3, 4, 5, 0]) + 7
    told = diagnose(nn.Linear(6, 3), x).inputs
    assert told is not None
    stds = x.double().std(0, correction=0)
    expected = {
        "mean": float(x.double().mean()), "std": float(x.double().std(correction=0)), "samples": 40, "features": 6,
        "largest_std": float(stds.max()), "median_std": float(stds[:5].median()),
        "same": 1 - float(stds.square().mean() / x.double().square().mean()),
    }  # fmt: skip
    for name, value in expected.items():
        assert getattr(told, name) == pytest.approx(value, rel=1e-5), name
    images = torch.randn(20, 3, 5, 5, generator=GENERATOR)
    told = diagnose(nn.Conv2d(3, 4, 3), images).inputs
    assert told is not None
    assert (told.features, told.samples) == (3, 500)
    assert diagnose(nn.Embedding(5, 4), torch.randint(5, (20,))).inputs is None


def test_fit_and_what_a_constant_would_get() -> None:
    model, classes = nn.Linear(6, 3), torch.arange(40) % 3
    for loss in (None, F.cross_entropy, nn.CrossEntropyLoss()):
        fit = diagnose(model, X, classes, loss=loss).fit
        assert fit is not None
        shares = torch.bincount(classes) / 40
        assert fit.constant_loss == pytest.approx(float(-(shares * shares.log()).sum()), rel=1e-5)
        assert fit.loss == pytest.approx(float(F.cross_entropy(model(X), classes).detach()), rel=1e-5)
        assert fit.target_mean is None
    y = torch.randn(40, 3, generator=GENERATOR) + torch.tensor([0.0, 5, 9])
    fit = diagnose(model, X, y).fit
    assert fit is not None
    assert fit.constant_loss == pytest.approx(float(F.mse_loss(y.mean(0).expand(40, 3), y)), rel=1e-5)
    assert fit.target_mean == pytest.approx(float(y.mean()), rel=1e-5)
    assert fit.output_std == pytest.approx(float(model(X).detach().std(correction=0)), rel=1e-5)
    logits = diagnose(model, X, (y > 4).float(), loss=F.binary_cross_entropy_with_logits).fit
    assert logits is not None
    assert (logits.constant_loss, logits.target_mean) == (None, None)  # logits are not to equal their targets


def test_curvature_is_measured_where_nothing_bends() -> None:
    straight = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    assert (diagnose(straight, X).curvature or 0.0) < 1e-6

    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    own = nn.Sequential(nn.Linear(6, 8), Own(), nn.Linear(8, 3))
    out = own(X).detach()
    between = own((X + X.roll(1, 0)) / 2).detach()
    expected = (between - (out + out.roll(1, 0)) / 2).norm() / (out - out.roll(1, 0)).norm()
    found = diagnose(own, X)
    assert found.curvature == pytest.approx(float(expected), rel=1e-4)
    assert found.healthy  # an activation of one's own is no missing one
    assert diagnose(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), X).curvature is None
    assert math.isfinite(expected)


@pytest.mark.parametrize("features", [2, 12, 100])
def test_readable_is_what_a_regression_on_the_three_widest_directions_explains(features: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, features, generator=generator) @ torch.randn(features, features, generator=generator)
    y = x[:, :1] + torch.randn(64, 1, generator=generator)
    rows = (x - x.mean(0)).double()
    rows = rows / rows.std(0, correction=0)
    u = torch.linalg.svd(rows, full_matrices=False)[0][:, :3]
    aim = (y - y.mean()).double()
    told = float((u.mT @ aim).square().sum() / aim.square().sum())
    assert readable(x, y) == pytest.approx(1 - (1 - told) * 63 / 60, rel=1e-6)
    assert readable(x, y[:60]) is None
    assert readable(x[:8], y[:8]) is None
