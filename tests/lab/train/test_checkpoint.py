"""A stack that is killed goes on where it was, and ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from laboratory import MINE, small_cells, timeless

from stiefel_init.lab.train import training
from stiefel_init.lab.train.optimizer import Optimizer
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import train

CPU = torch.device("cpu")


def spied(method: Callable[..., None], spy: Callable[[Any], None]) -> Callable[..., None]:
    """A method that tells before it acts."""

    def acting(self: Any) -> None:
        spy(self)
        method(self)

    return acting


class KilledError(Exception):
    """The end of a process, as a test sees it."""


def interrupted(cells: Any, keep: Path, after: int) -> None:
    def stop(epoch: int) -> None:
        if epoch > after:
            raise KilledError

    with pytest.raises(KilledError):
        train(cells, [Problems(MINE)(cell) for cell in cells], CPU, stop, "graph", keep)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Each thread trains and keeps its own part of a stack; an end in one of them may find the others anywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "stiefel-adam", "stiefel-muon", "gain-adam"])
def test_a_stack_goes_on_where_it_was(optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    cells = [type(cell)(**{**cell.identity(), "epochs": 6}) for cell in small_cells(3, optimizer=optimizer)]
    problems = [Problems(MINE)(cell) for cell in cells]
    expected, _ = train(cells, problems, CPU, engine="graph")
    interrupted(cells, tmp_path / "kept", after=4)
    seen: list[int] = []
    found, _ = train(cells, problems, CPU, seen.append, "graph", tmp_path / "kept")
    assert seen == [5, 6], "four epochs were kept"
    assert found == expected


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("options", [{}, {"dropout": 0.2, "schedule": "cosine"}])
def test_a_long_epoch_goes_on_at_its_row(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch of a deep network takes longer than a minute, so it is kept within."""
    cells = [replace(cell, epochs=3, batch=7, **options) for cell in small_cells(2)]
    problems = [Problems(MINE)(cell) for cell in cells]
    expected, _ = train(cells, problems, CPU, engine="graph")
    killed = 2 * -(-problems[0].size // 7) - 2
    steps = 0

    def step(_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == killed:
            raise KilledError

    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    with monkeypatch.context() as context:
        context.setattr(Optimizer, "step", spied(Optimizer.step, step))
        with pytest.raises(KilledError):
            train(cells, problems, CPU, engine="graph", keep=tmp_path / "kept")
    taken = 0

    def count(_: Any) -> None:
        nonlocal taken
        taken += 1

    monkeypatch.setattr(Optimizer, "step", spied(Optimizer.step, count))
    found, _ = train(cells, problems, CPU, engine="graph", keep=tmp_path / "kept")
    assert found == expected
    assert taken == 3 * -(-problems[0].size // 7) - (killed - 1), "no step is repeated but the one that was killed"


@pytest.mark.parametrize("damage", ["cut", "other source", "other stack"])
def test_what_does_not_fit_is_trained_from_the_beginning(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    keep, cells = tmp_path / "kept", small_cells(2)
    interrupted(cells, keep, after=1)
    assert list(tmp_path.glob("kept-*.pt"))
    if damage == "cut":
        for file in tmp_path.glob("kept-*.pt"):
            file.write_bytes(file.read_bytes()[:-100])
    elif damage == "other source":
        monkeypatch.setattr(training, "source_hash", lambda: "another")
    else:
        cells = small_cells(3)
    seen: list[int] = []
    train(cells, [Problems(MINE)(cell) for cell in cells], CPU, seen.append, "graph", keep)
    assert seen == [1, 2]


def test_a_finished_stack_leaves_nothing_but_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 0.0)
    found = run(small_cells(2), out=tmp_path, device="cpu", datasets=MINE)
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]
    assert timeless(found) == timeless(run(small_cells(2), device="cpu", datasets=MINE))
