"""Weight decay, schedules and dropout: training as an ordinary loop has it, by every engine that takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from laboratory import MINE, small_cells
from plain_training import (
    DEVICE,
    ENGINES,
    ProblemMaker,
    engine_of,
    epoch,
    flat,
    fused,
    graph,
    images,
    of_stack,
    plain,
    reference_epoch,
    scramble_,
    table,
)
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from stiefel_init import StiefelError
from stiefel_init.core import stream as _stream
from stiefel_init.lab.train import training
from stiefel_init.lab.train.cell import Cell, OptimizerName, ScheduleName, stack_key
from stiefel_init.lab.train.evaluation import evaluate
from stiefel_init.lab.train.fused import FusedEngine
from stiefel_init.lab.train.graph import Dropout
from stiefel_init.lab.train.problem import Problem, Problems
from stiefel_init.lab.train.stack import Stack, factor
from stiefel_init.lab.train.training import EngineName, pick_engine, train

CPU = torch.device("cpu")
EPOCHS, ROWS, BATCH = 4, 37, 16
STEPS = EPOCHS * 3  # the last batch of an epoch holds 5 rows
WARM = 2


class Scheduled:
    """An optimizer whose schedule takes a step after each of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        warm_up = LinearLR(optimizer, 1 / WARM, 1.0, total_iters=WARM - 1)
        cosine = CosineAnnealingLR(optimizer, T_max=STEPS - WARM)
        self.schedule = SequentialLR(optimizer, [warm_up, cosine], milestones=[WARM])
        self.zero_grad = optimizer.zero_grad

    def step(self) -> None:
        self.optimizer.step()
        self.schedule.step()


def ordinary(network: nn.Module, cell: Cell) -> Any:
    """The optimizer of a cell as a user of PyTorch writes it."""
    kind: Any = {"adam": torch.optim.AdamW, "sgd": torch.optim.SGD}[cell.optimizer]
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    ends = [parameter for module in {linear[0], linear[-1]} for parameter in module.parameters()]
    others = [p for p in network.parameters() if all(p is not end for end in ends)]
    groups = [{"params": others}, {"params": ends, "lr": cell.ends * cell.rate}]
    optimizer = kind(groups, lr=cell.rate, weight_decay=cell.decay)
    return Scheduled(optimizer) if cell.schedule == "cosine" else optimizer


