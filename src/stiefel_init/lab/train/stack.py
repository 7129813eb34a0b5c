"""A stack: networks of one architecture in training, with their parameters and data on one device.

A cell's outcome depends on its identity alone: its weights, the order of its data and its few shots come from streams
keyed by its seed, and the networks of a stack share nothing but the launches. An `Engine` trains it.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ...core import stream as _stream
from ...torch.sampling.stream import words
from .cell import Cell
from .family import ScheduleName
from .network import LOSSES, Architecture, calibrate, initial, module, predict
from .problem import Problem

ROWS = 2048  # test rows at once; and the first so many are tested with noise
BINS = 15  # of confidence, for the expected calibration error
CALIBRATION_ROWS = 256  # training rows, spread evenly, that schemes such as LSUV measure
WARM_UP = 0.1  # the share of the steps that a warm-up takes
RELEASED = 1 / 16  # of the rate, once weights are let go: free training takes no larger one


def factor(schedule: ScheduleName, step: int, steps: int, warm: int | None = None) -> float:
    """What the learning rate of a step, counted from 0, is multiplied with.

    With W = `warm`, by default ⌈steps/10⌉, `"cosine"` is (step + 1)/W while step < W, then (1 + cos(π (step - W)/(steps
    - W)))/2. With H = ⌈steps/2⌉, `"release"` is 1 while step < H, on the set, then (1 + cos(π (step - H)/(steps -
    H)))/32 off it.

    >>> [round(factor("cosine", step, 20), 2) for step in (0, 1, 2, 11, 19)]
    [0.5, 1.0, 1.0, 0.5, 0.01]
    >>> [round(factor("release", step, 20), 4) for step in (0, 9, 10, 15)]
    [1.0, 1.0, 0.0625, 0.0312]
    """
    if schedule == "cosine":
        warm = math.ceil(WARM_UP * steps) if warm is None else warm
        if step < warm:
            return (step + 1) / warm
        begun, height = warm, 1.0
    elif released(schedule, step, steps):
        begun, height = math.ceil(steps / 2), RELEASED
    else:
        return 1.0
    return height * ((1 + math.cos(math.pi * (step - begun) / max(steps - begun, 1))) / 2)


def released(schedule: ScheduleName, step: int, steps: int) -> bool:
    """Whether a step, counted from 0, is free of the set."""
    return schedule == "release" and step >= math.ceil(steps / 2)


class HeldOut:
    """The test parts of a stack, each once, however many networks are tested on it."""

    def __init__(self, problems: Sequence[Problem], device: torch.device) -> None:
        parts = {id(problem.test_features): problem for problem in problems}
        self.part = torch.tensor([list(parts).index(id(problem.test_features)) for problem in problems], device=device)
        """The part that each network has."""
        self.features, self.targets = (
            torch.from_numpy(np.stack([getattr(problem, name) for problem in parts.values()])).to(device)
            for name in ("test_features", "test_targets")
        )
        """(parts, rows, inputs) and (parts, rows)"""

    def of_networks(self, values: Tensor) -> Tensor:
        """What each network has of values of the parts; a part that all share is not copied."""
        return values.expand(len(self.part), *values.shape[1:]) if len(values) == 1 else values[self.part]


class Data:
    """The problems of a stack on its device: each array once, however many cells share it."""

    def __init__(self, problems: Sequence[Problem], device: torch.device) -> None:
        self.scale = problems[0].scale
        shared = {id(problem.features): problem for problem in problems}
        arrays = [(problem.features, problem.targets) for problem in shared.values()]
        # A single array is taken as it is, shared by all stacks that train on it.
        joined = arrays[0] if len(arrays) == 1 else [np.concatenate(parts) for parts in zip(*arrays)]
        self.features, self.targets = (torch.from_numpy(array).to(device) for array in joined)
        starts = itertools.accumulate((len(problem.features) for problem in shared.values()), initial=0)
        first_row = dict(zip(shared, starts))
        rows = [first_row[id(t.features)] + (np.arange(t.size) if t.rows is None else t.rows) for t in problems]
        self.rows = torch.from_numpy(np.stack(rows)).to(device)
        self.tests = HeldOut(problems, device)

    def inputs(self, features: Tensor) -> Tensor:
        """Stored features as the network takes them."""
        features = features.to(torch.float32)
        return features / self.scale if self.scale != 1 else features


class Stack:
    """Cells of one architecture in training: perceptrons, all parameters in one array."""

    def __init__(
        self, cells: Sequence[Cell], problems: Sequence[Problem], device: torch.device,
        check: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`check` raises where training should stop; engines call it before each step."""
        cell, problem, self.check = cells[0], problems[0], check
        self.cells, self.loss, self.outputs = cells, problem.loss, problem.outputs
        self.data = Data(problems, device)
        self.units = torch.tensor([problem.unit for problem in problems], dtype=torch.float64, device=device)
        self.size = problem.size  # rows that are trained on in an epoch
        self.batch = min(cell.batch or self.size, self.size)
        self.steps = -(-self.size // self.batch)  # of an epoch
        self.order = self.data.rows.clone()
        self.epoch = 0  # the epoch that is trained, counted from 0
        self.followers: Any = None  # the `Followers` that watch some of the networks, if any
        self._keys = np.stack([_stream.key(cell.seed, "order") for cell in cells])
        self._begin(problem, device)

    def _begin(self, problem: Problem, device: torch.device) -> None:
        """Make the networks."""
        self.net = Architecture.of(self.cells[0], problem)
        self.parameters = initial(self.cells, self.net, device)
        if any(cell.scheme.calibrates for cell in self.cells):
            batch = self.data.inputs(self.data.features[self.calibration_rows()])
            calibrate(self.parameters, self.net, [cell.scheme for cell in self.cells], batch)

    def calibration_rows(self) -> Tensor:
        """Of each network the training rows that schemes such as LSUV measure, (E, rows)."""
        return self.data.rows[:, :: -(-self.size // CALIBRATION_ROWS)]

    def state(self) -> list[Tensor]:
        """What the networks are; copying into it restores it."""
        return [self.parameters.flat]

    def predict(self, x: Tensor) -> Tensor:
        """The networks' outputs (E, rows, outputs) for inputs (E, rows, inputs)."""
        return predict(self.parameters, self.net, x)

    def mirror(self, place: int) -> nn.Module:
        """A network as a module, whose weights and biases are the stack's own memory."""
        parts, last = list[nn.Module](), self.net.layers - 1
        for layer in range(last + 1):
            weight, bias = (each[layer][place] for each in (self.parameters.weights, self.parameters.biases))
            linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
            linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
            parts.append(linear)
            if layer < last:
                slope = self.parameters.slope(layer)
                parts.append(module(self.net.activation, last, None if slope is None else slope[place : place + 1]))
        return nn.Sequential(*parts)

    def batch_of(self, place: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a network in these rows of the epoch."""
        chosen = self.order[place, start:stop]
        return self.data.inputs(self.data.features[chosen]), self.data.targets[chosen]

    def mean_loss(self, place: int, outputs: Tensor, targets: Tensor) -> Tensor:
        """What a network minimizes, with outputs of shape (rows, outputs)."""
        return LOSSES[self.loss](outputs.unsqueeze(0), targets.unsqueeze(0))[0].sum() / len(targets)

    def shuffle(self, epoch: int) -> None:
        """Go to an epoch, counted from 0, and put the rows into its order."""
        self.epoch = epoch
        if self.batch < self.order.shape[1]:
            rows = self.order.shape[1]
            lots = words(self._keys, (epoch, epoch + 1), rows, self.order.device).squeeze(1)
            self.order.copy_(self.data.rows.gather(1, lots.argsort(dim=1, stable=True)))

    def rate_factor(self, start: int) -> float:
        """What the schedule multiplies the rates with in the step that begins at a row of the epoch."""
        return factor(self.cells[0].schedule, self.step_at(start), self.cells[0].epochs * self.steps)

    def released(self, start: int) -> bool:
        """Whether the schedule has let go of the weights by then."""
        return released(self.cells[0].schedule, self.step_at(start), self.cells[0].epochs * self.steps)

    def step_at(self, start: int) -> int:
        """The step, counted from 0 over all epochs, that begins at a row of the epoch."""
        return self.epoch * self.steps + start // self.batch


class Engine(ABC):
    """Trains one stack, epoch by epoch, in the order that the stack's rows have."""

    name: ClassVar[str]
    networks: ClassVar[type[Stack]] = Stack  # the stacks that it trains

    @abstractmethod
    def __init__(self, stack: Stack, tiles: int = 1) -> None:
        """`tiles` are the parts of a batch that add to a network's sums each for itself."""
        self.stack = stack
        self.losses = torch.zeros(len(stack.cells), tiles, device=stack.order.device)
        self.corrects = torch.zeros_like(self.losses, dtype=torch.int64)

    @staticmethod
    def refuses(cell: Cell, problem: Problem) -> str | None:
        """Why it cannot train the cell's architecture, in a sentence; None if it can."""
        return None

    @staticmethod
    @abstractmethod
    def suits(cell: Cell, problem: Problem, device: torch.device) -> bool:
        """Whether it can train the cell and is the one to do it on that device."""

    @staticmethod
    @abstractmethod
    def memory(cell: Cell, problem: Problem) -> int:
        """Bytes a cell takes while it trains, beyond its parameters, gradients and moments."""

    def begin(self, start: int) -> None:
        """Go to a row of the epoch; the sums begin anew with the first."""
        if not start:
            self.losses.zero_()
            self.corrects.zero_()

    @abstractmethod
    def step(self, start: int, stop: int) -> None:
        """Train on these rows, the next ones."""

    def sums(self) -> tuple[Tensor, Tensor]:
        """Over the rows since the first, of each network's losses and correct predictions."""
        return self.losses.sum(1), self.corrects.sum(1)

    def state(self) -> list[Tensor]:
        """What training remembers besides the networks: moments, and these sums. Copying into it restores it."""
        return [self.losses, self.corrects]

    def close(self) -> None:
        """Let go of memory now, and finish the files of watched networks."""
        if self.stack.followers is not None:
            self.stack.followers.close()

    def epoch(self, begin: int = 0, after: Callable[[int], None] = lambda row: None) -> tuple[Tensor, Tensor]:
        """Train one epoch from a row on, and return its sums; `after` each step but the last, told the next row."""
        stack, followers = self.stack, self.stack.followers
        self.begin(begin)
        for start in range(begin, stack.size, stack.batch):
            stack.check()
            stop = min(start + stack.batch, stack.size)
            if followers is not None:
                followers.before(start, stop)
            self.step(start, stop)
            if followers is not None:
                followers.after()
            if stop < stack.size:
                after(stop)
        return self.sums()
