"""Training is that of an ordinary loop, for each network of a stack for itself, by both engines: with weight decay,
schedules, dropout and a learning rate of their own for the edge layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from plain_training import (
    DEVICE,
    ENGINES,
    ProblemMaker,
    engine_of,
    epoch,
    images,
    plain,
    reference_epoch,
    scramble_,
    table,
    train_beside,
)  # fmt: skip
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from stiefel_init.core import stream as _stream
from stiefel_init.lab.train.cell import PRECISIONS, Cell, stack_key
from stiefel_init.lab.train.family import OptimizerName, ScheduleName
from stiefel_init.lab.train.graph import Dropout
from stiefel_init.lab.train.problem import Problem, Problems
from stiefel_init.lab.train.stack import BINS, Stack
from stiefel_init.lab.train.training import EngineName, epochs_tested, evaluate, train

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
    edges = [parameter for module in {linear[0], linear[-1]} for parameter in module.parameters()]
    others = [p for p in network.parameters() if all(p is not edge for edge in edges)]
    groups = [{"params": others}, {"params": edges, "lr": cell.ends * cell.rate}]
    optimizer = kind(groups, lr=cell.rate, weight_decay=cell.decay)
    return Scheduled(optimizer) if cell.schedule == "cosine" else optimizer


def dropped(stack: Stack, index: int, number: int) -> Any:
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
    slopes = trainer.stack.parameters.slopes
    scramble_(trainer.stack)
    before = torch.zeros(0) if slopes is None else slopes.clone()
    forward = dropped if cells[0].dropout else lambda stack, index, number: nn.Sequential.__call__
    assert max(train_beside(trainer, problems, ordinary, EPOCHS, 3e-5, forward)) < 2e-5
    assert slopes is None or bool(slopes.ne(before).all()), "every slope has moved"


class Way(NamedTuple):
    """A way to train, of which the engines know two or three."""

    optimizer: OptimizerName = "adam"
    decays: tuple[float, ...] = (0.0, 0.0)
    schedule: ScheduleName = "constant"
    activation: str = "prelu"
    problem: ProblemMaker = images
    depth: int = 3
    ends: float = 1.0


DECAYS = (3.0, 1.5, 0.0)
"""Large, so that they show; one network has none, beside one of the same rate that has."""
# Every pair of optimizer, decay, schedule and loss, then rates of the edge layers, then smooth activations.
WAYS = [
    Way(), Way("adam", DECAYS, "cosine", problem=table), Way("sgd", schedule="cosine", problem=table),
    Way("sgd", DECAYS),
    Way("adam", (1.5, 0.0), "cosine", "relu", ends=7.0), Way("adam", (1.5, 0.0), "cosine", "relu", depth=1, ends=0.25),
    Way("sgd", (1.5, 0.0), "cosine", "relu", depth=2, ends=4.0),
    Way(activation="gelu"), Way(activation="silu"), Way(activation="tanh"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")  # of torch's own SequentialLR
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", WAYS, ids=range(len(WAYS)))
def test_training_is_that_of_an_ordinary_loop(way: Way, engine: EngineName) -> None:
    """Each network has its own rate, decay, data and order."""
    rates = (1e-3, 4e-3, 1e-3) if way.optimizer == "adam" else (0.02, 0.05, 0.02)
    cells = [
        Cell(
            "none", depth=way.depth, width=6, activation=way.activation, seed=seed, epochs=EPOCHS, batch=BATCH,
            rate=rate, optimizer=way.optimizer, decay=decay, schedule=way.schedule, ends=way.ends,
        )
        for seed, (rate, decay) in enumerate(zip(rates, way.decays))
    ]  # fmt: skip
    assert_ordinary(cells, [way.problem(ROWS, seed=seed) for seed in range(len(cells))], engine)


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize(
    ("activation", "problem"), [*((name, images) for name in ("relu", "prelu", "gelu", "tanh")), ("elu", table)]
)
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


def test_the_fused_engine_decays_where_it_applies_the_gradient_itself() -> None:
    """In tf32, with a batch of one tile; against the graph engine, whose products are exact, to tf32's error."""
    cell = Cell("none", depth=3, width=6, epochs=EPOCHS, batch=None, rate=1e-3, precision="tf32", schedule="cosine")
    cells = [cell, replace(cell, seed=1, decay=200.0)]
    one, other = engine_of("fused", cells, [images(ROWS)] * 2), engine_of("graph", cells, [images(ROWS)] * 2)
    assert one.shape["WHOLE"]
    for number in range(EPOCHS):
        epoch(one, number)
        epoch(other, number)
    found, expected = one.stack.parameters.flat, other.stack.parameters.flat
    assert float((found - expected).abs().max()) < 2e-3
    assert float(expected[1].norm()) < 0.8 * float(expected[0].norm()), "a decay that shows"


