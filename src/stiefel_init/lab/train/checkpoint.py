"""Unfinished stacks: what a stack needs to go on after a kill, written about once a minute and removed at its end."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ..files import replace
from .record import Outcome
from .source import source_hash
from .stack import Engine, Stack

EVERY = 60.0
"""Seconds of work that a kill may cost."""
MOST_BYTES = 2 << 30
"""A stack with more state than this is not kept: writing it would take longer than training it again."""


class Checkpoint:
    """The file of one stack; without a path it does nothing."""

    def __init__(self, path: Path | None, stack: Stack, engine: Engine) -> None:
        flat = stack.parameters.flat
        self.path = path if 3 * flat.numel() * flat.element_size() <= MOST_BYTES else None
        self.stack, self.engine = stack, engine
        self.last = time.monotonic()

    def restore(self, outcomes: list[Outcome]) -> tuple[int, int]:
        """Put stack, engine and outcomes where they were.

        Returns:
            The epochs that are done, and the row at which the next one goes on; zeros for a fresh start.
        """
        if self.path is None or not self.path.exists():
            return 0, 0
        try:
            kept: dict[str, Any] = torch.load(self.path, map_location=self.stack.order.device, weights_only=True)
            if (kept["engine"], kept["source"], len(kept["outcomes"])) != (*self._maker(), len(outcomes)):
                return 0, 0  # other code may train another way
            self.stack.parameters.flat.copy_(kept["parameters"])
            for tensor, value in zip(self.engine.state(), kept["state"], strict=True):
                tensor.copy_(value)
            outcomes[:] = [Outcome(**values) for values in kept["outcomes"]]
            epoch, row = int(kept["epoch"]), int(kept["row"])
            self.engine.skip(epoch * -(-self.stack.size // self.stack.batch) + row // self.stack.batch)
            return epoch, row
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, EOFError, UnpicklingError):
            return 0, 0  # damaged: nothing but time is lost

    def keep(self, epoch: int, outcomes: Sequence[Outcome], row: int = 0) -> None:
        """Write the file, if the last time was long ago; a disk without room costs only the chance to resume.

        Args:
            epoch: The epochs that are done.
            outcomes: What came of the epochs that are done.
            row: The row at which the next one goes on.
        """
        if self.path is None or time.monotonic() - self.last < EVERY:
            return
        engine, source = self._maker()
        buffer = io.BytesIO()
        torch.save(
            {
                "engine": engine,
                "source": source,
                "epoch": epoch,
                "row": row,
                "parameters": self.stack.parameters.flat.contiguous(),
                "state": [tensor.contiguous() for tensor in self.engine.state()],
                "outcomes": [asdict(outcome) for outcome in outcomes],
            },
            buffer,
        )
        try:
            replace(self.path, buffer.getvalue())
        except OSError:
            self.path = None
        self.last = time.monotonic()

    def _maker(self) -> tuple[str, str]:
        return self.engine.name, source_hash()
