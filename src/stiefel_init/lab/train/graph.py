"""The graph engine: any stack on any device; on a GPU every training step is captured and replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import stream as _stream
from ...torch.sampling.stream import words
from .cell import ON_SET, Cell
from .network import LOSSES, Architecture, Network, Parameters
from .optimizer import Optimizer
from .problem import Problem
from .stack import Engine, Stack


class GraphEngine(Engine):
    """Trains any stack on any device, by batched matmuls."""

    name = "graph"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.position = torch.zeros((), dtype=torch.int64, device=stack.order.device)
        self.gradients = Parameters.of(torch.zeros_like(stack.parameters.flat), stack.net)
        self.optimizer = Optimizer(stack.cells, stack.parameters, self.gradients)
        self.steps = {rows: Step(self, rows) for rows in (stack.batch, stack.size % stack.batch) if rows}
        """By the rows of a batch, of which the last may have fewer."""
        self.warm = False

    @staticmethod
    def suits(cell: Cell, problem: Problem, device: torch.device) -> bool:
        return True

    @staticmethod
    def memory(cell: Cell, problem: Problem) -> int:
        """Bytes of gradients, activations and a batch."""
        net = Architecture.of(cell, problem)
        rows = min(cell.batch or problem.size, problem.size)
        plain = 4 * (net.parameters + rows * (sum(net.widths) + 4 * max(net.widths)))
        on_set = 4 * 8 * net.parameters if cell.optimizer in ON_SET else 0  # moments, copies, a few products
        dropout = 16 * rows * sum(cell.hidden) if cell.dropout else 0  # the factors, and the words they come from
        return plain + on_set + dropout

    def begin(self, start: int) -> None:
        super().begin(start)
        self.position.fill_(start)

    def step(self, start: int, stop: int) -> None:
        self.steps[stop - start](start)

    def state(self) -> list[Tensor]:
        return [*self.optimizer.state(), *super().state()]

    def close(self) -> None:
        """Let go of the graphs now: one may not be collected while another is captured."""
        super().close()
        self.steps.clear()  # which refer back to the engine


class Step:
    """One training step on batches of `rows` rows, written once and, on a GPU, captured and replayed as a graph."""

    def __init__(self, engine: GraphEngine, rows: int) -> None:
        self.engine, self.rows = engine, rows
        stack = engine.stack
        dropped = stack.cells[0].dropout > 0
        self.dropout = Dropout(stack.cells, rows, stack.order.device) if dropped else None
        factors = None if self.dropout is None else self.dropout.factors
        self.network = Network(stack.parameters, stack.net, rows, engine.gradients, factors)
        self.graph: Any = None

    def __call__(self, start: int) -> None:
        stack = self.engine.stack
        if self.dropout is not None:  # before a graph, which repeats what was captured
            self.dropout.draw(stack.epoch, start)
        if stack.cells[0].schedule != "constant":
            self.engine.optimizer.scale(stack.rate_factor(start))
            if stack.released(start) != self.engine.optimizer.released:
                self.engine.optimizer.released = not self.engine.optimizer.released
                for step in self.engine.steps.values():  # captured anew, for they are other ones
                    step.graph = None
        if self.graph is not None:
            self.graph.replay()
        elif self.engine.position.is_cuda and self.engine.warm:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._run()
            self.graph.replay()
        else:
            self._run()
            # This first step also set up what a graph may not: optimizer state and library handles.
            self.engine.warm = True

    def _run(self) -> None:
        engine, stack = self.engine, self.engine.stack
        place = engine.position + torch.arange(self.rows, device=engine.position.device)
        rows = stack.order.index_select(1, place)
        x, y = stack.data.inputs(stack.data.features[rows]), stack.data.targets[rows]
        loss, correct, slope = LOSSES[stack.loss](self.network.forward(x), y)
        engine.losses += loss[:, None]
        engine.corrects += correct[:, None]
        self.network.backward(x, slope)
        engine.optimizer.step()
        engine.position += self.rows


class Dropout:
    """Factors for the outputs of all hidden layers: 0 with probability p, else 1/(1 - p).

    Row i of an epoch takes the words of row i of the stream that belongs to the seed and the epoch, one for each unit
    of each layer in turn. So neither the batches, nor the networks beside it, nor the device change what is dropped.
    """

    def __init__(self, cells: Sequence[Cell], rows: int, device: torch.device) -> None:
        self.rows, self.p = rows, cells[0].dropout
        hidden = cells[0].hidden
        seeds = list(dict.fromkeys(cell.seed for cell in cells))  # networks of one seed drop the same
        self._keys = np.stack([_stream.key(seed, "dropout") for seed in seeds])
        self._places = torch.tensor([seeds.index(cell.seed) for cell in cells], device=device)
        self._all = torch.ones(len(cells), rows, sum(hidden), device=device)
        self.factors = list(self._all.split(list(hidden), dim=2))
        """For each hidden layer, of shape (E, rows, units); views, which `draw` fills."""

    def draw(self, epoch: int, start: int) -> None:
        """Fill the factors for the rows from `start` on of an epoch, counted from 0."""
        place, count = (start, start + self.rows), self._all.shape[2]
        lots = words(_stream.fold(self._keys, epoch), place, count, self._all.device)
        first_kept = min(round(self.p * 2**32), 2**32 - 1) - 2**31  # signed words are uniform on [-2³¹, 2³¹)
        torch.mul((lots >= first_kept)[self._places], 1 / (1 - self.p), out=self._all)