@pytest.mark.parametrize("engine", ENGINES)
def test_few_shots_are_one_batch(engine: EngineName) -> None:
    problem = replace(images(60), rows=np.arange(3, 60, 4))
    cell = Cell("none", depth=2, width=6, batch=None, shots=3, epochs=6, rate=0.01)
    stack = engine_of(engine, [cell], [problem]).stack
    network = plain(stack, 0)
    optimizer = torch.optim.Adam(network.parameters(), lr=cell.rate)
    outcome = train([cell], [problem], DEVICE, engine=engine)[0][0]
    for _ in range(cell.epochs):
        expected = reference_epoch(network, optimizer, stack, problem, 0)
        assert stack.order[0].tolist() == list(range(3, 60, 4))
    assert outcome.train_loss == [pytest.approx(expected, rel=1e-5)]
    assert outcome.tested == [cell.epochs]
    assert outcome.score == outcome.test_score[0] == pytest.approx(plain_score(network, problem))


# Testing.


def plain_score(network: nn.Sequential, problem: Problem) -> float:
    with torch.no_grad():
        out = network(torch.from_numpy(problem.test_features).double() / problem.scale).numpy()
    if problem.loss == "cross_entropy":
        return float(100 * (out.argmax(-1) == problem.test_targets).mean())
    return float(np.sqrt(np.square(out[:, 0] - problem.test_targets).mean()))


