"""MetaInit: the quotient is what its formula says, and networks of a wrong scale learn after it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_refused, assert_refused_unchanged
from sklearn.datasets import load_digits
from torch import Tensor, nn

from stiefel_init.lab import Cell
from stiefel_init.torch import initialize_
from stiefel_init.torch.initialize.calibrate import gradient_quotient


def deep(outputs: int = 10) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(64, 16), nn.Tanh()]
    for _ in range(6):
        layers += [nn.Linear(16, 16), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(16, outputs))


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    return torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)


def accuracy_after_training(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model = copy.deepcopy(model)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for rows in torch.randperm(1400, generator=torch.Generator().manual_seed(0)).repeat(8).split(128):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        sgd.step()
    with torch.no_grad():
        return float((model(x[1400:]).argmax(1) == y[1400:]).double().mean())


def test_the_quotient_of_a_quadratic_is_its_mean_curvature() -> None:
    """½ Σ aᵢθᵢ² has g = aθ and Hg = a²θ, so that |Hg/g| = |a|."""
    curvature = torch.tensor([2.0, -0.5, 3.0, 1.0], dtype=torch.float64)
    at = torch.tensor([1.0, 2.0, -1.0, -3.0], dtype=torch.float64, requires_grad=True)
    quotient = gradient_quotient((curvature * at.square()).sum() / 2, [at], 1e-9)
    assert math.isclose(quotient.item(), float(curvature.abs().mean()), rel_tol=1e-6)


def test_a_network_of_a_wrong_scale_learns_after_meta_init() -> None:
    """Weights of N(0, 0.1²) are far too small for eight layers of 16 units, which then do no better than guess.

    Over seeds, the accuracy after 60 steps is 0.31 to 0.45.
    """
    x, y = digits()
    scores = {}
    for scheme in ("random", "meta-init random steps=60"):
        model = deep()
        initialize_(model, scheme, seed=0, inputs=None if scheme == "random" else x[:64])
        scores[scheme] = accuracy_after_training(model, x, y)
    before, after = scores.values()
    assert before < 0.15
    assert after > 0.2


def test_meta_init_changes_norms_alone_and_follows_the_seed() -> None:
    x, _ = digits()
    plain, model, again = deep(), deep(), deep()
    initialize_(plain, "xavier", seed=5)
    model.register_buffer("kept", torch.ones(2))
    mode = model.training
    plan = initialize_(model, "meta-init xavier steps=4", seed=5, inputs=x[:32])
    initialize_(again, "meta-init xavier steps=4", seed=5, inputs=x[:32])
    assert plan["0.weight"].action == "xavier 16×64"
    assert model.training == mode
    for a, b, c in zip(plain.parameters(), model.parameters(), again.parameters()):
        assert torch.equal(b, c)
        assert b.grad is None
        if a.ndim > 1:
            ratio = (b / a).detach()
            assert abs(float(ratio.mean()) - 1) > 1e-3
            torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=1e-4, atol=0)
        else:
            assert torch.equal(a, b)


def test_it_goes_through_attention_and_single_outputs() -> None:
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    initialize_(layer, "meta-init steps=2", inputs=x, seed=0)
    line = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    initialize_(line, "meta-init steps=2", inputs=x, seed=0)
    assert all(parameter.isfinite().all() for model in (layer, line) for parameter in model.parameters())


class NoNumbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).argmax(-1)


@pytest.mark.parametrize(
    ("build", "scheme", "inputs", "words"),
    [
        (deep, "meta-init", None, ["inputs="]),
        (deep, "meta-init", torch.ones(2, 3), ["does not run"]),
        (deep, "meta-init lsuv", torch.ones(2, 64), ["base='lsuv'"]),
        (deep, "meta-init nothing", torch.ones(2, 64), ["'nothing'"]),
        (deep, "meta-init rate=-1", torch.ones(2, 64), ["rate=-1"]),
        (lambda: deep().bfloat16(), "meta-init", torch.ones(2, 64).bfloat16(), ["bfloat16"]),
        (NoNumbers, "meta-init", torch.ones(2, 64), ["no tensor"]),
    ],
)
def test_what_it_cannot_start_is_refused(
    build: Callable[[], nn.Module], scheme: str, inputs: Any, words: list[str]
) -> None:
    assert_refused_unchanged(build(), scheme, words, inputs=inputs)


def test_the_laboratory_refuses_it() -> None:
    assert_refused(lambda: Cell("digits", "meta-init"), ["meta-init", "derivatives"])
