"""The contract of the engines that train stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from .cell import Cell
from .stack import Stack
from .task import Task


def nothing(row: int) -> None:
    """Nobody needs to hear of it."""


class Engine(Protocol):
    """Trains one stack, epoch by epoch, in the order that the stack's rows have."""

    name: ClassVar[str]

    def __init__(self, stack: Stack) -> None: ...

    @staticmethod
    def refuses(cell: Cell, task: Task) -> str | None:
        """Why it cannot train the cell's architecture, in a sentence; None if it can."""

    @staticmethod
    def suits(cell: Cell, task: Task, device: torch.device) -> bool:
        """Whether it can train the cell and is the one to do it on that device."""

    @staticmethod
    def memory(cell: Cell, task: Task) -> int:
        """Bytes a cell takes while it trains, beyond its parameters, gradients and moments."""

    def epoch(self, begin: int = 0, after: Callable[[int], None] = nothing) -> tuple[Tensor, Tensor]:
        """Train one epoch; the sums, over its rows, of each network's losses and correct predictions.

        Args:
            begin: The row to begin with, whose `state` was restored; 0 for all of the epoch.
            after: Hears after each step but the last at which row the next one begins.
        """

    def first_steps(self, count: int) -> None:
        """Take `count` steps from the beginning of the data, to see how long they take."""

    def state(self) -> list[Tensor]:
        """What training remembers besides the stack's parameters: the optimizer's moments, and the sums of the epoch.

        Copying into it restores it.
        """

    def skip(self, steps: int) -> None:
        """Go on after so many steps, whose `state` was restored."""

    def close(self) -> None:
        """Let go of memory now."""
