"""`diagnose` against plain computations; what it concludes; and that it leaves the model as it was."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import checkpoint
from typer.testing import CliRunner

import stiefel_init
from stiefel_init import StiefelError
from stiefel_init.lab.cli import app, main
from stiefel_init.theory import propagate, shift_for_alpha
from stiefel_init.torch import Diagnosis, _verdict, diagnose, initialize_
from stiefel_init.torch._diagnosis import COLUMNS

DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.data[:256] / 16, dtype=torch.float32)
LABELS = torch.tensor(DIGITS.target[:256])


def mlp(depth: int, scheme: str = "stiefel", activation: type[nn.Module] = nn.ReLU, width: int = 64) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n in [64] + [width] * (depth - 1):
        layers += [nn.Linear(n, width), activation()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    initialize_(model, scheme, seed=0)
    return model


def kinds(found: Diagnosis) -> list[str]:
    return [finding.kind for finding in found.findings]


# The numbers.


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
    return {
        "active": float((pre > 0).double().mean()),
        "dead": sum(bool((pre[:, i] <= 0).all()) for i in range(pre.shape[1])),
    }


def agrees(row: Any, **expected: float | None) -> None:
    rounding = 1e-6 * (expected.get("pre_std") or 0.0)  # of a mean near 0
    for name, value in expected.items():
        found = getattr(row, name)
        assert found is None if value is None else found == pytest.approx(value, rel=2e-5, abs=rounding), name


def test_every_column_of_a_plain_network() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3))
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
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU())
    x = torch.eye(8)[torch.arange(800) % 8] * torch.rand(800, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(8))
    distinct = diagnose(model, x).layers[0].distinct
    assert distinct is not None
    assert 6.5 < distinct <= 8
    with torch.no_grad():
        model[0].weight.copy_(torch.ones(8, 1) * torch.randn(1, 8, generator=torch.Generator().manual_seed(0)))
    agrees(diagnose(model, x).layers[0], distinct=1.0)


# The prediction.


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU])
def test_the_prediction_for_members_is_that_of_propagate(activation: type[nn.Module]) -> None:
    found = diagnose(mlp(20, activation=activation, width=48), IMAGES, LABELS)
    name = found.layers[0].activation
    assert name is not None
    mean, std = IMAGES.double().mean(1).numpy(), IMAGES.double().std(1, correction=0).numpy()
    p = propagate([64] + [48] * 20, mean=mean, std=std, activation=name)
    for column in ("pre_mean", "pre_std", "alpha", "active", "post_mean", "post_std"):
        predicted = [getattr(row, f"predicted_{column}") for row in found.layers[:-1]]
        np.testing.assert_allclose(predicted, getattr(p, column), rtol=1e-5)
        measured = [getattr(row, column) for row in found.layers[:-1]]
        np.testing.assert_allclose(measured, predicted, rtol=0.1)
    last = found.layers[-1]
    assert (last.predicted_active, last.predicted_gradient) == (None, None)
    assert last.predicted_pre_std == pytest.approx(last.pre_std, rel=0.2)
    gradient = [row.gradient for row in found.layers[:-1]]
    np.testing.assert_allclose(gradient, [row.predicted_gradient for row in found.layers[:-1]], rtol=0.1)


def test_the_prediction_for_other_weights_goes_by_their_own_variance() -> None:
    model = mlp(10, "he")
    with torch.no_grad():
        for layer in model[::2]:
            layer.weight *= 0.9
    found = diagnose(model, IMAGES)
    p = propagate([64] * 11, mean=float(IMAGES.mean()), std=float(IMAGES.std()), scheme="he")
    predicted = np.array([row.predicted_post_std for row in found.layers[:-1]])
    # 64² weights tell their variance to √(2/64²) = 2 %, of which half falls on the std; ten of them add up.
    np.testing.assert_allclose(predicted, p.post_std * 0.9 ** np.arange(1, 11), rtol=0.1)
    assert {row.scheme for row in found.layers} == {"other"}


def test_biases_and_shifted_weights_are_in_the_prediction() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 200))
    with torch.no_grad():
        model[0].weight += 0.01
        model[0].bias += torch.randn(300) + 0.5
    x = torch.randn(256, 400) + 1
    first, second = diagnose(model, x).layers
    assert first.predicted_pre_mean == pytest.approx(first.pre_mean, abs=0.05 * first.pre_std)
    for row in (first, second):
        assert row.predicted_pre_std == pytest.approx(row.pre_std, rel=0.1)
    assert first.predicted_active == pytest.approx(first.active, abs=0.02)


def test_lees_weights_are_known_and_predicted_as_such() -> None:
    found = diagnose(mlp(6, "lee", width=32), 0.3 + torch.randn(256, 64), LABELS)
    assert {row.scheme for row in found.layers} == {"lee"}
    p = propagate([64] + [32] * 6, mean=0.3, std=1.0, scheme="lee")
    np.testing.assert_allclose([row.predicted_active for row in found.layers[:-1]], p.active, atol=0.02)
    measured = [row.gradient for row in found.layers[:-1]]
    np.testing.assert_allclose([row.predicted_gradient for row in found.layers[:-1]], measured, rtol=0.2)


@pytest.mark.parametrize(
    ("scheme", "known"), [("stiefel", "stiefel"), ("orthogonal", "orthogonal"), ("xavier", "other")]
)
@pytest.mark.parametrize("conv", ["delta", "flatten"])
def test_the_scheme_is_told_by_the_weights(scheme: str, known: str, conv: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 6, 3), nn.Flatten(2), nn.LSTM(64, 12))
    initialize_(model, scheme, conv=conv, seed=0)
    attention = nn.MultiheadAttention(8, 2)
    initialize_(attention, scheme, seed=0)
    x = torch.randn(4, 8, 8)
    rows = [*diagnose(model, torch.randn(4, 3, 8, 8)).layers, *diagnose(attention, (x, x, x)).layers]
    assert [row.kind for row in rows] == ["Conv2d", "ConvTranspose2d", "LSTM", "MultiheadAttention"]
    assert [row.scheme for row in rows] == [known] * 4


# All kinds of models.


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + self.outer(F.relu(self.inner(x)))
        return self.head(x)


def test_a_shared_layer_has_a_row_for_each_call_and_one_gradient() -> None:
    torch.manual_seed(0)
    model, x, y = Residual(), torch.randn(64, 20), torch.randint(3, (64,))
    rows = diagnose(model, x, y).layers
    assert [row.label for row in rows] == [
        "inner", "outer", "inner (call 2)", "outer (call 2)", "inner (call 3)", "outer (call 3)", "head",
    ]  # fmt: skip
    h = x + model.outer(F.relu(model.inner(x)))
    second = model.inner(h)
    agrees(rows[2], **plain(second, second.relu()), **firing(second))
    agrees(rows[1], **plain(model.outer(F.relu(model.inner(x))), model.outer(F.relu(model.inner(x)))))
    (total,) = torch.autograd.grad(F.cross_entropy(model(x), y), model.inner.weight)
    for row in rows[:6:2]:
        agrees(row, weight_gradient=float(total.norm()))
    assert len({row.gradient for row in rows[:6:2]}) == 3


def test_an_activation_that_a_skip_connection_also_uses_has_no_predicted_gradient() -> None:
    class Net(nn.Module):
        def __init__(self, skip: bool) -> None:
            super().__init__()
            self.skip, self.a, self.b = skip, nn.Linear(9, 9), nn.Linear(9, 9)

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.a(x))
            return h + self.b(h) if self.skip else self.b(h)

    for skip in (False, True):
        first, second = diagnose(Net(skip), torch.randn(32, 9), torch.randn(32, 9)).layers
        assert (first.predicted_gradient is None) == skip
        assert second.predicted_pre_std is not None


def test_a_transformer() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.positions = nn.Embedding(50, 16), nn.Parameter(torch.randn(1, 8, 16))
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.embedding.weight  # tied

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.encoder(self.embedding(tokens) + self.positions))

    torch.manual_seed(0)
    model, tokens = Model(), torch.randint(50, (16, 8))
    names = [
        "embedding", "encoder.layers.0.self_attn", "encoder.layers.0.linear1", "encoder.layers.0.linear2",
        "encoder.layers.1.self_attn", "encoder.layers.1.linear1", "encoder.layers.1.linear2", "head",
    ]  # fmt: skip
    found = diagnose(model, tokens, tokens)  # next-token style: a class for each place
    assert [row.layer for row in found.layers] == names
    assert all(row.gradient for row in found.layers)
    assert found.layers[2].activation == "relu"
    assert found.layers[0].scheme is None
    assert found.loss == pytest.approx(float(found.loss or 0))
    assert found.healthy
    evaluated = diagnose(model.eval(), tokens)  # where torch would take its fused path around the layers
    assert [row.layer for row in evaluated.layers] == names


def test_modules_of_the_users_own() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(7, 5))

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"values": x @ self.matrix.T}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = Own()

        def forward(self, x: Tensor, *, shift: Tensor) -> Tensor:
            return F.relu(self.own(x)["values"]) + shift

    model, x, shift = Net(), torch.randn(20, 5), torch.zeros(7)
    (row,) = diagnose(model, {"x": x, "shift": shift}).layers
    assert (row.layer, row.kind, row.shape, row.activation, row.units) == ("own", "Own", "7×5", "relu", 7)
    agrees(row, pre_mean=(x @ model.own.matrix.T).mean().item())


def test_a_packed_sequence() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(5, 4), torch.randn(3, 4)])
    (row,) = diagnose(nn.GRU(4, 6), packed).layers
    assert (row.kind, row.units, row.samples) == ("GRU", 6, 8)


def test_a_checkpointed_model() -> None:
    class Net(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    inner = mlp(3)
    rows = diagnose(Net(inner), IMAGES, LABELS).layers
    assert [row.layer for row in rows] == ["inner.0", "inner.2", "inner.4", "inner.6"]
    assert [row.gradient for row in rows] == [row.gradient for row in diagnose(inner, IMAGES, LABELS).layers]


def test_a_compiled_model() -> None:
    model = mlp(3)
    compiled = torch.compile(model, backend="eager")
    compiled(IMAGES)
    rows = diagnose(compiled, IMAGES, LABELS).layers
    assert [row.activation for row in rows] == ["relu"] * 3 + [None]
    assert [row.gradient for row in rows] == [row.gradient for row in diagnose(model, IMAGES, LABELS).layers]


def test_weights_that_are_computed() -> None:
    model = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 2))
    first, last = diagnose(model, torch.randn(20, 6), torch.randint(2, (20,))).layers
    assert (first.layer, last.layer) == ("0", "2")
    assert first.scheme == "orthogonal"
    assert first.weight_gradient


@pytest.mark.parametrize("frozen", [0, 2])
def test_frozen_layers_have_gradients_by_their_outputs(frozen: int) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))
    x, y = torch.randn(20, 6), torch.randint(2, (20,))
    expected = [row.gradient for row in diagnose(model, x, y).layers]
    model[frozen].requires_grad_(False)
    rows = diagnose(model, x, y).layers
    assert [row.gradient for row in rows] == pytest.approx(expected)
    assert rows[frozen // 2].weight_gradient is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    model, x = mlp(3), IMAGES
    expected = diagnose(model, x, LABELS).layers[-1]
    row = diagnose(model.to(dtype), x.to(dtype), LABELS).layers[-1]
    assert row.pre_std == pytest.approx(expected.pre_std, rel=0.05)
    assert row.gradient == pytest.approx(expected.gradient, rel=0.05)
    assert row.scheme == ("other" if dtype == torch.float64 else "stiefel")  # float32's members are not float64's


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


# The model is left as it was.


class Restless(nn.Module):
    """Changes all it can in its forward, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(()))
        self.calls, self.fail, self.memory = 0, False, {"a": 1}

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.calls += 1
        self.memory["b"] = 2
        self.layer.weight.data += 1
        self.last = self.drop(self.norm(self.layer(x)))
        random.random()
        np.random.rand()  # noqa: NPY002
        self.eval()
        if self.fail:
            raise RuntimeError("no")
        return F.relu(self.last)


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_left_exactly_as_it_was(fail: bool, training: bool) -> None:
    model = Restless().train(training)
    model.fail = fail
    model.layer.weight.grad = torch.ones(6, 6)
    called: list[str] = []
    handles = [
        model.layer.register_forward_hook(lambda *_: called.append("forward")),
        model.layer.register_full_backward_hook(lambda *_: called.append("backward")),
    ]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    hooks = [(list(m._forward_hooks.items()), list(m._backward_hooks.items())) for m in model.modules()]
    generators = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    grad = model.layer.weight.grad
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    if fail:
        with pytest.raises(StiefelError, match=r"forward of Restless raised RuntimeError \(no\)"):
            diagnose(model, x, x)
    else:
        assert len(diagnose(model, x, x).layers) == 1
    assert called == ["forward"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert {name: vars(module) for name, module in model.named_modules()} == attributes
    assert model.training == model.norm.training == training
    assert hooks == [(list(m._forward_hooks.items()), list(m._backward_hooks.items())) for m in model.modules()]
    assert (model.layer.weight.grad is grad, model.layer.bias.grad, model.memory) == (True, None, {"a": 1})
    assert torch.equal(grad, torch.ones(6, 6))
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert random.getstate() == generators[1]
    assert (np.random.get_state()[1] == generators[2]).all()  # noqa: NPY002
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.is_grad_enabled()
    for handle in handles:
        handle.remove()


def test_it_works_where_gradients_are_off() -> None:
    model = mlp(3)
    expected = [row.gradient for row in diagnose(model, IMAGES, LABELS).layers]
    with torch.no_grad():
        assert [row.gradient for row in diagnose(model, IMAGES, LABELS).layers] == expected


# The verdict.


def test_a_deep_stiefel_network_is_healthy_and_told_why() -> None:
    found = diagnose(mlp(100), IMAGES, LABELS)
    assert found.healthy
    assert found.verdict[0].startswith("The network is healthy: the signal of layer 198 is 0.5")
    assert "99.9 % of the units of layer 198 fire" in found.verdict[0]
    assert "members of Õ(m,n)" in found.verdict[0]
    assert found.verdict[1] == "Every unit fires for some input."
    assert repr(found) == "<Diagnosis: 101 layers, healthy>"


def test_a_deep_he_network_repeats_itself_and_has_dead_units() -> None:
    found = diagnose(mlp(100, "he"), IMAGES, LABELS)
    assert kinds(found) == ["units repeat", "units are dead"]
    rows = found.layers[:-1]
    dead = sum(row.dead or 0 for row in rows)
    assert found.verdict[1].startswith(f"{dead:,} of 6,400 units never fire")
    assert f"as much as {rows[-1].distinct:.1f} independent ones" in found.verdict[0]
    assert "stiefel_init.torch.initialize_(model)" in found.verdict[-1]


def test_a_deep_xavier_network_dies_and_its_gradient_too() -> None:
    found = diagnose(mlp(100, "xavier"), IMAGES, LABELS)
    assert kinds(found)[:2] == ["signal dies", "gradient vanishes"]
    spread = {row.layer: row.spread for row in found.layers}
    at = found.findings[0].layer
    before = str(int(at) - 2)
    assert spread[at] < 1e-3 * spread["0"] <= spread[before]
    gradients = [row.gradient or 0.0 for row in found.layers]
    factor = (gradients[0] / gradients[-1]) ** 0.01
    assert f"a factor {factor:.2g} per layer" in found.verdict[1]
    assert "stiefel_init.torch.initialize_(model)" in found.verdict[-1]


def test_a_shallow_he_network_is_healthy() -> None:
    assert diagnose(mlp(4, "he"), IMAGES, LABELS).healthy


def test_torchs_own_initialization_ends_in_a_constant() -> None:
    """Biases keep the activations' size, so that only the differences between inputs show that the signal is gone."""
    torch.manual_seed(0)
    layers = [module for _ in range(30) for module in (nn.Linear(64, 64), nn.ReLU())]
    found = diagnose(nn.Sequential(*layers, nn.Linear(64, 10)), IMAGES, LABELS)
    assert kinds(found)[:2] == ["signal dies", "gradient vanishes"]
    assert "all inputs give the same" in found.verdict[0]
    assert found.layers[-2].post_std > 0.1 * found.layers[0].post_std


def exploding(scale: float) -> nn.Module:
    model = mlp(30, "he")
    with torch.no_grad():
        for layer in model[::2]:
            layer.weight *= scale
    return model


def test_an_exploding_network() -> None:
    found = diagnose(exploding(2.0), IMAGES, LABELS)
    assert kinds(found)[0] == "signal explodes"
    spread = {row.layer: row.spread for row in found.layers}
    at = found.findings[0].layer
    assert spread[at] > 1e3 * spread["0"] >= spread[str(int(at) - 2)]
    assert "gradient explodes" in kinds(diagnose(exploding(2.0), IMAGES, torch.rand(256, 10)))


def test_a_network_that_overflows() -> None:
    found = diagnose(exploding(1e3), IMAGES, LABELS)
    assert kinds(found) == ["not finite"]
    first = next(row for row in found.layers if not np.isfinite(row.pre_std + row.post_std))
    assert found.findings[0].layer == first.layer
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(name))


