"""Networks of a stack watched while they train: `Watching` says which and where to, `Followers` does it.

The graph engine trains as always. In a sampled step the batch goes once more through a module that shares the network's
weights, forward and back, with the hooks of `watch` on it; the engine then takes its step. So the training is the same
to the bit, whatever the optimizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ...torch.watching import Watch, watch
from .cell import Cell, digest
from .family import PERCEPTRON
from .stack import Stack

SAMPLES = 40  # of a short training, about


@dataclass(frozen=True)
class Watching:
    """Which networks to watch, and where their histories go."""

    folder: Path  # each network leaves a page, NAME.html, and NAME.jsonl, a line for each sample
    every: int | None = None
    """Steps 0, every, 2 · every, … are sampled; by default every 50th, and more of a short training."""
    chosen: Callable[[Cell], bool] = lambda cell: cell.seed == 0
    tell: Callable[[str], None] = print  # receives a sentence for everything that breaks or recovers

    def watch(self, cell: Cell, model: nn.Module, steps: int) -> Watch:
        """Begin to watch a network that will take so many steps."""
        name, every = named(cell), self.every or max(1, min(50, steps // SAMPLES))
        files = [self.folder / f"{name}.{kind}" for kind in ("html", "jsonl")]
        return watch(model, every, report=lambda event: self.tell(f"{name}: {event}"), to=files)


def named(cell: Cell) -> str:
    """A network's name as that of a file, such as digits-stiefel-relu-depth10-rate1-seed0-1a2b3c."""
    kind = "" if cell.network == PERCEPTRON else f"-{cell.network}"
    network = f"{cell.dataset}-{cell.scheme}-{cell.activation}{kind}-depth{cell.depth}"
    words = f"{network}-rate{cell.lr_multiplier:g}-seed{cell.seed}"
    return f"{re.sub(r'[^A-Za-z0-9.+-]+', '-', words)}-{digest([cell])[:6]}"


class Followers:
    """The watched networks of a stack."""

    def __init__(self, watching: Watching, stack: Stack, steps: int) -> None:
        """`steps` have been taken before, by a training that was killed."""
        self._stack = stack
        self._watched: list[tuple[int, nn.Module, Watch]] = []
        self._losses: dict[int, Tensor] = {}
        for place, cell in enumerate(stack.cells):
            if watching.chosen(cell):
                model = stack.mirror(place)
                follower = watching.watch(cell, model, cell.epochs * stack.steps)
                follower.steps = steps
                self._watched.append((place, model, follower))

    def before(self, start: int, stop: int) -> None:
        """Look at the rows that the engine is about to train on, if the step is sampled."""
        stack = self._stack
        for place, model, follower in self._watched:
            if follower.sampling:
                x, y = stack.batch_of(place, start, stop)
                with torch.enable_grad():
                    loss = stack.mean_loss(place, model(x), y)
                    loss.backward()
                self._losses[place] = loss.detach()

    def after(self) -> None:
        """End the step, when the engine has taken it."""
        for place, model, follower in self._watched:
            loss = self._losses.pop(place, None)
            follower.step(loss)
            if loss is not None:
                model.zero_grad(set_to_none=True)

    def close(self) -> None:
        for _, _, follower in self._watched:
            follower.close()
