"""Training is that of an ordinary loop, for each network of a stack for itself, by both engines."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from paper.tables.protocol import SCHEMES
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

from stiefel_init.core import stream as _stream
from stiefel_init.lab.train.cell import PRECISIONS, Cell, OptimizerName
from stiefel_init.lab.train.evaluation import NOISE, evaluate
from stiefel_init.lab.train.stack import BINS, Stack
from stiefel_init.lab.train.training import EngineName, train


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("problem", [images, table])
@pytest.mark.parametrize(("optimizer", "rates"), [("adam", (1e-3, 4e-3)), ("sgd", (0.02, 0.1))])
def test_training_is_that_of_an_ordinary_loop(
    optimizer: OptimizerName, rates: tuple[float, ...], problem: ProblemMaker, engine: EngineName
) -> None:
    # 37 rows in batches of 16: the last batch holds 5. Each network has its own rate, data and order; PReLU learns.
    problems = [problem(37, seed=seed) for seed in range(len(rates))]
    cells = [
        Cell("none", depth=3, width=6, activation="prelu", seed=seed, batch=16, rate=rate, optimizer=optimizer)
        for seed, rate in enumerate(rates)
    ]
    trainer = engine_of(engine, cells, problems)
    stack = trainer.stack
    scramble_(stack)
    networks = [plain(stack, index) for index in range(len(cells))]
    kind: Any = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
    optimizers = [kind(network.parameters(), lr=rate) for network, rate in zip(networks, rates)]
    start = stack.parameters.flat.clone()
    for number in range(2):
        losses, _ = epoch(trainer, number)
        for index, (network, one, learned) in enumerate(zip(networks, optimizers, problems)):
            expected = reference_epoch(network, one, stack, learned, index)
            assert float(losses[index]) / stack.size == pytest.approx(expected, rel=1e-5)
    assert stack.parameters.slopes is not None
    assert float((stack.parameters.slopes - start[:, -3:]).abs().min()) > 1e-4, "every slope has moved"
    for index, network in enumerate(networks):
        pairs = zip(of_stack(stack, index, stack.parameters.flat), flat(network))
        assert max(float((a - b).abs().max()) for a, b in pairs) < 1e-5


def test_the_fused_engine_takes_the_steps_of_the_other() -> None:
    cells = [Cell("none", scheme, 4, 8, seed=seed, batch=16) for seed, scheme in enumerate(("stiefel", "he", "lee"))]
    one, other = graph(cells, [images(80)] * 3), fused(cells, [images(80)] * 3)
    expected, found = one.stack.parameters.flat, other.stack.parameters.flat
    start = expected.clone()
    assert torch.equal(start, found)
    for step in range(5):
        one.steps[16](16 * step)
        other.step(16 * step, 16 * step + 16)
        assert float((found - expected).abs().max()) < 0.01 * cells[0].rate, step
    assert float((expected - start).abs().max()) > 2 * cells[0].rate


@pytest.mark.parametrize("engine", ENGINES)
def test_few_shots_are_one_batch(engine: EngineName) -> None:
    whole = images(60)
    problem = replace(whole, rows=np.arange(3, 60, 4))
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
    with torch.no_grad():
        right = (
            network(torch.from_numpy(problem.test_features).double() / 255).argmax(-1).numpy() == problem.test_targets
        )
    assert outcome.score == outcome.test_score[0] == pytest.approx(100 * right.mean())


@pytest.mark.parametrize("problem", [images, table])
def test_the_test_score_is_that_of_each_network_on_its_own_test_rows(
    problem: ProblemMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stiefel_init.lab.train.evaluation.ROWS", 16)  # 40 rows in three parts
    shared, other = problem(20), problem(20, seed=1)
    problems = [shared, other, shared]
    stack = Stack([Cell("none", depth=2, width=6, seed=seed) for seed in range(3)], problems, DEVICE)
    scramble_(stack)
    for index, (one, score) in enumerate(zip(problems, evaluate(stack)[0].tolist())):
        with torch.no_grad():
            out = plain(stack, index)(torch.from_numpy(one.test_features).double() / one.scale).numpy()
        if one.loss == "cross_entropy":
            expected = 100 * (out.argmax(-1) == one.test_targets).mean()
        else:
            expected = np.sqrt(np.square(out[:, 0] - one.test_targets).mean())
        assert score == pytest.approx(expected, rel=1e-5)


def test_calibration_and_noise_are_measured_once_networks_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stiefel_init.lab.train.evaluation.ROWS", 16)  # 40 rows in three parts, noise in the first
    problems = [images(20), images(20, seed=1)]
    stack = Stack([Cell("none", depth=2, width=6, seed=seed) for seed in range(2)], problems, DEVICE)
    scramble_(stack)
    assert evaluate(stack)[2:] == (None, None, None)
    tested = evaluate(stack, last=True)
    noise = NOISE * _stream.normals(_stream.key(0, "noise"), (0, 16), (0, 21), np.float64)
    for index, one in enumerate(problems):
        x, y = torch.from_numpy(one.test_features).double() / one.scale, one.test_targets
        with torch.no_grad():
            network = plain(stack, index)
            p = network(x).softmax(-1).numpy()
            noisy = network(x[:16] + torch.from_numpy(noise)).argmax(-1).numpy()
        confidence, right = p.max(1), p.argmax(1) == y
        edges = np.linspace(0, 1, BINS + 1)
        bins = [(confidence > low) & (confidence <= high) for low, high in pairwise(edges)]
        error = sum(abs(right[b].mean() - confidence[b].mean()) * b.mean() for b in bins if b.any())
        found = [float(column[index]) for column in tested if column is not None]
        even = np.mean([right[y == label].mean() for label in np.unique(y)])
        expected = [100 * right.mean(), 100 * even, -np.log(p[range(40), y]).mean(), 100 * error]
        assert found == pytest.approx([*expected, 100 * (noisy == y[:16]).mean()], rel=1e-4)
    table_stack = Stack([Cell("none", depth=2, width=6)], [table(20)], DEVICE)
    assert evaluate(table_stack, last=True)[1:] == (None,) * 4


# A cell's outcome depends on its identity.


def company(cell: Cell) -> list[Cell]:
    """`cell` in the third place of a stack of others."""
    others = [
        replace(cell, scheme=scheme, seed=seed, rate=0.002) for seed, scheme in enumerate(("he", "lee", "xavier"))
    ]
    return [*others[:2], cell, others[2]]


@pytest.mark.parametrize(("scheme", "engine"), [*((scheme, "graph") for scheme in SCHEMES), ("stiefel", "fused")])
def test_alone_or_in_a_stack(scheme: str, engine: EngineName) -> None:
    cell = Cell("none", scheme, 3, 8, seed=5, batch=16)
    problems = [images(37), images(37, seed=1)]
    trainers = (
        engine_of(engine, [cell], problems[:1]),
        engine_of(engine, company(cell), [problems[1], problems[0], problems[0], problems[1]]),
    )
    alone, among = (trainer.stack for trainer in trainers)
    assert torch.equal(alone.parameters.flat[0], among.parameters.flat[2])
    for number in range(2):
        loss, losses = (epoch(trainer, number)[0] for trainer in trainers)
        first = int(among.data.rows[2].min())
        assert torch.equal(alone.order[0], among.order[2] - first)
        assert sorted(alone.order[0].tolist()) == list(range(37))
        assert float(losses[2]) == pytest.approx(float(loss[0]), rel=1e-6)
    assert not torch.equal(among.order[1], among.order[2]), "another seed, another order"


def test_every_epoch_has_its_own_order() -> None:
    trainer = graph([Cell("none", depth=1, width=4, batch=16)], [images(64)])
    orders = []
    for number in range(3):
        epoch(trainer, number)
        orders.append(tuple(trainer.stack.order[0].tolist()))
    assert len(set(orders)) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_cell_twice_gives_the_same_bits(engine: EngineName) -> None:
    cells = company(Cell("none", depth=2, width=8, batch=16, epochs=2))
    first, second = (train(cells, [images(21)] * 4, DEVICE, engine=engine) for _ in range(2))
    assert first == second
    assert first[1] == engine


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # as intended
@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_that_diverges_harms_no_other(engine: EngineName) -> None:
    cell = Cell("none", "he", 2, 8, batch=16, epochs=2, optimizer="sgd", rate=0.05)
    problems = [table(21)] * 3
    sound = train([cell, replace(cell, seed=1), replace(cell, seed=2)], problems, DEVICE, engine=engine)[0]
    lost = train([cell, replace(cell, seed=1, rate=1e9), replace(cell, seed=2)], problems, DEVICE, engine=engine)[0]
    assert [outcome.diverged for outcome in sound] == [None, None, None]
    assert sound[0] == lost[0]
    assert sound[2] == lost[2]
    first = lost[1].diverged
    assert first in (1, 2)
    assert not math.isfinite(lost[1].train_loss[-1])
    assert all(map(math.isfinite, lost[1].train_loss[: first - 1]))
    assert not math.isfinite(lost[1].score)


@pytest.mark.parametrize("device", [DEVICE, torch.device("cpu")])
def test_the_precision_lasts_as_long_as_the_stack(device: torch.device) -> None:
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    before = backend.matmul.fp32_precision
    seen = []

    def look(epoch: int) -> None:
        seen.append(backend.matmul.fp32_precision)
        if epoch == 2:
            raise KeyboardInterrupt

    found = {}
    for precision in PRECISIONS:
        cells, problems = [Cell("none", depth=2, width=5, epochs=2, batch=16, precision=precision)], [images(37)]
        found[precision] = train(cells, problems, device, engine="graph")[0][0].train_loss
        with pytest.raises(KeyboardInterrupt):
            train(cells, problems, device, look, "graph")
        assert backend.matmul.fp32_precision == before
    assert seen == ["ieee", "ieee", "tf32", "tf32"]
    assert found["tf32"] == pytest.approx(found["float32"], rel=2e-2)


def test_outcomes_of_a_long_training_are_tested_now_and_then() -> None:
    cell = Cell("none", depth=2, width=5, epochs=45, batch=16)
    told: list[int] = []
    outcome = train([cell], [images(20)], DEVICE, told.append, "graph")[0][0]
    assert told == list(range(1, 46))
    assert len(outcome.train_loss) == len(outcome.train_score) == 45
    assert outcome.tested == [*range(2, 46, 2), 45]
    assert len(outcome.test_score) == len(outcome.tested)
