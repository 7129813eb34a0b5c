"""`diagnose` against plain computations: every column, the activations it finds, the losses; and bad input."""

from __future__ import annotations

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
    assert last.predicted_pre_std is not None
    assert first.predicted_pre_std is None


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


# Bad input.

LINEAR = nn.Sequential(nn.Linear(4, 3))
NUMBER: Any = lambda outputs, targets: 1.0  # noqa: E731
X = torch.randn(8, 4)
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
        (lambda: diagnose("model", X), "model is a str; give a torch.nn.Module"),  # type: ignore[arg-type]
        (lambda: diagnose(LINEAR, torch.full((8, 4), torch.nan)), "have the entry nan"),
        (lambda: diagnose(LINEAR, X / 0), "have the entry -?inf"),
        (lambda: diagnose(LINEAR, torch.empty(0, 4)), r"shape \(0, 4\) are empty"),
        (lambda: diagnose(LINEAR, None), "hold no tensor"),
        (lambda: diagnose(LINEAR, []), "hold no tensor"),
        (lambda: diagnose(LINEAR, torch.randn(8, 5)), r"forward of Sequential raised RuntimeError.*shape \(8, 5\)"),
        (lambda: diagnose(nn.Sequential(nn.ReLU(), nn.LayerNorm(4)), X), "no layer with weights"),
        (lambda: diagnose(Silent(), X), "no layer of Silent with weights ran"),
        (lambda: diagnose(nn.LazyLinear(3), X), "lazy"),
        (lambda: diagnose(SCRIPTED, X), "model is a TorchScript module; diagnose the model before scripting it"),
        (lambda: diagnose(nn.Sequential(SCRIPTED), X), "0 is a TorchScript module"),
        (lambda: diagnose(nn.Linear(4, 3, device="meta"), X), "meta device"),
        (lambda: diagnose(LINEAR, X, loss=F.mse_loss), "loss was given without targets"),
        (lambda: diagnose(LINEAR, X, "cat"), "targets, a str, is not a tensor"),
        (lambda: diagnose(LINEAR, X, torch.tensor([0, 1, 2, 3, 0, 1, 2, 0])), "from 0 to 3 and the model scores 3"),
        (lambda: diagnose(LINEAR, X, torch.tensor([0, -1] * 4)), "from -1 to 0"),
        (lambda: diagnose(LINEAR, X, torch.zeros(7, dtype=torch.int64)), r"targets of shape \(7,\) and outputs of"),
        (lambda: diagnose(LINEAR, X, torch.zeros(8)), r"targets of shape \(8,\) .* cannot be subtracted"),
        (lambda: diagnose(LINEAR, X, torch.full((8, 3), torch.nan)), "targets have an entry that is not finite"),
        (lambda: diagnose(LINEAR, X, X, loss=F.l1_loss), "loss raised RuntimeError"),
        (lambda: diagnose(LINEAR, X, X, loss=lambda a, b: a), r"a tensor of shape \(8, 3\); it must be one number"),
        (lambda: diagnose(LINEAR, X, X, loss=NUMBER), "a float; it must be one number"),
        (lambda: diagnose(LINEAR, X, X, loss=lambda a, b: a.detach().mean()), "loss has no gradient"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*target size.*:UserWarning")
def test_bad_input_is_told_in_one_sentence(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(StiefelError, match=words) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
