"""Optimizers that stay on the set, in the laboratory: the library's own, as an ordinary loop has them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from conftest import assert_refused
from plain_training import DEVICE, ENGINES, engine_of, images, table, train_beside
from torch import nn

from stiefel_init import StiefelError, check
from stiefel_init.core import geometry as _on_set
from stiefel_init.lab.train.cell import ON_SET, Cell
from stiefel_init.lab.train.family import OptimizerName, ScheduleName
from stiefel_init.lab.train.optimizer import ANGLES
from stiefel_init.lab.train.stack import factor
from stiefel_init.lab.train.training import EngineName, pick_engine
from stiefel_init.torch.optim import StiefelAdam, StiefelMuon, StiefelSGD

RATES = {"stiefel-adam": (0.004, 0.02), "stiefel-sgd": (0.05, 0.2), "stiefel-muon": (0.004, 0.01)}


def ordinary(network: nn.Sequential, cell: Cell) -> Any:
    """As a user of the library writes it: the hidden weights on the set, all else off it."""
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    hidden = [layer.weight for layer in linear[1:-1]]
    rest = [p for p in network.parameters() if not any(p is weight for weight in hidden)]
    groups: list[dict[str, Any]] = [{"params": hidden, "on_set": True}, {"params": rest, "on_set": False}]
    if cell.optimizer == "stiefel-sgd":
        return StiefelSGD(groups, lr=cell.rate)
    if cell.optimizer == "stiefel-muon":
        return StiefelMuon(groups, lr=ANGLES * cell.rate, free_lr=cell.rate)
    return StiefelAdam(groups, lr=cell.rate)


@pytest.mark.filterwarnings("ignore:4 of 4 matrices:UserWarning")  # the loop is in float64, its start rounded
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in Triton's interpreter
@pytest.mark.parametrize(
    ("optimizer", "width", "engine", "problem"),
    [
        *product(RATES, (6, (6, 6, 9, 9, 4)), ["graph"], (images, table)),
        ("stiefel-adam", 6, "fused", images),  # fewer, as an interpreter runs them
        ("stiefel-sgd", 6, "fused", table),
    ],
)
def test_the_laboratory_trains_as_the_optimizers_do(
    optimizer: OptimizerName, width: Any, engine: EngineName, problem: Any
) -> None:
    epochs = 4 if engine == "graph" else 2
    cells = [
        Cell("none", depth=5, width=width, activation="elu", seed=seed, batch=16, rate=rate, optimizer=optimizer)
        for seed, rate in enumerate(RATES[optimizer])
    ]
    problems = [problem(37 if engine == "graph" else 20, seed=seed) for seed in range(2)]
    trainer = engine_of(engine, cells, problems)
    parameters = trainer.stack.parameters
    start = parameters.flat.clone()
    assert max(train_beside(trainer, problems, ordinary, epochs, 2e-4)) < 2e-4
    for number, weight in enumerate(parameters.weights):
        assert bool(check(weight, tol=1e-5)) == (0 < number < 5), number
    assert float((parameters.flat - start).abs().max()) > 0.005 * epochs


class ByHand:
    """Weights W = eˢQ between hidden layers: Q takes steps on the set, Adam those of s, until Adam has W for itself.

    That Adam, which has all else too, follows the gradients of W from the start; autograd has those of Q and s.
    """

    def __init__(self, network: nn.Sequential, cell: Cell) -> None:
        self.cell, self.kept, self.taken = cell, ON_SET[cell.optimizer], 0
        self.weights: list[Any] = [layer.weight for layer in network if isinstance(layer, nn.Linear)][1:-1]
        self.q = [weight.detach().clone().requires_grad_() for weight in self.weights]
        self.s = [torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in self.q]
        self.moments: list[Any] = [(torch.zeros_like(q), torch.zeros_like(q)) for q in self.q]
        self.free = torch.optim.Adam(network.parameters())
        self.gains = torch.optim.Adam(self.s)
        self.zero_grad = self.free.zero_grad

    def step(self) -> None:
        """Of all."""
        steps = 3 * self.cell.epochs
        rate = self.cell.rate * factor(self.cell.schedule, self.taken, steps)
        self.free.param_groups[0]["lr"] = rate
        self.gains.param_groups[0]["lr"] = rate / self.cell.depth if self.kept.gain else 0.0
        for q, s, weight in zip(self.q, self.s, self.weights):
            q.grad = s.grad = None
            (s.exp() * q * weight.grad).sum().backward()
        self.free.step()
        self.gains.step()
        self.taken += 1
        if self.cell.schedule == "release" and 2 * self.taken > steps:
            return
        with torch.no_grad():
            for place, (q, s, weight) in enumerate(zip(self.q, self.s, self.weights)):
                first, second = self.moments[place]
                new, *self.moments[place] = _on_set.adam_step(
                    q, q.grad, first, second, self.taken, rate, ones=self.kept.ones
                )
                q.copy_(new)
                weight.copy_(s.exp() * q)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("optimizer", "schedule", "rate"),
    [("stiefel-adam", "release", 0.02), ("gain-adam", "cosine", 0.05), ("orthogonal-adam", "constant", 0.02)],
)
def test_weights_that_are_let_go_or_have_a_gain_or_no_ones(
    optimizer: OptimizerName, schedule: ScheduleName, rate: float, engine: EngineName
) -> None:
    cell = Cell(
        "none", depth=4, width=6, activation="elu", epochs=4, batch=16, rate=rate, optimizer=optimizer,
        schedule=schedule,
    )  # fmt: skip
    trainer = engine_of(engine, [cell], [images(37)])
    assert max(train_beside(trainer, [images(37)], ByHand, cell.epochs, 2e-4)) < 1e-4
    for weight in trainer.stack.parameters.weights[1:-1]:
        gain = weight[0].sum(-1).mean()
        assert (optimizer == "gain-adam") == bool(check(weight[0] / gain, tol=1e-5))
        assert not check(weight, tol=1e-3)
        orthogonal = float((weight @ weight.mT - torch.eye(6, device=weight.device)).abs().max()) < 1e-5
        assert (optimizer == "orthogonal-adam") == orthogonal


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "release"}, ["optimizer='adam'", "'stiefel-adam'"]),
        ({"scheme": "he", "optimizer": "stiefel-adam"}, ["scheme='he'", "'permutation'"]),
        ({"scheme": "lsuv", "optimizer": "stiefel-sgd"}, ["scheme='lsuv'"]),
        ({"scheme": "he", "optimizer": "orthogonal-adam"}, ["orthogonal", "scheme='he'"]),
    ],
)
def test_cells_that_cannot_be_on_the_set(options: dict[str, Any], words: list[str]) -> None:
    assert_refused(lambda: Cell("digits", **options), words)


def test_who_can_train_them() -> None:
    cell = Cell("digits", optimizer="stiefel-adam")
    assert pick_engine("auto", cell, images(20), torch.device("cpu")).name == "graph"
    assert pick_engine("fused", cell, images(20), DEVICE).name == "fused"
    for refused in (replace(cell, optimizer="stiefel-muon"), replace(cell, width=65), replace(cell, precision="tf32")):
        with pytest.raises(StiefelError, match=r"has no kernel for optimizer='stiefel-.*use engine='graph'[.]$"):
            pick_engine("fused", refused, images(20), DEVICE)
    for scheme in ("permutation", "lee", "identity", "rotation 0.1"):
        assert Cell("digits", scheme, optimizer="stiefel-muon").optimizer in ON_SET
    assert Cell("digits", "orthogonal", optimizer="orthogonal-adam").optimizer in ON_SET
