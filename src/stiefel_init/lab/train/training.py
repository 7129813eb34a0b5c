"""Training a stack: `train` picks the engine, runs the epochs, tests, keeps what a killed stack needs to go on, and
returns each network's outcome."""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...core import stream as _stream
from ...core.errors import StiefelError
from ...torch.sampling.stream import normals
from ...torch.sampling.tensors import products
from ..files import replace
from .cell import Cell
from .concurrency import spread
from .family import PERCEPTRON
from .fused import FusedEngine
from .graph import GraphEngine
from .modules import SlotEngine, convolutions
from .problem import Problem
from .record import Outcome
from .source import source_hash
from .stack import BINS, ROWS, Engine, Stack
from .watched import Followers, Watching

EngineName = Literal["auto", "fused", "graph", "slots"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
_ENGINES: tuple[type[Engine], ...] = (SlotEngine, FusedEngine, GraphEngine)
_BUILDING = threading.Lock()
"""Stacks on one GPU are built one at a time: what sampling keeps for later must be there before others use it."""
TESTS = 20  # about how many times a run is tested
CHECKPOINT_EVERY = 60.0  # seconds of work that a kill may cost
MOST_BYTES = 2 << 30
"""A stack with more state than this is not kept: writing it would take longer than training it again."""
NOISE = 0.3
"""Standard deviation of the noise, in the unit of the network's inputs: pixels from 0 to 1, standardized features."""


def pick_engine(name: EngineName, cell: Cell, problem: Problem, device: torch.device) -> type[Engine]:
    """The engine of that name, if it can train the cell; for `"auto"` the first that suits it and the device."""
    if name != "auto" and (name == SlotEngine.name) == (cell.network == PERCEPTRON):
        raise StiefelError(f"engine={name!r} does not train network={cell.network!r}; leave it out.")
    for engine in _ENGINES:
        if name == "auto" and engine.suits(cell, problem, device):
            return engine
        if name == engine.name:
            if (reason := engine.refuses(cell, problem)) is not None:
                raise StiefelError(reason)
            return engine
    raise AssertionError(f"the graph engine suits everything, {name} too")


def epochs_tested(cell: Cell) -> set[int]:
    """The epochs after which a cell is tested: the last, and unless it has few shots, about twenty of them.

    >>> sorted(epochs_tested(Cell("digits", epochs=3))), len(epochs_tested(Cell("digits", epochs=100)))
    ([1, 2, 3], 20)
    """
    every = max(1, cell.epochs // TESTS) if cell.shots is None else cell.epochs
    return {*range(every, cell.epochs + 1, every), cell.epochs}


def train(
    cells: Sequence[Cell],
    problems: Sequence[Problem],
    device: torch.device,
    progress: Callable[[int], None] = lambda epoch: None,
    engine: EngineName = "auto",
    keep: Path | None = None,
    watching: Watching | None = None,
) -> tuple[list[Outcome], str]:
    """Train the cells as one stack; returns their outcomes and the engine's name.

    They must agree in `stack_key` and in the shapes of their problems. With `keep`, files whose names begin so let
    a killed stack go on where it was. Networks are watched by the graph engine alone, which takes single steps.
    """
    if watching is not None and not any(map(watching.chosen, cells)):
        watching = None
    kind = pick_engine(engine, cells[0], problems[0], device)
    if watching is not None and kind is FusedEngine:
        kind = GraphEngine

    def part(first: int, last: int, tell: Callable[[int], None], check: Callable[[], None]) -> list[Outcome]:
        with _BUILDING if device.type == "cuda" or kind is SlotEngine else nullcontext():
            stack = kind.networks(cells[first:last], problems[first:last], device, check)
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()
        file = None if keep is None else keep.with_name(f"{keep.name}-{first}-{last}.pt")
        measured = kind is SlotEngine and device.type == "cuda"
        if measured:
            torch.cuda.reset_peak_memory_stats(device)
        outcomes = _train(stack, kind(stack), tell, file, watching)
        for outcome in outcomes if measured else ():
            outcome.memory = torch.cuda.max_memory_allocated(device) / len(outcomes)
        return outcomes

    precision = cells[0].precision
    with products(device.type, "ieee" if precision == "float32" else "tf32"), convolutions(device, precision):
        if kind is not FusedEngine and device.type == "cpu":
            return spread(len(cells), part, progress), kind.name
        return part(0, len(cells), progress, lambda: None), kind.name


def _train(
    stack: Stack, engine: Engine, progress: Callable[[int], None], keep: Path | None, watching: Watching | None
) -> list[Outcome]:
    cell, outcomes = stack.cells[0], [Outcome() for _ in stack.cells]
    tested = epochs_tested(cell)
    checkpoint = Checkpoint(keep, stack, engine)
    done, row = checkpoint.restore(outcomes)
    if watching is not None:
        stack.followers = Followers(watching, stack, done * stack.steps + row // stack.batch)
    try:
        for epoch in range(done + 1, cell.epochs + 1):
            stack.shuffle(epoch - 1)
            loss, correct = engine.epoch(row, partial(checkpoint.keep, epoch - 1, outcomes))
            row, last = 0, epoch == cell.epochs
            if last or cell.shots is None:  # few-shot epochs are single steps: only the last matters
                _note(outcomes, stack, epoch, loss, correct)
                if epoch in tested:
                    _test(outcomes, stack, epoch, last)
            progress(epoch)
            if not last:
                checkpoint.keep(epoch, outcomes)
    finally:
        engine.close()
    return outcomes


class Checkpoint:
    """What one stack needs to go on after a kill, in a file; without a path it does nothing."""

    def __init__(self, path: Path | None, stack: Stack, engine: Engine) -> None:
        self.stack, self.engine = stack, engine
        self.path = path if sum(tensor.nbytes for tensor in self._state()) <= MOST_BYTES else None
        self.maker = {"engine": engine.name, "source": source_hash()}
        self.last = time.monotonic()

    def _state(self) -> list[Tensor]:
        return [*self.stack.state(), *self.engine.state()]

    def restore(self, outcomes: list[Outcome]) -> tuple[int, int]:
        """Put stack, engine and outcomes where they were; the epochs that are done, and the row of the next one."""
        if self.path is None or not self.path.exists():
            return 0, 0
        try:
            kept: dict[str, Any] = torch.load(self.path, map_location=self.stack.order.device, weights_only=True)
            if not self.maker.items() <= kept.items() or len(kept["outcomes"]) != len(outcomes):
                return 0, 0  # other code may train another way
            state = self._state()
            if [tensor.shape for tensor in state] != [value.shape for value in kept["state"]]:
                return 0, 0
            for tensor, value in zip(state, kept["state"]):
                tensor.copy_(value)
            outcomes[:] = [Outcome(**values) for values in kept["outcomes"]]
            return int(kept["epoch"]), int(kept["row"])
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, EOFError, UnpicklingError):
            return 0, 0  # damaged: nothing but time is lost

    def keep(self, epoch: int, outcomes: Sequence[Outcome], row: int = 0) -> None:
        """Write the file, if the last time was long ago: after so many epochs, and rows of the next one."""
        if self.path is None or time.monotonic() - self.last < CHECKPOINT_EVERY:
            return
        buffer, state = io.BytesIO(), [tensor.contiguous() for tensor in self._state()]
        done = {"epoch": epoch, "row": row, "outcomes": [asdict(outcome) for outcome in outcomes]}
        torch.save({**self.maker, **done, "state": state}, buffer)
        try:
            replace(self.path, buffer.getvalue())
        except OSError:
            self.path = None  # a disk without room costs only the chance to resume
        self.last = time.monotonic()


def _note(outcomes: list[Outcome], stack: Stack, epoch: int, loss: Tensor, correct: Tensor) -> None:
    mean = (loss.double() / stack.size).tolist()
    right = (100 * correct.double() / stack.size).tolist()
    for outcome, one_loss, one_right, unit in zip(outcomes, mean, right, stack.units.tolist()):
        outcome.train_loss.append(one_loss)
        outcome.train_score.append(one_right if stack.loss == "cross_entropy" else math.sqrt(max(one_loss, 0)) * unit)
        if outcome.diverged is None and not math.isfinite(one_loss):
            outcome.diverged = epoch


def _test(outcomes: list[Outcome], stack: Stack, epoch: int, last: bool) -> None:
    found = {name: values.tolist() for name, values in evaluate(stack, last=last).items()}
    for place, outcome in enumerate(outcomes):
        for name, values in found.items():
            setattr(outcome, name, values[place])
        outcome.tested.append(epoch)
        outcome.test_score.append(outcome.score)


def evaluate(stack: Stack, *, last: bool = False) -> dict[str, Tensor]:
    """Of each network the score, and of a classification the rest: `balanced`, and after the `last` epoch `log_loss`,
    `calibration` and `noisy`, as `Record` explains them."""
    tests, predict = stack.data.tests, stack.predict
    count, total = len(stack.cells), tests.features.shape[1]

    def chunk(start: int, noise: float = 0.0) -> tuple[Tensor, Tensor]:
        some = slice(start, start + ROWS)
        x = stack.data.inputs(tests.features[:, some])
        if noise:
            key, (_, rows, inputs) = _stream.key(0, "noise"), x.shape
            x = x + noise * normals(key, (0, rows), (0, inputs), torch.float32, x.device)
        return tests.of_networks(x), tests.targets[:, some]

    chunks = range(0, total, ROWS)
    if stack.loss == "squared_error":
        squares = torch.zeros(count, dtype=torch.float64, device=stack.order.device)
        for x, y in map(chunk, chunks):
            squares += (predict(x).squeeze(-1) - tests.of_networks(y)).double().square().sum(1)
        return {"score": (squares / total).sqrt() * stack.units}
    classes = stack.outputs
    right = torch.zeros(count, classes, dtype=torch.float64, device=stack.order.device)
    rows, loss, gaps = torch.zeros_like(right), right.new_zeros(count), right.new_zeros(count, BINS)
    for x, y in map(chunk, chunks):
        out = predict(x)
        of_class = one_hot(y, classes).double()  # (parts, rows, classes)
        correct = (out.argmax(-1) == tests.of_networks(y)).double()
        right += _by_class(correct, tests.of_networks(of_class))
        rows += tests.of_networks(of_class.sum(1))
        if last:
            log_p = torch.log_softmax(out, -1)
            loss -= (log_p.double() * tests.of_networks(of_class)).sum((1, 2))
            confidence = log_p.exp().amax(-1).double().nan_to_num(0)
            which = (BINS * confidence).ceil().long().sub(1).clamp(0, BINS - 1)
            gaps += _by_class(correct - confidence, one_hot(which, BINS).double())
    shares = torch.where(rows > 0, right / rows, 0)
    scores = {"score": 100 * right.sum(1) / total, "balanced": 100 * shares.sum(1) / (rows > 0).sum(1)}
    if not last:
        return scores
    x, y = chunk(0, NOISE)
    noisy = (predict(x).argmax(-1) == tests.of_networks(y)).double()
    calibration = 100 * gaps.abs().sum(1) / total
    return scores | {"log_loss": loss / total, "calibration": calibration, "noisy": 100 * noisy.mean(1)}


def _by_class(values: Tensor, of_class: Tensor) -> Tensor:
    """The sums of a network's values over each class: (E, rows), (E, rows, classes) → (E, classes)."""
    if not of_class.stride(0):  # one for all: a single product
        return values @ of_class[0]
    return torch.bmm(values[:, None], of_class)[:, 0]
