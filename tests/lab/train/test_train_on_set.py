"""Optimizers that stay on the set, in the laboratory: the library's own, as an ordinary loop has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import assert_refused
from laboratory import MINE, small_cells, timeless
from plain_training import engine_of, epoch, flat, images, of_stack, plain, reference_epoch, table
from torch import nn

from stiefel_init import check
from stiefel_init.lab.train.cell import PREFIX, Cell, OptimizerName
from stiefel_init.lab.train.on_set import ANGLES
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import pick_engine
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
@pytest.mark.parametrize("task", [images, table])
@pytest.mark.parametrize("width", [6, (6, 6, 9, 9, 4)])
@pytest.mark.parametrize("optimizer", RATES)
def test_the_laboratory_trains_as_the_optimizers_do(optimizer: OptimizerName, width: Any, task: Any) -> None:
    cells = [
        Cell("none", depth=5, width=width, activation="elu", seed=seed, batch=16, rate=rate, optimizer=optimizer)
        for seed, rate in enumerate(RATES[optimizer])
    ]
    tasks = [task(37, seed=seed) for seed in range(2)]
    trainer = engine_of("graph", cells, tasks)
    stack = trainer.stack
    start = stack.parameters.flat.clone()
    networks = [plain(stack, index) for index in range(2)]
    optimizers = [ordinary(network, cell) for network, cell in zip(networks, cells)]
    for number in range(4):
        losses, _ = epoch(trainer, number)
        for index in range(2):
            expected = reference_epoch(networks[index], optimizers[index], stack, tasks[index], index)
            assert float(losses[index]) / stack.size == pytest.approx(expected, rel=2e-4)
    for index, network in enumerate(networks):
        pairs = zip(of_stack(stack, index, stack.parameters.flat), flat(network))
        assert max(float((a - b).abs().max()) for a, b in pairs) < 2e-4
    for number, weight in enumerate(stack.parameters.weights):
        assert bool(check(weight, tol=1e-5)) == (0 < number < 5), number
    assert float((stack.parameters.flat - start).abs().max()) > 0.02


def test_outcomes_do_not_depend_on_companions(tmp_path: Path) -> None:
    cells = small_cells(3, optimizer="stiefel-adam", rate=0.05)
    together = run(cells, out=tmp_path / "together", datasets=MINE)
    alone = [run([cell], out=tmp_path / "alone", datasets=MINE)[0] for cell in cells]
    assert timeless(together) == timeless(alone)
    free = run([replace(cell, optimizer="adam") for cell in cells], out=tmp_path / "free", datasets=MINE)
    assert all(one.train_loss != other.train_loss for one, other in zip(together, free))


def test_who_can_train_them() -> None:
    cell = Cell("digits", optimizer="stiefel-adam")
    assert pick_engine("auto", cell, images(20), torch.device("cpu")).name == "graph"
    assert_refused(lambda: Cell("digits", "he", optimizer="stiefel-adam"), ["scheme='he'", "'permutation'"])
    assert_refused(lambda: Cell("digits", "lsuv", optimizer="stiefel-sgd"), ["scheme='lsuv'"])
    for scheme in ("permutation", "lee", "identity", "rotation 0.1"):
        assert Cell("digits", scheme, optimizer="stiefel-muon").optimizer.startswith(PREFIX)