def dropped(stack: Stack, index: int, number: int) -> Callable[[nn.Sequential, torch.Tensor], torch.Tensor]:
    """The network's outputs in an epoch, batch after batch, with the outputs of hidden layers dropped."""
    cell, start = stack.cells[index], 0
    key = _stream.fold(_stream.key(cell.seed, "dropout"), number)

    def forward(network: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        nonlocal start
        count = sum(cell.hidden)
        words = _stream.words(key, (start, start + len(x)), (0, (count + 1) // 2)).reshape(len(x), -1)[:, :count]
        start += len(x)
        factors = torch.from_numpy((words.view(np.int32) / 2**32 + 0.5 >= cell.dropout) / (1 - cell.dropout))
        parts = iter(factors.split(list(cell.hidden), dim=1))
        for module in network:
            x = module(x) if isinstance(module, nn.Linear) else module(x) * next(parts)
        return x

    return forward


def assert_ordinary(cells: Sequence[Cell], problems: Sequence[Problem], engine: EngineName) -> None:
    """The engine trains every network of the stack as an ordinary loop in float64 does."""
    trainer = engine_of(engine, cells, problems)
    stack = trainer.stack
    scramble_(stack)
    networks = [plain(stack, index) for index in range(len(cells))]
    optimizers = [ordinary(network, cell) for network, cell in zip(networks, cells)]
    for number in range(EPOCHS):
        losses, _ = epoch(trainer, number)
        for index, (network, optimizer, problem) in enumerate(zip(networks, optimizers, problems)):
            forward = dropped(stack, index, number) if cells[index].dropout else nn.Sequential.__call__
            expected = reference_epoch(network, optimizer, stack, problem, index, forward)
            assert float(losses[index]) / stack.size == pytest.approx(expected, rel=3e-5)
    for index, network in enumerate(networks):
        pairs = zip(of_stack(stack, index, stack.parameters.flat), flat(network))
        assert max(float((a - b).abs().max()) for a, b in pairs) < 2e-5


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")  # of torch's own SequentialLR
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("problem", [images, table])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize(("optimizer", "rates"), [("adam", (1e-3, 4e-3, 1e-3)), ("sgd", (0.02, 0.05, 0.02))])
def test_decay_and_schedules_are_those_of_an_ordinary_loop(
    optimizer: OptimizerName,
    rates: tuple[float, ...],
    schedule: ScheduleName,
    problem: ProblemMaker,
    engine: EngineName,
) -> None:
    # Large decays, which show; one network has none, beside one of the same rate that has.
    decays = (3.0, 1.5, 0.0)
    cells = [
        Cell(
            "none", depth=3, width=6, activation="prelu", seed=seed, epochs=EPOCHS, batch=BATCH, rate=rate,
            optimizer=optimizer, decay=decay, schedule=schedule,
        )
        for seed, (rate, decay) in enumerate(zip(rates, decays))
    ]  # fmt: skip
    assert_ordinary(cells, [problem(ROWS, seed=seed) for seed in range(3)], engine)


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("optimizer", "ends", "depth"), [("adam", 7.0, 3), ("adam", 0.25, 1), ("sgd", 4.0, 2)])
def test_the_ends_learn_at_a_rate_of_their_own(
    optimizer: OptimizerName, ends: float, depth: int, engine: EngineName
) -> None:
    cells = [
        Cell(
            "none", depth=depth, width=6, seed=seed, epochs=EPOCHS, batch=BATCH, rate=rate, optimizer=optimizer,
            decay=decay, schedule="cosine", ends=ends,
        )
        for seed, (rate, decay) in enumerate(((2e-3, 1.5), (1e-3, 0.0)))
    ]  # fmt: skip
    assert_ordinary(cells, [images(ROWS, seed=seed) for seed in range(2)], engine)
    assert stack_key(cells[0]) != stack_key(replace(cells[0], ends=1.0))


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("problem", [images, table])
@pytest.mark.parametrize("activation", ["relu", "prelu", "elu", "gelu", "silu", "tanh"])
def test_dropout_is_that_of_an_ordinary_loop(activation: str, problem: ProblemMaker) -> None:
    """With layers of different widths, AdamW and a schedule besides."""
    cells = [
        Cell(
            "none", depth=3, width=(5, 9, 4), activation=activation, seed=seed, epochs=EPOCHS, batch=BATCH, rate=2e-3,
            decay=0.5, dropout=0.3, schedule="cosine",
        )
        for seed in range(2)
    ]  # fmt: skip
    assert_ordinary(cells, [problem(ROWS, seed=seed) for seed in range(2)], "graph")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation", ["gelu", "silu", "tanh"])
def test_the_smooth_activations_train_as_in_an_ordinary_loop(activation: str, engine: EngineName) -> None:
    cells = [
        Cell("none", depth=3, width=6, activation=activation, seed=seed, epochs=EPOCHS, batch=BATCH, rate=2e-3)
        for seed in range(2)
    ]
    assert_ordinary(cells, [images(ROWS), images(ROWS, seed=1)], engine)


def test_the_fused_engine_decays_where_it_applies_the_gradient_itself() -> None:
    """In tf32, with a batch of one tile; against the graph engine, whose products are exact, to tf32's error."""
    cells = [
        Cell(
            "none", depth=3, width=6, seed=seed, epochs=EPOCHS, batch=None, rate=1e-3, decay=decay, precision="tf32",
            schedule="cosine",
        )
        for seed, decay in enumerate((0.0, 200.0))
    ]  # fmt: skip
    one, other = fused(cells, [images(ROWS)] * 2), graph(cells, [images(ROWS)] * 2)
    assert one.shape["WHOLE"]
    for number in range(EPOCHS):
        epoch(one, number)
        epoch(other, number)
    found, expected = one.stack.parameters.flat, other.stack.parameters.flat
    assert float((found - expected).abs().max()) < 2e-3
    assert float(expected[1].norm()) < 0.8 * float(expected[0].norm()), "a decay that shows"


# Schedules.


@pytest.mark.parametrize("steps", [1, 2, 9, 10, 11, 1000])
def test_a_cosine_warms_up_and_falls_to_zero(steps: int) -> None:
    factors = [factor("cosine", step, steps) for step in range(steps)]
    warm = -(-steps // 10)
    assert factors[:warm] == pytest.approx([(step + 1) / warm for step in range(warm)])
    assert all(before >= after for before, after in pairwise(factors[warm - 1 :]))
    assert all(0 < value <= 1 for value in factors)
    if steps == 1000:
        assert factors[550] == pytest.approx(0.5)
        assert factors[-1] < 1e-5
    assert {factor("constant", step, steps) for step in range(steps)} == {1.0}


# Dropout.


def factors(cells: Sequence[Cell], rows: int, number: int = 0, start: int = 0) -> torch.Tensor:
    """The factors of all layers, (networks, rows, units)."""
    dropout = Dropout(cells, rows, DEVICE)
    dropout.draw(number, start)
    return torch.cat(dropout.factors, 2).cpu()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_output_is_dropped_with_its_probability(p: float) -> None:
    cells = [Cell("none", depth=2, width=50, seed=seed, dropout=p) for seed in range(4)]
    found = factors(cells, 400)
    assert found.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    kept = (found > 0).double()
    # 160,000 independent draws: 5 standard deviations, which chance exceeds once in 1.7 million.
    assert abs(float(kept.mean()) - (1 - p)) < 5 * (p * (1 - p) / kept.numel()) ** 0.5
    units = torch.cat(list((kept - kept.mean()).transpose(1, 2)))  # (networks · units, rows)
    correlation = torch.corrcoef(units) - torch.eye(len(units))
    # 79,800 pairs of 400 rows each: standard deviation 1/20; 6 of them by chance for one pair in 5·10⁸.
    assert float(correlation.abs().max()) < 6 / 20
    again = factors(cells, 400, number=1)
    assert 0.9 < float((again == found).double().mean()) / (p**2 + (1 - p) ** 2) < 1.1, "another epoch, other draws"


def test_what_is_dropped_depends_on_the_seed_and_the_step_alone() -> None:
    cell = Cell("none", depth=2, width=7, seed=5, dropout=0.4)
    others = [replace(cell, seed=3), replace(cell, scheme="he", seed=4), cell, replace(cell, scheme="he")]
    alone, among = factors([cell], 20), factors(others, 20)
    assert torch.equal(alone[0], among[2])
    assert torch.equal(alone[0], among[3]), "the same for every scheme"
    assert not torch.equal(alone[0], among[0])
    assert torch.equal(torch.cat([factors([cell], 8, start=0), factors([cell], 12, start=8)], 1), alone)


@pytest.mark.parametrize("p", [1e-12, 1 - 1e-12])
def test_probabilities_at_the_ends(p: float) -> None:
    found = factors([Cell("none", depth=1, width=9, dropout=p)], 30)
    assert bool((found > 0).all() if p < 0.5 else (found == 0).all())


def test_a_dropped_network_is_the_same_alone_and_in_a_stack_and_on_any_threads() -> None:
    cell = Cell("none", depth=3, width=8, seed=5, epochs=2, batch=16, dropout=0.2, decay=0.1, schedule="cosine")
    cells = [replace(cell, seed=1), replace(cell, scheme="he"), cell]
    alone = train([cell], [images(ROWS)], CPU)[0][0]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            among = train(cells, [images(ROWS)] * 3, CPU)[0][2]
            # Sums over the classes are rounded as the machine adds them; everything else is the same to the bit.
            rounded = {"log_loss": alone.log_loss, "calibration": alone.calibration}
            assert replace(among, **rounded) == alone  # type: ignore[arg-type]
            for name, value in rounded.items():
                assert getattr(among, name) == pytest.approx(value, rel=1e-6)
    finally:
        torch.set_num_threads(before)
    assert train([replace(cell, dropout=0.0)], [images(ROWS)], CPU)[0][0] != alone


def test_nothing_is_dropped_in_a_test() -> None:
    problem = images(ROWS)
    cell = Cell("none", depth=2, width=6, dropout=0.5, epochs=1)
    stack = graph([cell], [problem]).stack
    scramble_(stack)
    out = plain(stack, 0)(torch.from_numpy(problem.test_features).double() / problem.scale).argmax(-1).numpy()
    assert evaluate(stack)[0].tolist() == pytest.approx([100 * (out == problem.test_targets).mean()])


# Who trains what.


def test_every_combination_is_trained_or_refused_in_a_sentence() -> None:
    problem = images(ROWS)
    for activation in ("relu", "prelu", "gelu", "silu", "tanh", "tat"):
        for dropout in (0.0, 0.5):
            cell = Cell(
                "none", depth=2, width=6, epochs=1, activation=activation, decay=0.1, dropout=dropout, schedule="cosine"
            )
            assert pick_engine("auto", cell, problem, DEVICE).refuses(cell, problem) is None
            assert pick_engine("graph", cell, problem, DEVICE).name == "graph"
            if not dropout:
                assert pick_engine("fused", cell, problem, DEVICE).name == "fused"
                continue
            with pytest.raises(StiefelError, match=r"has no kernel for dropout=0.5; use engine='graph'[.]$"):
                pick_engine("fused", cell, problem, DEVICE)
            assert not FusedEngine.suits(cell, problem, torch.device("cuda"))


def test_stacks_share_dropout_and_schedule_but_not_decay() -> None:
    cell = Cell("none")
    assert stack_key(replace(cell, decay=0.1)) == stack_key(cell)
    assert stack_key(replace(cell, dropout=0.1)) != stack_key(cell)
    assert stack_key(replace(cell, schedule="cosine")) != stack_key(cell)


def test_a_killed_stack_goes_on_with_its_schedule_and_its_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    cells = [replace(cell, epochs=6) for cell in small_cells(3, dropout=0.2, decay=0.1, schedule="cosine")]
    problems = [Problems(MINE)(cell) for cell in cells]
    expected, _ = train(cells, problems, CPU)

    def stop(number: int) -> None:
        if number > 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(cells, problems, CPU, stop, keep=tmp_path / "kept")
    seen: list[int] = []
    found, _ = train(cells, problems, CPU, seen.append, keep=tmp_path / "kept")
    assert seen == [5, 6]
    assert found == expected
