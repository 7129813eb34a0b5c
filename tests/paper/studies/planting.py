"""Records of studies as if they had been run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record


def planted(asked: Callable[[Any], Iterable[Cell]], made: Callable[[Cell], Record]) -> dict[Cell, Record]:
    """What is asked for, given the records so far, until nothing is left."""
    found: dict[Cell, Record] = {}
    while left := [cell for cell in asked(found) if cell not in found]:
        found |= {cell: made(cell) for cell in left}
    return found
