"""Optimizers that stay on the set, in the laboratory: the library's own, as an ordinary loop has them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from conftest import assert_refused
from plain_training import (
    DEVICE,
    ENGINES,
    batch_of,
    engine_of,
    epoch,
    flat,
    images,
    of_stack,
    plain,
    table,
    train_beside,
)
from torch import nn

from stiefel_init import StiefelError, check
from stiefel_init.core import geometry as _on_set
from stiefel_init.lab.train.cell import ON_SET, Cell, OptimizerName
from stiefel_init.lab.train.optimizer import ANGLES
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


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_without_the_ones_weights_stay_orthogonal_and_leave_the_set() -> None:
    cells = [
        Cell("none", depth=4, width=6, seed=seed, batch=16, rate=0.02, optimizer="orthogonal-adam") for seed in range(2)
    ]
    ends = {}
    for engine in ENGINES:
        trainer = engine_of(engine, cells, [images(17, seed=seed) for seed in range(2)])
        for number in range(2):
            epoch(trainer, number)
        weights = torch.stack(trainer.stack.parameters.weights[1:-1])
        assert float((weights @ weights.mT - torch.eye(6, device=weights.device)).abs().max()) < 1e-5
        assert float((weights.sum(-1) - 1).abs().max()) > 0.05, "out of the set"
        ends[engine] = trainer.stack.parameters.flat
    torch.testing.assert_close(ends["graph"], ends["fused"], atol=2e-4, rtol=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("engine", ENGINES)
def test_weights_are_let_go_after_half_of_the_steps(engine: EngineName) -> None:
    """Then Adam, which followed their gradients from the start, trains them at a sixteenth of the rate."""
    cell = Cell(
        "none", depth=4, width=6, activation="elu", epochs=4, batch=16, rate=0.02, optimizer="stiefel-adam",
        schedule="release",
    )  # fmt: skip
    problem = images(37)
    trainer = engine_of(engine, [cell], [problem])
    stack = trainer.stack
    for number in range(2):
        epoch(trainer, number)
    hidden = stack.parameters.weights[1:-1]
    assert all(check(weight, tol=1e-5) for weight in hidden)
    network = plain(stack, 0)
    adam = torch.optim.Adam(network.parameters(), lr=0.02)
    moments = trainer.state()[:2]
    for number, parameter in enumerate(network.parameters()):
        first, second = (of_stack(stack, 0, moment.reshape(1, -1)[:, : stack.net.parameters]) for moment in moments)
        kept = first[number].view_as(parameter), second[number].view_as(parameter)
        adam.state[parameter] = {"step": torch.tensor(6.0), "exp_avg": kept[0], "exp_avg_sq": kept[1]}
    for number in (2, 3):
        stack.shuffle(number)
        for group in adam.param_groups:  # whose rate falls from step to step
            group["lr"] = 0.0
        trainer.epoch()
        for start in range(0, stack.size, stack.batch):
            x, y = batch_of(stack, problem, 0, start, min(start + stack.batch, stack.size))
            adam.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()
            adam.param_groups[0]["lr"] = 0.02 * stack.rate_factor(start)
            adam.step()
    for found, expected in zip(of_stack(stack, 0, stack.parameters.flat), flat(network)):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    assert not any(check(weight, tol=1e-5) for weight in hidden)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("engine", ENGINES)
def test_gains_are_learned_beside_members(engine: EngineName) -> None:
    """As autograd has the gradients of W = eˢQ, torch's Adam the steps of s, and the library those of Q."""
    rate = 0.05
    cell = Cell(
        "none", depth=4, width=6, activation="elu", epochs=2, batch=16, rate=rate, optimizer="gain-adam",
        schedule="cosine",
    )  # fmt: skip
    problem = images(20)
    trainer = engine_of(engine, [cell], [problem])
    stack = trainer.stack
    network = plain(stack, 0)
    names = ["2.weight", "4.weight", "6.weight"]
    q = [network.get_parameter(name).detach().clone().requires_grad_() for name in names]
    s = [torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in names]
    free = [parameter for name, parameter in network.named_parameters() if name not in names]
    groups: list[dict[str, Any]] = [{"params": free}, {"params": s, "lr": rate / 4}]
    adam = torch.optim.Adam(groups, lr=rate)
    moments: list[Any] = [(torch.zeros_like(each), torch.zeros_like(each)) for each in q]
    for number in range(2):
        epoch(trainer, number)
        for step, start in enumerate(range(0, stack.size, stack.batch), 2 * number + 1):
            x, y = batch_of(stack, problem, 0, start, min(start + stack.batch, stack.size))
            weights = {name: gain.exp() * member for name, gain, member in zip(names, s, q)}
            for tensor in (*free, *s, *q):
                tensor.grad = None
            nn.functional.cross_entropy(torch.func.functional_call(network, weights, x), y).backward()
            factor = stack.rate_factor(start)
            for group, full in zip(adam.param_groups, (rate, rate / 4)):
                group["lr"] = factor * full
            adam.step()
            for place, member in enumerate(q):
                with torch.no_grad():
                    first, second = moments[place]
                    new, *moments[place] = _on_set.adam_step(member, member.grad, first, second, step, factor * rate)
                    member.copy_(new)
    for weight, gain, member in zip(stack.parameters.weights[1:-1], s, q):
        torch.testing.assert_close(weight[0].cpu().double(), (gain.exp() * member).detach(), atol=1e-4, rtol=0)
        assert abs(float(gain.detach())) > 0.01
        assert check(weight[0] / weight[0].sum(-1).mean(), tol=1e-5)


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
