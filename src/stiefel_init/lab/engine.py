"""The engine: trains one stack of networks, on a CPU or as CUDA graphs, and hands back what became of each.

A cell's outcome depends on its identity alone: its weights, the order of its data and its few shots come from
streams keyed by its seed, and the networks of a stack share nothing but the launches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _stream
from .._errors import StiefelError
from ..torch._stream import words
from . import fused
from .cells import Cell
from .networks import LOSSES, Architecture, Network, Optimizer, Parameters, initial, predict

EVALUATION_ROWS = 2048
ENGINES = ("auto", "fused", "graph")
TESTS = 20
"""About how often a training is tested on the way."""


@dataclass(frozen=True, eq=False)
class Task:
    """What one cell learns from. Rows of `features` are divided by `scale` before they enter the network."""

    features: np.ndarray
    targets: np.ndarray
    test_features: np.ndarray
    test_targets: np.ndarray
    outputs: int
    loss: str
    scale: float = 1.0
    rows: np.ndarray | None = None
    """The training rows to use; None for all."""

    @property
    def size(self) -> int:
        """Training rows."""
        return len(self.features) if self.rows is None else len(self.rows)


@dataclass
class Outcome:
    """What became of one cell. Accuracies in percent; for regression, root mean squared errors."""

    score: float = math.nan
    """Test accuracy, or test RMSE, after the last epoch."""
    train_loss: list[float] = field(default_factory=list)
    """Mean training loss of each epoch; of few shots, of the last step alone."""
    train_score: list[float] = field(default_factory=list)
    tested: list[int] = field(default_factory=list)
    """The epochs after which the test score was taken: all of a short training, every fifth of a hundred."""
    test_score: list[float] = field(default_factory=list)
    diverged: int | None = None
    """The first epoch whose training loss was not finite."""


class Data:
    """The tasks of a stack on its device: each array once, however many cells share it."""

    def __init__(self, tasks: Sequence[Task], device: torch.device) -> None:
        self.device = device
        self.scale = tasks[0].scale
        first_row: dict[int, int] = {}
        features: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        for task in tasks:
            if id(task.features) not in first_row:
                first_row[id(task.features)] = sum(len(part) for part in features)
                features.append(task.features)
                targets.append(task.targets)
        self.features = torch.from_numpy(np.concatenate(features)).to(device)
        self.targets = torch.from_numpy(np.concatenate(targets)).to(device)
        rows = [first_row[id(t.features)] + (np.arange(t.size) if t.rows is None else t.rows) for t in tasks]
        self.rows = torch.from_numpy(np.stack(rows)).to(device)
        self.tests: list[tuple[list[int], Tensor, Tensor]] = []
        by_test: dict[int, list[int]] = {}
        for index, task in enumerate(tasks):
            by_test.setdefault(id(task.test_features), []).append(index)
        for members in by_test.values():
            task = tasks[members[0]]
            arrays = torch.from_numpy(task.test_features).to(device), torch.from_numpy(task.test_targets).to(device)
            self.tests.append((members, *arrays))

    def inputs(self, features: Tensor) -> Tensor:
        """Stored features as the network takes them."""
        return features.to(torch.float32) / self.scale if self.scale != 1 else features.to(torch.float32)


class Step:
    """One training step on batches of `rows` rows, written once and, on a GPU, captured and replayed as a graph."""

    def __init__(self, epochs: GraphEpochs, rows: int) -> None:
        self.epochs, self.rows = epochs, rows
        stack = epochs.stack
        self.network = Network(stack.parameters, stack.net, rows, epochs.gradients)
        self.graph: Any = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        elif self.epochs.position.is_cuda and self.epochs.warm:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._run()
            self.graph.replay()
        else:
            self._run()
            # This first step also set up what a graph may not: optimizer state and library handles.
            self.epochs.warm = True

    def _run(self) -> None:
        epochs, stack = self.epochs, self.epochs.stack
        place = epochs.position + torch.arange(self.rows, device=epochs.position.device)
        rows = stack.order.index_select(1, place)
        x, y = stack.data.inputs(stack.data.features[rows]), stack.data.targets[rows]
        loss, correct, slope = LOSSES[stack.loss](self.network.forward(x), y)
        epochs.loss_sum += loss
        epochs.correct_sum += correct
        self.network.backward(x, slope)
        epochs.optimizer.step()
        epochs.position += self.rows


class GraphEpochs:
    """Epochs of any stack on any device, by batched matmuls."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        count, device = len(stack.cells), stack.order.device
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros(count, device=device)
        self.correct_sum = torch.zeros(count, dtype=torch.int64, device=device)
        self.gradients = Parameters.of(torch.zeros_like(stack.parameters.flat), stack.net)
        rates = [cell.rate for cell in stack.cells]
        self.optimizer = Optimizer(stack.cells[0].optimizer, stack.parameters.flat, self.gradients.flat, rates)
        sizes = {stack.batch: stack.size // stack.batch, stack.size % stack.batch: 1}
        self.steps = [(Step(self, rows), count) for rows, count in sizes.items() if rows]
        self.warm = False

    def run(self) -> tuple[Tensor, Tensor]:
        """Train one epoch; the sums of the losses and of the correct predictions."""
        self.position.zero_()
        self.loss_sum.zero_()
        self.correct_sum.zero_()
        for step, count in self.steps:
            for _ in range(count):
                step()
        return self.loss_sum, self.correct_sum

    def first_steps(self, count: int) -> None:
        """Take `count` steps from the beginning of the data, to see how long they take."""
        self.position.zero_()
        for _ in range(count):
            self.steps[0][0]()
            self.position.zero_()


class Stack:
    """Cells of one architecture in training."""

    def __init__(
        self, cells: Sequence[Cell], tasks: Sequence[Task], device: torch.device, engine: str = "auto"
    ) -> None:
        cell, task = cells[0], tasks[0]
        self.cells, self.loss = cells, task.loss
        self.net = Architecture((task.features.shape[1], *cell.hidden, task.outputs), cell.activation)
        self.data = Data(tasks, device)
        self.parameters = initial(cells, self.net, device)
        self.size = task.size
        self.batch = min(cell.batch or self.size, self.size)
        self.order = self.data.rows.clone()
        self.shuffle_keys = np.stack([_stream.key(cell.seed, "order") for cell in cells])
        if engine == "fused" and not fused.takes(cell, task.outputs):
            raise StiefelError(
                f"engine='fused' takes hidden layers of one width up to {fused.MOST_WIDTH} and at most "
                f"{fused.MOST_OUTPUTS} outputs, and needs Triton; width={cell.width} and {task.outputs} outputs need "
                "engine='graph'."
            )
        use_fused = engine == "fused" or (engine == "auto" and fused.fits(cell, task.outputs, device))
        self.epochs = fused.FusedEpochs(self) if use_fused else GraphEpochs(self)

    def epoch(self, index: int) -> tuple[Tensor, Tensor]:
        """Train one epoch; the sum of the losses and of the correct predictions over its rows."""
        if self.batch < self.size:
            keys = words(self.shuffle_keys, (index, index + 1), self.size, self.order.device).squeeze(1)
            self.order.copy_(self.data.rows.gather(1, keys.argsort(dim=1, stable=True)))
        return self.epochs.run()

    def close(self) -> None:
        """Let go of memory and graphs now: a graph may not be collected while another is captured."""
        if isinstance(self.epochs, GraphEpochs):
            self.epochs.steps.clear()  # which refer back to the epochs
        del self.epochs

    def evaluate(self) -> Tensor:
        """The test score of each cell: accuracy in percent, or root mean squared error."""
        score = torch.empty(len(self.cells), dtype=torch.float64, device=self.order.device)
        for members, features, targets in self.data.tests:
            part = self.parameters
            if len(members) < len(self.cells):
                part = Parameters.of(part.flat[members], self.net)
            total = torch.zeros(len(members), dtype=torch.float64, device=score.device)
            for start in range(0, len(features), EVALUATION_ROWS):
                x = self.data.inputs(features[start : start + EVALUATION_ROWS])
                y = targets[start : start + EVALUATION_ROWS]
                out = predict(part, self.net, x.expand(len(members), -1, -1))
                if self.loss == "cross_entropy":
                    total += (out.argmax(-1) == y).sum(1)
                else:
                    total += (out.squeeze(-1) - y).double().square().sum(1)
            if self.loss == "cross_entropy":
                score[members] = 100 * total / len(features)
            else:
                score[members] = (total / len(features)).sqrt()
        return score


def train(
    cells: Sequence[Cell],
    tasks: Sequence[Task],
    device: torch.device,
    progress: Callable[[int], None] = lambda epoch: None,
    engine: str = "auto",
) -> tuple[list[Outcome], str]:
    """Train the cells as one stack, and say with which engine.

    They must agree in all that `stack_key` holds and in the shapes of their tasks.

    `engine` is `"fused"`, `"graph"`, or `"auto"` for the fused one wherever it can.
    """
    with _precision(cells[0].precision, device):
        stack = Stack(cells, tasks, device, engine)
        used = "fused" if isinstance(stack.epochs, fused.FusedEpochs) else "graph"
        outcomes = [Outcome() for _ in cells]
        epochs, few = cells[0].epochs, cells[0].shots is not None
        every = max(1, epochs // TESTS)
        try:
            for epoch in range(1, epochs + 1):
                loss, correct = stack.epoch(epoch - 1)
                last = epoch == epochs
                if last or not few:  # a few shots are steps, not epochs: only where they end is of interest
                    _note(outcomes, stack, epoch, loss, correct)
                    if last or epoch % every == 0:
                        _test(outcomes, stack, epoch)
                progress(epoch)
        finally:
            stack.close()
        return outcomes, used


def _note(outcomes: list[Outcome], stack: Stack, epoch: int, loss: Tensor, correct: Tensor) -> None:
    mean = (loss.double() / stack.size).tolist()
    right = (100 * correct.double() / stack.size).tolist()
    for outcome, one_loss, one_right in zip(outcomes, mean, right):
        outcome.train_loss.append(one_loss)
        outcome.train_score.append(one_right if stack.loss == "cross_entropy" else math.sqrt(max(one_loss, 0)))
        if outcome.diverged is None and not math.isfinite(one_loss):
            outcome.diverged = epoch


def _test(outcomes: list[Outcome], stack: Stack, epoch: int) -> None:
    for outcome, score in zip(outcomes, stack.evaluate().tolist()):
        outcome.tested.append(epoch)
        outcome.test_score.append(score)
        outcome.score = score


@contextmanager
def _precision(name: str, device: torch.device) -> Iterator[None]:
    """Products in float32 or in tf32, for the time of a stack."""
    backend: Any = {"cuda": torch.backends.cuda, "cpu": torch.backends.mkldnn}[device.type]
    before = backend.matmul.fp32_precision
    backend.matmul.fp32_precision = "ieee" if name == "float32" else "tf32"
    try:
        yield
    finally:
        backend.matmul.fp32_precision = before


def memory_per_cell(cell: Cell, task: Task, device: torch.device) -> int:
    """Bytes one cell takes while it trains: parameters, gradients, moments, activations, its batch and its order."""
    net = Architecture((task.features.shape[1], *cell.hidden, task.outputs), cell.activation)
    rows = min(cell.batch or task.size, task.size)
    evaluation = 4 * EVALUATION_ROWS * 3 * max(net.widths[1:])
    if fused.fits(cell, task.outputs, device):
        training = fused.memory_per_cell(cell, rows, net.parameters)
    else:
        training = 4 * (net.parameters + rows * (sum(net.widths) + 4 * max(net.widths)))
    return 12 * net.parameters + max(training, evaluation) + 32 * task.size
