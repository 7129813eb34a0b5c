"""`diagnose` against plain computations: every column, the activations it finds, the losses; and bad input."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diagnosed import agrees, firing, plain
from torch import Tensor, nn
from torch.nn import functional as F

import stiefel_init
from stiefel_init import StiefelError
from stiefel_init.torch import diagnose
from stiefel_init.torch.diagnosis.ends import readable

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 6, generator=GENERATOR)


def test_every_column_of_a_plain_network() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3))
    with torch.no_grad():
        model[0].bias[:2] = -9.0  # two dead units
    x, y = torch.randn(40, 6), torch.randint(3, (40,))
    rows = diagnose(model, x, y).layers
    weights = [model[i].weight for i in (0, 2, 4)]
    y1 = model[0](x)
    y2 = model[2](y1.relu())
    out = model[4](y2.relu())
    *slopes, g1, g2, g3 = torch.autograd.grad(F.cross_entropy(out, y), [*weights, y1, y2, out])
    assert [row.layer for row in rows] == ["0", "2", "4"]
    assert [row.activation for row in rows] == ["relu", "relu", None]
    assert rows[0].dead is not None
    assert rows[0].dead >= 2
    agrees(rows[0], **plain(y1, y1.relu()), **firing(y1), gradient=float(g1.norm()))
    agrees(rows[1], **plain(y2, y2.relu()), **firing(y2), gradient=float(g2.norm()))
    agrees(rows[2], **plain(out, out), active=None, dead=None, gradient=float(g3.norm()))
    for row, weight, slope in zip(rows, weights, slopes):
        membership = stiefel_init.check(weight)
        agrees(
            row,
            weight_gradient=float(slope.norm()),
            orthogonality_error=membership.orthogonality_error,
            alignment_error=membership.alignment_error,
        )
        assert row.shape == f"{weight.shape[0]}×{weight.shape[1]}"


def test_a_convolutions_units_are_its_channels_after_normalization() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(80, 2))
    x = torch.randn(20, 2, 6, 6)
    first, last = diagnose(model, x).layers
    pre = model[1](model[0](x)).movedim(1, -1).reshape(-1, 5)
    agrees(first, **plain(pre, pre.relu()), **firing(pre))
    assert first.shape == "5×18"
    assert last.layer == "4"


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        (F.relu, "relu"), (torch.relu, "relu"), (Tensor.relu, "relu"), (torch.relu_, "relu"), (nn.ReLU(), "relu"),
        (lambda y: y.clamp(min=0), "relu"), (lambda y: F.relu(y, inplace=True), "relu"), (nn.ReLU6(), "relu6"),
        (nn.LeakyReLU(0.2), "leaky_relu"), (nn.PReLU(), "prelu"), (nn.ELU(), "elu"), (F.selu, "selu"),
        (nn.GELU(), "gelu"), (F.silu, "silu"), (torch.tanh, "tanh"), (nn.Sigmoid(), "sigmoid"),
        (lambda y: y, None), (lambda y: y + 1, None), (lambda y: y.clamp(min=-1), None),
    ],
)  # fmt: skip
def test_activations_are_found_as_modules_functions_and_methods(activation: Any, name: str | None) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return activation(self.layer(x))

    torch.manual_seed(0)
    model, x = Net(), torch.randn(30, 4)
    (row,) = diagnose(model, x).layers
    assert row.activation == name
    pre = model.layer(x)
    agrees(row, **plain(pre, pre if name is None else model(x)))
    assert (row.dead is not None) == (name in ("relu", "relu6"))


def test_inputs_whose_scale_float32_cannot_square() -> None:
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 2, bias=False))
    x = torch.randn(30, 4)
    usual, tiny = (diagnose(model, scale * x).layers[0] for scale in (1.0, 1e-30))
    agrees(tiny, post_std=1e-30 * usual.post_std, spread=1e-30 * usual.spread, distinct=usual.distinct)


def test_repeated_units_are_counted_once() -> None:
    model: Any = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU())
    x = torch.eye(8)[torch.arange(800) % 8] * torch.rand(800, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(8))
    distinct = diagnose(model, x).layers[0].distinct
    assert distinct is not None
    assert 6.5 < distinct <= 8
    with torch.no_grad():
        model[0].weight.copy_(torch.ones(8, 1) * torch.randn(1, 8, generator=torch.Generator().manual_seed(0)))
    agrees(diagnose(model, x).layers[0], distinct=1.0)


# The loss.


def test_default_losses() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3)), torch.randn(20, 4)
    classes, values = torch.randint(3, (20,)), torch.randn(20, 3)
    out = model(x).detach()
    assert diagnose(model, x, classes).loss == pytest.approx(float(F.cross_entropy(out, classes)))
    assert diagnose(model, x, classes.to(torch.uint8)).loss == pytest.approx(float(F.cross_entropy(out, classes)))
    assert diagnose(model, x, values).loss == pytest.approx(float(F.mse_loss(out, values)))
    single = nn.Linear(4, 1)
    assert diagnose(single, x, values[:, 0]).loss == pytest.approx(F.mse_loss(single(x)[:, 0], values[:, 0]).item())
    pixels = torch.randint(3, (5, 6, 6))
    conv = nn.Conv2d(2, 3, 1)
    images = torch.randn(5, 2, 6, 6)
    assert diagnose(conv, images, pixels).loss == pytest.approx(F.cross_entropy(conv(images), pixels).item())
    own = diagnose(model, x, "anything", loss=lambda outputs, targets: outputs.square().mean())
    assert own.loss == pytest.approx(float(out.square().mean()))


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


# Bad input.

LINEAR = nn.Sequential(nn.Linear(4, 3))
NUMBER: Any = lambda outputs, targets: 1.0  # noqa: E731
EIGHT = torch.randn(8, 4)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    SCRIPTED: Any = torch.jit.script(LINEAR)


class Silent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: diagnose("model", EIGHT), "model is a str; give a torch.nn.Module"),  # type: ignore[arg-type]
        (lambda: diagnose(LINEAR, torch.full((8, 4), torch.nan)), "have the entry nan"),
        (lambda: diagnose(LINEAR, EIGHT / 0), "have the entry -?inf"),
        (lambda: diagnose(LINEAR, torch.empty(0, 4)), r"shape \(0, 4\) are empty"),
        (lambda: diagnose(LINEAR, None), "hold no tensor"),
        (lambda: diagnose(LINEAR, []), "hold no tensor"),
        (lambda: diagnose(LINEAR, torch.randn(8, 5)), r"forward of Sequential raised RuntimeError.*shape \(8, 5\)"),
        (lambda: diagnose(nn.Sequential(nn.ReLU(), nn.LayerNorm(4)), EIGHT), "no layer with weights"),
        (lambda: diagnose(Silent(), EIGHT), "no layer of Silent with weights ran"),
        (lambda: diagnose(nn.LazyLinear(3), EIGHT), "lazy"),
        (lambda: diagnose(SCRIPTED, EIGHT), "model is a TorchScript module; diagnose the model before scripting it"),
        (lambda: diagnose(nn.Sequential(SCRIPTED), EIGHT), "0 is a TorchScript module"),
        (lambda: diagnose(nn.Linear(4, 3, device="meta"), EIGHT), "meta device"),
        (lambda: diagnose(LINEAR, EIGHT, loss=F.mse_loss), "loss was given without targets"),
        (lambda: diagnose(LINEAR, EIGHT, "cat"), "targets, a str, is not a tensor"),
        (lambda: diagnose(LINEAR, EIGHT, torch.tensor([0, 1, 2, 3, 0, 1, 2, 0])), "from 0 to 3 and the model scores 3"),
        (lambda: diagnose(LINEAR, EIGHT, torch.tensor([0, -1] * 4)), "from -1 to 0"),
        (lambda: diagnose(LINEAR, EIGHT, torch.zeros(7, dtype=torch.int64)), r"targets of shape \(7,\) and outputs of"),
        (lambda: diagnose(LINEAR, EIGHT, torch.zeros(8)), r"targets of shape \(8,\) .* cannot be subtracted"),
        (lambda: diagnose(LINEAR, EIGHT, torch.full((8, 3), torch.nan)), "targets have an entry that is not finite"),
        (lambda: diagnose(LINEAR, EIGHT, EIGHT, loss=F.l1_loss), "loss raised RuntimeError"),
        (lambda: diagnose(LINEAR, EIGHT, EIGHT, loss=lambda a, b: a), r"tensor of shape \(8, 3\); it must be one"),
        (lambda: diagnose(LINEAR, EIGHT, EIGHT, loss=NUMBER), "a float; it must be one number"),
        (lambda: diagnose(LINEAR, EIGHT, EIGHT, loss=lambda a, b: a.detach().mean()), "loss has no gradient"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*target size.*:UserWarning")
def test_bad_input_is_told_in_one_sentence(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(StiefelError, match=words) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
