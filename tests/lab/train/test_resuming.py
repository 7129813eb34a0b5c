"""What is killed goes on where it was, and ends as if nothing had happened: none lost, none doubled."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from laboratory import MINE, SETS, keys_in, small_cells, small_network, timeless, train_small

from stiefel_init.lab.train import training
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.graph import GraphEngine
from stiefel_init.lab.train.modules import SlotEngine
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Outcome, Record
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import train

# A stack that is not finished.


class KilledError(Exception):
    """The end of a process, as a test sees it."""


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stack is kept after every step. One thread: an end in one of several may find the others anywhere."""
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(cells: list[Cell], keep: Path | None = None, kill_at: int | None = None) -> tuple[list[Outcome], list[int]]:
    """The outcomes of a stack, and the epochs that ended; killed when it tells of epoch `kill_at`."""
    seen: list[int] = []

    def tell(epoch: int) -> None:
        seen.append(epoch)
        if epoch == kill_at:
            raise KilledError

    problems = list(map(Problems(MINE | SETS), cells))
    return train(cells, problems, torch.device("cpu"), tell, keep=keep)[0], seen


@pytest.mark.usefixtures("keeping")
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "stiefel-adam", "stiefel-muon", "gain-adam"])
def test_a_stack_goes_on_where_it_was(optimizer: Any, tmp_path: Path) -> None:
    cells = [replace(cell, epochs=6) for cell in small_cells(3, optimizer=optimizer)]
    with pytest.raises(KilledError):
        trained(cells, tmp_path / "kept", kill_at=5)
    assert trained(cells, tmp_path / "kept") == (trained(cells)[0], [5, 6]), "four epochs were kept"


@pytest.mark.usefixtures("keeping")
@pytest.mark.parametrize("network", ["mlp", "cnn", "resnet8"])
def test_a_long_epoch_goes_on_at_its_row(network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of a deep network takes longer than a minute, so it is kept within."""
    cells = [replace(cell, epochs=3, batch=7) for cell in small_cells(2, dropout=0.2, schedule="cosine")]
    engine: Any = GraphEngine
    steps = 7
    if network != "mlp":
        cells = [small_network(network=network, seed=seed, epochs=3, augment="crop-flip") for seed in range(2)]
        engine, steps = SlotEngine, 5
    expected, _ = trained(cells)
    taken, step = 0, engine.step

    def counted(self: Any, start: int, stop: int) -> None:
        nonlocal taken
        taken += 1
        if taken == 2 * steps - 2:
            raise KilledError
        step(self, start, stop)

    monkeypatch.setattr(engine, "step", counted)
    with pytest.raises(KilledError):
        trained(cells, tmp_path / "kept")
    assert trained(cells, tmp_path / "kept")[0] == expected
    assert taken == 3 * steps + 1, "no step is repeated but the one that was killed"


@pytest.mark.usefixtures("keeping")
@pytest.mark.parametrize("damage", ["cut", "other source", "other stack"])
def test_what_does_not_fit_is_trained_from_the_beginning(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, cells = tmp_path / "kept", small_cells(2)
    with pytest.raises(KilledError):
        trained(cells, keep, kill_at=2)
    (file,) = tmp_path.glob("kept-*.pt")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "other source":
        monkeypatch.setattr(training, "source_hash", lambda: "another")
    else:
        cells = small_cells(3)
        file.rename(tmp_path / "kept-0-3.pt")
    assert trained(cells, keep)[1] == [1, 2]


@pytest.mark.usefixtures("keeping")
def test_a_finished_stack_leaves_nothing_but_its_records(tmp_path: Path) -> None:
    found = run(small_cells(2), out=tmp_path, device="cpu", datasets=MINE)
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]
    assert timeless(found) == timeless(run(small_cells(2), device="cpu", datasets=MINE))


# Processes that are killed, and several at once.

PROCESSES = multiprocessing.get_context("forkserver")
# Each worker is a process of its own, forked from one that has imported what takes long.
PROCESSES.set_forkserver_preload(["paper.registry", "pandas", "pytest"])
MANY = 120


def worker(out: Path, most: int, begun: Any) -> None:
    torch.set_num_threads(1)
    if begun is not None:
        begun.wait()
    train_small(out, MANY, most)


def start(out: Path, most: int, begun: Any = None) -> BaseProcess:
    process = PROCESSES.Process(target=worker, args=(out, most, begun))
    process.start()
    return process


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return timeless(train_small(tmp_path_factory.mktemp("uninterrupted"), MANY, 1))


@pytest.mark.slow
def test_two_processes_may_write_at_once(tmp_path: Path, uninterrupted: list[Record]) -> None:
    begun = PROCESSES.Barrier(2)
    processes = [start(tmp_path, most, begun) for most in (2, 3)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    told: list[str] = []
    found = train_small(tmp_path, MANY, warn=told.append)
    assert told == []
    assert [record.cell.seed for record in found] == list(range(MANY))
    for one, other in zip(found, uninterrupted):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_work(kills: int, tmp_path: Path, uninterrupted: list[Record]) -> None:
    moments, out, kept = random.Random(0), tmp_path / "out", [0]
    for _ in range(kills):
        process, files = start(out, 1), kept[-1] + moments.randint(1, 3)
        while process.is_alive() and len(list(out.glob("*.jsonl"))) < files:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.01))  # a network takes about as long: in the middle of one, or of a file
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        kept.append(len(keys_in(out)))
        assert kept[-2] < kept[-1] < MANY, "what was finished stays, and it was killed at work"
    told: list[str] = []
    assert timeless(train_small(out, MANY, 1, told.append)) == uninterrupted
    assert keys_in(out) == sorted(cell.key for cell in small_cells(MANY)), "none lost, none doubled"
    assert told == []
