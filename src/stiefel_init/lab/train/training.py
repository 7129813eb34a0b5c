"""Training a stack: `train` picks the engine, runs the epochs and returns each network's outcome."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from ...core.errors import StiefelError
from ...torch.sampling.tensors import products
from .cell import Cell
from .checkpoint import Checkpoint
from .concurrency import spread
from .evaluation import evaluate
from .fused import FusedEngine
from .graph import GraphEngine
from .record import Outcome
from .stack import Engine, Stack
from .task import Task
from .watched import Followers, Watching

EngineName = Literal["auto", "fused", "graph"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
_ENGINES: tuple[type[Engine], ...] = (FusedEngine, GraphEngine)
_BUILDING = threading.Lock()
"""Stacks on one GPU are built one at a time: what sampling keeps for later must be there before others use it."""
TESTS = 20
"""About how many times a run is tested."""


def pick_engine(name: EngineName, cell: Cell, task: Task, device: torch.device) -> type[Engine]:
    """The engine of that name, or for `"auto"` the first that suits the cell and the device.

    Raises:
        StiefelError: if the engine cannot train the cell.
    """
    for engine in _ENGINES:
        if name == "auto" and engine.suits(cell, task, device):
            return engine
        if name == engine.name:
            if (reason := engine.refuses(cell, task)) is not None:
                raise StiefelError(reason)
            return engine
    raise AssertionError(f"the graph engine suits everything, {name} too")


def test_epochs(cell: Cell) -> set[int]:
    """The epochs after which a cell is tested: the last, and unless it has few shots, about twenty of them.

    >>> sorted(test_epochs(Cell("digits", epochs=3))), len(test_epochs(Cell("digits", epochs=100)))
    ([1, 2, 3], 20)
    """
    every = max(1, cell.epochs // TESTS) if cell.shots is None else cell.epochs
    return {*range(every, cell.epochs + 1, every), cell.epochs}


def train(
    cells: Sequence[Cell],
    tasks: Sequence[Task],
    device: torch.device,
    progress: Callable[[int], None] = lambda epoch: None,
    engine: EngineName = "auto",
    keep: Path | None = None,
    watching: Watching | None = None,
) -> tuple[list[Outcome], str]:
    """Train the cells as one stack; returns their outcomes and the engine's name.

    They must agree in `stack_key` and in the shapes of their tasks. With `keep`, files whose names begin so let a stack
    that was killed go on where it was. Networks are watched by the graph engine alone, which takes single steps.
    """
    if watching is not None and not any(map(watching.chosen, cells)):
        watching = None
    kind = pick_engine(engine if watching is None else "graph", cells[0], tasks[0], device)

    def part(first: int, last: int, tell: Callable[[int], None], check: Callable[[], None]) -> list[Outcome]:
        file = None if keep is None else keep.with_name(f"{keep.name}-{first}-{last}.pt")
        with _BUILDING if device.type == "cuda" else nullcontext():
            stack = Stack(cells[first:last], tasks[first:last], device, check)
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()
        return _train(stack, kind, tell, file, watching)

    with products(device.type, "ieee" if cells[0].precision == "float32" else "tf32"):
        if kind is GraphEngine and device.type == "cpu":
            return spread(len(cells), part, progress), kind.name
        return part(0, len(cells), progress, lambda: None), kind.name


def _train(
    stack: Stack,
    kind: type[Engine],
    progress: Callable[[int], None],
    keep: Path | None,
    watching: Watching | None,
) -> list[Outcome]:
    trainer = kind(stack)
    outcomes = [Outcome() for _ in stack.cells]
    epochs, few = stack.cells[0].epochs, stack.cells[0].shots is not None
    tested = test_epochs(stack.cells[0])
    checkpoint = Checkpoint(keep, stack, trainer)
    done, row = checkpoint.restore(outcomes)
    if watching is not None:
        stack.followers = Followers(watching, stack, done * -(-stack.size // stack.batch) + row // stack.batch)
    try:
        for epoch in range(done + 1, epochs + 1):
            stack.shuffle(epoch - 1)
            loss, correct = trainer.epoch(row, partial(checkpoint.keep, epoch - 1, outcomes))
            row = 0
            last = epoch == epochs
            if last or not few:  # few-shot epochs are single steps: only the last matters
                _note(outcomes, stack, epoch, loss, correct)
                if epoch in tested:
                    _test(outcomes, stack, epoch, last)
            progress(epoch)
            if not last:
                checkpoint.keep(epoch, outcomes)
    finally:
        if stack.followers is not None:
            stack.followers.close()
        trainer.close()
    return outcomes


def _note(outcomes: list[Outcome], stack: Stack, epoch: int, loss: Tensor, correct: Tensor) -> None:
    mean = (loss.double() / stack.size).tolist()
    right = (100 * correct.double() / stack.size).tolist()
    for outcome, one_loss, one_right, unit in zip(outcomes, mean, right, stack.units.tolist()):
        outcome.train_loss.append(one_loss)
        outcome.train_score.append(one_right if stack.loss == "cross_entropy" else math.sqrt(max(one_loss, 0)) * unit)
        if outcome.diverged is None and not math.isfinite(one_loss):
            outcome.diverged = epoch


def _test(outcomes: list[Outcome], stack: Stack, epoch: int, last: bool) -> None:
    tested = evaluate(stack, last=last)
    columns = [[None] * len(outcomes) if values is None else values.tolist() for values in tested]
    for outcome, *values in zip(outcomes, *columns):
        outcome.tested.append(epoch)
        outcome.test_score.append(values[0])
        for name, value in zip(tested._fields, values):
            setattr(outcome, name, value)