@pytest.mark.parametrize(("problem", "dropout"), [(images, 0.0), (table, 0.0), (images, 0.5)])
def test_the_test_score_is_that_of_each_network_on_its_own_test_rows(
    problem: ProblemMaker, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is dropped in a test."""
    monkeypatch.setattr("stiefel_init.lab.train.training.ROWS", 16)  # 40 rows in three parts
    shared, other = problem(20), problem(20, seed=1)
    problems = [shared, other, shared]
    stack = Stack([Cell("none", depth=2, width=6, seed=seed, dropout=dropout) for seed in range(3)], problems, DEVICE)
    scramble_(stack)
    expected = [plain_score(plain(stack, index), each) for index, each in enumerate(problems)]
    assert evaluate(stack)["score"].tolist() == pytest.approx(expected, rel=1e-5)


def test_calibration_and_noise_are_measured_once_networks_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stiefel_init.lab.train.training.ROWS", 16)  # 40 rows in three parts, noise in the first
    monkeypatch.setattr("stiefel_init.lab.train.training.NOISE", 2.0)  # so much that it shows in 16 rows
    problems = [images(20), images(20, seed=1)]
    stack = Stack([Cell("none", depth=2, width=6, seed=seed) for seed in range(2)], problems, DEVICE)
    scramble_(stack)
    assert list(evaluate(stack)) == ["score", "balanced"]
    tested = evaluate(stack, last=True)
    noise = 2.0 * _stream.normals(_stream.key(0, "noise"), (0, 16), (0, 21), np.float64)
    for index, problem in enumerate(problems):
        x, y = torch.from_numpy(problem.test_features).double() / problem.scale, problem.test_targets
        with torch.no_grad():
            network = plain(stack, index)
            p = network(x).softmax(-1).numpy()
            noisy = network(x[:16] + torch.from_numpy(noise)).argmax(-1).numpy()
        confidence, right = p.max(1), p.argmax(1) == y
        edges = np.linspace(0, 1, BINS + 1)
        bins = [(confidence > low) & (confidence <= high) for low, high in pairwise(edges)]
        error = sum(abs(right[b].mean() - confidence[b].mean()) * b.mean() for b in bins if b.any())
        found = [float(column[index]) for column in tested.values()]
        even = np.mean([right[y == label].mean() for label in np.unique(y)])
        expected = [100 * right.mean(), 100 * even, -np.log(p[range(40), y]).mean(), 100 * error]
        assert found == pytest.approx([*expected, 100 * (noisy == y[:16]).mean()], rel=1e-4)
    table_stack = Stack([Cell("none", depth=2, width=6)], [table(20)], DEVICE)
    assert list(evaluate(table_stack, last=True)) == ["score"]


# A cell's outcome depends on its identity.


def company(cell: Cell) -> list[Cell]:
    """`cell` in the third place of a stack of others."""
    others = [
        replace(cell, scheme=scheme, seed=seed, rate=0.002) for seed, scheme in enumerate(("he", "lee", "xavier"))
    ]
    return [*others[:2], cell, others[2]]


@pytest.mark.parametrize("engine", ENGINES)
def test_alone_or_in_a_stack(engine: EngineName) -> None:
    cell = Cell("none", "he", 3, 8, seed=5, batch=16)
    own, foreign = images(37), images(37, seed=1)
    trainers = engine_of(engine, [cell], [own]), engine_of(engine, company(cell), [foreign, own, own, foreign])
    alone, among = (trainer.stack for trainer in trainers)
    assert torch.equal(alone.parameters.flat[0], among.parameters.flat[2])
    orders = set()
    for number in range(3):
        loss, losses = (epoch(trainer, number)[0] for trainer in trainers)
        assert torch.equal(alone.order[0], among.order[2] - int(among.data.rows[2].min()))
        assert sorted(alone.order[0].tolist()) == list(range(37))
        assert float(losses[2]) == pytest.approx(float(loss[0]), rel=1e-6)
        orders.add(tuple(alone.order[0].tolist()))
    assert len(orders) == 3, "every epoch has its own order"
    assert not torch.equal(among.order[1], among.order[2]), "another seed, another order"


def test_the_same_cell_twice_gives_the_same_bits() -> None:
    cells = company(Cell("none", depth=2, width=8, batch=16, epochs=2))
    first, second = (train(cells, [images(21)] * 4, DEVICE, engine="fused") for _ in range(2))
    assert first == second
    assert first[1] == "fused"


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # as intended
@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_that_diverges_harms_no_other(engine: EngineName) -> None:
    cell = Cell("none", "he", 2, 8, batch=16, epochs=2, optimizer="sgd", rate=0.05)
    stacks = ([cell, replace(cell, seed=1, rate=rate), replace(cell, seed=2)] for rate in (0.05, 1e9))
    sound, lost = (train(stack, [table(21)] * 3, DEVICE, engine=engine)[0] for stack in stacks)
    assert [outcome.diverged for outcome in sound] == [None, None, None]
    assert (sound[0], sound[2]) == (lost[0], lost[2])
    assert lost[1].diverged in (1, 2)
    assert not math.isfinite(lost[1].train_loss[-1])
    assert all(map(math.isfinite, lost[1].train_loss[: lost[1].diverged - 1]))
    assert not math.isfinite(lost[1].score)


def test_the_precision_lasts_as_long_as_the_stack() -> None:
    backend: Any = torch.backends.mkldnn
    before, seen = backend.matmul.fp32_precision, []

    def look(epoch: int) -> None:
        seen.append(backend.matmul.fp32_precision)
        raise KeyboardInterrupt

    for precision in PRECISIONS[:2]:  # those of perceptrons
        cells = [Cell("none", depth=2, width=5, epochs=2, batch=16, precision=precision)]
        with pytest.raises(KeyboardInterrupt):
            train(cells, [images(37)], CPU, look, "graph")
        assert backend.matmul.fp32_precision == before
    assert seen == ["ieee", "tf32"]


# Schedules and dropout.


def factors(cells: Sequence[Cell], rows: int, number: int = 0, start: int = 0) -> torch.Tensor:
    """The factors of all layers, (networks, rows, units)."""
    dropout = Dropout(cells, rows, DEVICE)
    dropout.draw(number, start)
    return torch.cat(dropout.factors, 2).cpu()


def test_what_is_dropped_depends_on_the_seed_and_the_step_alone() -> None:
    cell = Cell("none", depth=2, width=7, seed=5, dropout=0.4)
    others = [replace(cell, seed=3), replace(cell, scheme="he", seed=4), cell, replace(cell, scheme="he")]
    alone, among = factors([cell], 20), factors(others, 20)
    assert torch.equal(alone[0], among[2])
    assert torch.equal(alone[0], among[3]), "the same for every scheme"
    assert not torch.equal(alone[0], among[0])
    assert torch.equal(torch.cat([factors([cell], 8, start=0), factors([cell], 12, start=8)], 1), alone)
    for p in (1e-12, 1 - 1e-12):
        found = factors([replace(cell, dropout=p)], 30)
        assert bool((found > 0).all() if p < 0.5 else (found == 0).all())


def test_stacks_share_all_that_shapes_their_steps_but_not_decay() -> None:
    cell = Cell("none")
    assert stack_key(replace(cell, decay=0.1)) == stack_key(cell)
    for other in (replace(cell, dropout=0.1), replace(cell, schedule="cosine"), replace(cell, ends=7.0)):
        assert stack_key(other) != stack_key(cell)


@pytest.mark.parametrize(
    ("options", "tested"),
    [
        ({"epochs": 7}, [*range(1, 8)]),
        ({"epochs": 40}, [*range(2, 41, 2)]),
        ({"epochs": 45}, [*range(2, 46, 2), 45]),
        ({"shots": 2, "batch": None}, [40]),
    ],
)
def test_the_tests_that_are_counted_are_those_that_are_made(options: dict[str, Any], tested: list[int]) -> None:
    cell, told = replace(Cell("digits", depth=3, width=8, epochs=40), **options), list[int]()
    outcome = train([cell], [Problems()(cell)], torch.device("cpu"), told.append)[0][0]
    assert told == list(range(1, cell.epochs + 1))
    assert outcome.tested == tested == sorted(epochs_tested(cell))
    assert len(outcome.test_score) == len(tested)
    assert len(outcome.train_loss) == len(outcome.train_score) == (cell.epochs if cell.shots is None else 1)