def test_a_layer_that_is_dead_for_all_inputs() -> None:
    model = mlp(6)
    with torch.no_grad():
        model[4].bias -= 100
    found = diagnose(model, IMAGES, LABELS)
    assert kinds(found)[0] == "signal dies"
    assert found.findings[0].layer == "4"
    assert "none of its 64 units fires" in found.verdict[0]


def test_inputs_too_low_for_the_units_to_fire_are_told_to_be_shifted() -> None:
    model, x = mlp(10), IMAGES - 3
    found = diagnose(model, x, LABELS)
    assert kinds(found)[0] == "signal dies"
    assert "shift_for_alpha(x, 2.0)" in found.verdict[-1]
    shifted = torch.tensor(shift_for_alpha(x.numpy(), 2.0), dtype=torch.float32)
    assert diagnose(model, shifted, LABELS).healthy


def test_layers_of_zeros_are_a_choice_that_is_mentioned() -> None:
    model = Residual()
    nn.init.zeros_(model.outer.weight)
    nn.init.zeros_(model.outer.bias)
    found = diagnose(model, torch.randn(64, 20), torch.randint(3, (64,)))
    assert found.healthy
    assert "The weights of 3 layers, outer the first, are all zero" in found.verdict[-1]


def test_few_inputs_are_not_judged_for_dead_units() -> None:
    found = diagnose(mlp(5, "he"), IMAGES[:1], LABELS[:1])
    assert found.healthy
    assert "With 1 input dead and repeated units cannot be told" in found.verdict[-1]
    assert found.layers[0].distinct is None


