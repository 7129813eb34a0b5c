"""Running cells: what goes together into a stack, what fits the memory, and in which order records come."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from laboratory import MINE, small_cells
from plain_training import DEVICE

from stiefel_init import StiefelError
from stiefel_init.lab.train import runner
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.family import DeviceName
from stiefel_init.lab.train.fused import FusedEngine
from stiefel_init.lab.train.graph import GraphEngine
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Outcome
from stiefel_init.lab.train.runner import run, work
from stiefel_init.lab.train.training import train

WHERE: DeviceName = "cuda" if DEVICE.type == "cuda" else "cpu"


def no_memory(count: int) -> None:
    if DEVICE.type == "cuda":
        raise torch.OutOfMemoryError("as much as there is")
    torch.empty(10**15)  # PyTorch's own error, on a CPU a RuntimeError


def test_out_of_memory_splits_the_stack_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(small_cells(7), datasets=MINE, device=WHERE)
    tried: list[int] = []

    def small_memory(cells: Sequence[Cell], *rest: Any) -> tuple[list[Outcome], str]:
        tried.append(len(cells))
        if len(cells) > 2:
            no_memory(len(cells))
        return train(cells, *rest)

    monkeypatch.setattr(runner, "train", small_memory)
    told: list[str] = []
    found = run(small_cells(7), datasets=MINE, device=WHERE, warn=told.append)
    assert tried == [7, 4, 2, 2, 3, 2, 1]
    assert len(told) == 3
    assert "7 networks did not fit" in told[0]
    for a, b in zip(found, expected):
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-5)
        assert (a.cell, a.score) == (b.cell, b.score)


def test_one_network_that_does_not_fit_and_other_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "train", lambda cells, *rest: no_memory(1))
    with pytest.raises(StiefelError, match="One network of depth 2 does not fit in the memory of"):
        run(small_cells(1), datasets=MINE, device=WHERE)
    monkeypatch.setattr(runner, "train", lambda cells, *rest: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="size"):
        run(small_cells(4), datasets=MINE, device=WHERE)


def test_a_trained_stack_gives_its_memory_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    for kind in (GraphEngine, FusedEngine):

        def watch(engine: Any, close: Callable[[Any], None] = kind.close) -> None:
            held.extend(weakref.ref(tensor) for tensor in (engine.stack.parameters.flat, engine.stack.data.features))
            close(engine)

        monkeypatch.setattr(kind, "close", watch)
    gc.disable()
    try:
        run(small_cells(2), datasets=MINE, device=WHERE)
    finally:
        gc.enable()
    assert [one() for one in held] == [None, None]


def test_stacks_hold_what_fits_and_trains_together_whatever_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = (
        small_cells(5)
        + small_cells(2, activation="elu")
        + small_cells(3, scheme="he")
        + [replace(cell, width=6) for cell in small_cells(1)]
    )
    problems = Problems(MINE)
    stacks = runner.plan(cells, problems, DEVICE, set(), most=4)
    assert sorted(map(len, stacks)) == [1, 2, 4, 4]
    assert sorted(cell.key for stack in stacks for cell in stack) == sorted(cell.key for cell in cells)
    done = {stacks[0][0], *stacks[2]}
    rest = runner.plan(cells, problems, DEVICE, done, most=4)
    assert rest == [part for stack in stacks if (part := [cell for cell in stack if cell not in done])]
    monkeypatch.setattr(runner, "_MEMORY_SHARE", 1e-12)
    assert [len(stack) for stack in runner.plan(small_cells(3), problems, DEVICE, set())] == [1, 1, 1], (
        "of little memory"
    )


def test_progress_counts_testing() -> None:
    few = Cell("digits", depth=3, width=8, epochs=40, shots=1, batch=None)
    problem = Problems()(few)
    without = replace(problem, test_features=problem.test_features[:1], test_targets=problem.test_targets[:1])
    assert work(few, problem) > work(few, without)
    assert work(replace(few, epochs=80), problem) < 2 * work(few, problem), "the one test stays one"
