"""`diagnose` leaves the model, its generators and its settings exactly as they were."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from diagnosed import IMAGES, LABELS, mlp
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init import StiefelError
from stiefel_init.torch import diagnose


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