@pytest.mark.parametrize(
    ("depth", "member", "call"),
    [(60, "uniform", "initialize_(model)"), (101, "permutation", 'initialize_(model, member="permutation")')],
)
def test_the_advice_cures(depth: int, member: str, call: str) -> None:
    model = mlp(depth, "xavier")
    found = diagnose(model, IMAGES, LABELS)
    assert not found.healthy
    assert call in found.verdict[-1]
    initialize_(model, seed=0, member=member)
    assert diagnose(model, IMAGES, LABELS).healthy


# The forms.


@pytest.fixture(scope="module")
def sick() -> Diagnosis:
    return diagnose(mlp(40, "xavier"), IMAGES, LABELS)


def test_the_table_is_a_data_frame(sick: Diagnosis) -> None:
    table = sick.table
    assert len(table) == 41
    assert table["predicted_active"].dtype == float
    assert np.isnan(table["active"].iloc[-1])
    assert table["pre_std"].tolist() == [row.pre_std for row in sick.layers]
    assert list(table.columns) == list(sick.records()[0])


def test_without_pandas_the_table_is_a_list(sick: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert sick.table == sick.records()


def test_without_matplotlib_plot_says_so(sick: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stiefel_init.torch._diagnosis_plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(StiefelError, match="pip install matplotlib"):
        sick.plot()


def test_it_prints_sentences_and_a_table(sick: Diagnosis) -> None:
    lines = str(sick).splitlines()
    count = len(sick.verdict)
    assert tuple(lines[:count]) == sick.verdict
    assert lines[count] == ""
    assert lines[count + 1].split()[:3] == ["layer", "weight", "activation"]
    assert len(lines) == count + 2 + 25  # 24 rows and a line of dots
    assert len({len(line) for line in lines[count + 1 :]}) == 1


def test_html_names_the_layers_safely() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("<b>", nn.Linear(3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.get_submodule("<b>")(x)

    text = diagnose(Own(), torch.randn(20, 3))._repr_html_()
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert text.count("<tr") == 2


def test_json_has_everything(sick: Diagnosis) -> None:
    content = json.loads(sick.to_json())
    assert content["healthy"] is False
    assert tuple(content["verdict"]) == sick.verdict
    assert content["findings"][0]["layer"] == sick.findings[0].layer
    assert content["layers"] == sick.records()


def test_the_plot_is_a_figure_of_its_own(sick: Diagnosis, tmp_path: Path) -> None:
    before = set(sys.modules)
    figure = sick.plot()
    assert "matplotlib.pyplot" not in set(sys.modules) - before
    assert [axis.get_title() for axis in figure.axes][-1] == "length of the gradient"
    measured, predicted = figure.axes[0].get_lines()[:2]
    assert measured.get_ydata().tolist() == [row.post_std for row in sick.layers]
    assert predicted.get_ydata().tolist()[:-1] == [row.predicted_post_std for row in sick.layers[:-1]]
    figure.savefig(tmp_path / "a.png")
    for found in (diagnose(mlp(2), IMAGES), diagnose(exploding(1e3), IMAGES)):
        found.plot().savefig(tmp_path / "b.png")


# Bad input.

LINEAR = nn.Sequential(nn.Linear(4, 3))
X = torch.randn(8, 4)


class Silent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: diagnose("model", X), "model is a str; give a torch.nn.Module"),
        (lambda: diagnose(LINEAR, torch.full((8, 4), torch.nan)), "have the entry nan"),
        (lambda: diagnose(LINEAR, X / 0), "have the entry -?inf"),
        (lambda: diagnose(LINEAR, torch.empty(0, 4)), r"shape \(0, 4\) are empty"),
        (lambda: diagnose(LINEAR, None), "hold no tensor"),
        (lambda: diagnose(LINEAR, []), "hold no tensor"),
        (lambda: diagnose(LINEAR, torch.randn(8, 5)), r"forward of Sequential raised RuntimeError.*shape \(8, 5\)"),
        (lambda: diagnose(nn.Sequential(nn.ReLU(), nn.LayerNorm(4)), X), "no layer with weights"),
        (lambda: diagnose(Silent(), X), "no layer of Silent with weights ran"),
        (lambda: diagnose(nn.LazyLinear(3), X), "lazy"),
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
        (lambda: diagnose(LINEAR, X, X, loss=lambda a, b: 1.0), "a float; it must be one number"),
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


# The command.


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["diagnose", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_command_compares_the_schemes_and_writes_the_picture(tmp_path: Path) -> None:
    output = run("--depth", "60", "--width", "32", "--out", str(tmp_path))
    lines = {line.split("│")[1].strip(): line for line in output.splitlines() if line.startswith("│")}
    assert list(lines) == ["stiefel", "lee", "he", "xavier", "orthogonal", "random"]
    assert "healthy" in lines["stiefel"]
    assert "signal dies, gradient vanishes" in lines["xavier"]
    assert (tmp_path / "diagnosis.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "diagnosis.json").read_text())
    assert content["he"]["layers"][-1]["layer"] == "output"


def test_the_command_shows_one_scheme_in_full(tmp_path: Path) -> None:
    output = run("--depth", "5", "--width", "16", "--scheme", "he", "--activation", "elu", "--data", "wine")
    assert output.splitlines()[-1].startswith("output")
    assert "predicted" in output


def test_the_command_diagnoses_ones_own_model(tmp_path: Path) -> None:
    (tmp_path / "size.py").write_text("CHANNELS = 4\n")
    (tmp_path / "nets.py").write_text(
        "from size import CHANNELS\nfrom torch import nn\n\n"
        "def flat():\n    return nn.Sequential(nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))\n\n"
        "def images():\n"
        "    return nn.Sequential(nn.Conv2d(1, CHANNELS, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))\n\n"
        "colour = nn.Sequential(nn.Conv2d(3, CHANNELS, 3), nn.ReLU())\n\n"
        "def broken():\n    raise OSError('no disk')\n"
    )
    place = str(tmp_path / "nets.py")
    assert "10×9" in run(f"{place}:flat")
    assert "4×9" in run(f"{place}:images")
    assert "4×27" in run(f"{place}:colour", "--data", "3x8x8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scheme", "he,foo"], "scheme='foo' is not known"),
        (["--scheme", ","], "scheme=',' is not known"),
        (["--data", "foo"], "data='foo' is not known"),
        (["--activation", "foo"], "activation='foo' is not known"),
        (["nothing"], "is not FILE.py:NAME"),
        (["nothing.py:f"], "is not a file"),
        (["{file}:missing"], "has no missing"),
        (["{file}:number"], "is of type int"),
        (["{file}:broken"], "raised OSError (no disk)"),
        (["{file}:net"], "forward of Linear raised"),
        (["--depth", "2", "--out", "{file}"], "cannot be made a directory"),
    ],
)
def test_bad_input_ends_the_command_with_2_and_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\nnumber = 3\nnet = nn.Linear(5, 5)\n\ndef broken():\n    raise OSError('no disk')\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(["diagnose", *(argument.replace("{file}", str(file)) for argument in arguments)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


# docs/diagnose.md.

PAGE = (Path(__file__).parents[1] / "docs" / "diagnose.md").read_text()


def test_the_page_shows_what_its_code_prints(capsys: pytest.CaptureFixture) -> None:
    """Word for word, numbers to 2 %: they come out of 25 layers of rounding."""
    blocks = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for code, shown in blocks:
        exec(compile(code, "docs/diagnose.md", "exec"), names)
        printed = capsys.readouterr().out.split()
        assert len(printed) == len(shown.split())
        for found, expected in zip(printed, shown.split()):
            try:
                assert float(found) == pytest.approx(float(expected), rel=0.02, abs=1e-6)
            except ValueError:
                assert found == expected


def test_the_page_names_every_column_and_threshold() -> None:
    for column in COLUMNS:
        assert f"`{column}`" in PAGE or column.startswith("predicted_"), column
    text = " ".join(PAGE.split())
    assert (_verdict.SPREAD, _verdict.FADED, _verdict.GRADIENT) == (1000, 1 / 1000, 1000)
    assert (_verdict.DEAD, _verdict.DISTINCT, _verdict.ENOUGH) == (0.25, 0.25, 16)
    assert "with 16 samples or more" in text


@pytest.mark.parametrize("member", ["permutation", "identity"])
def test_members_that_clip_nothing_are_predicted_as_such(member: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(20) for m in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 10))
    initialize_(model, member=member, seed=0)
    initialize_(model[0], seed=1)  # the first layer mixes, as a rectangular one would
    found = diagnose(model, torch.randn(256, 64) + 0.3, torch.arange(256) % 10)
    rows = found.layers[:-1]
    for row in rows:
        assert row.predicted_active == pytest.approx(row.active, abs=0.02)
        assert row.predicted_pre_std == pytest.approx(row.pre_std, rel=0.03)
        assert row.predicted_gradient == pytest.approx(row.gradient, rel=0.1)
    assert rows[-1].predicted_active < 0.7  # where a uniform member would have woken the units up
