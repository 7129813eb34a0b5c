"""All kinds of models under `diagnose`: shared, forked, compiled, frozen, the user's own; and all left as they were."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from diagnosed import IMAGES, LABELS, Residual, agrees, firing, mlp, plain
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import checkpoint

from stiefel_init import StiefelError
from stiefel_init.torch import diagnose


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
    compiled: Any = torch.compile(model, backend="eager")
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


class Restless(nn.Module):
    """Changes all it can in its forward, and fails on request."""

    count: Tensor

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


def numpys_state() -> np.ndarray:
    """Of NumPy's global generator, a copy."""
    return np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002


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
    generators = torch.get_rng_state(), random.getstate(), numpys_state()
    grad = model.layer.weight.grad
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    if fail:
        with pytest.raises(StiefelError, match=r"forward of Restless raised RuntimeError \(no\)"):
            diagnose(model, x, x)
    else:
        assert len(diagnose(model, x, x).layers) == 1
    assert set(called) == {"forward"}  # once for all examples, then for a few of them; no backward hook
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert {name: vars(module) for name, module in model.named_modules()} == attributes
    assert model.training == model.norm.training == training
    assert hooks == [(list(m._forward_hooks.items()), list(m._backward_hooks.items())) for m in model.modules()]
    assert (model.layer.weight.grad is grad, model.layer.bias.grad, model.memory) == (True, None, {"a": 1})
    assert torch.equal(grad, torch.ones(6, 6))
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert random.getstate() == generators[1]
    assert (numpys_state() == generators[2]).all()
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.is_grad_enabled()
    for handle in handles:
        handle.remove()


def test_it_works_where_gradients_are_off() -> None:
    model = mlp(3)
    expected = [row.gradient for row in diagnose(model, IMAGES, LABELS).layers]
    with torch.no_grad():
        assert [row.gradient for row in diagnose(model, IMAGES, LABELS).layers] == expected
