"""Records of studies as if they had been run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from paper.studies.kit import TunedStudy

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record


def planted(asked: Callable[[Any], Iterable[Cell]], made: Callable[[Cell], Record]) -> dict[Cell, Record]:
    """What is asked for, given the records so far, until nothing is left."""
    found: dict[Cell, Record] = {}
    while left := [cell for cell in asked(found) if cell not in found]:
        found |= {cell: made(cell) for cell in left}
    return found


@cache
def _contenders(kind: type[TunedStudy[Any]]) -> dict[Cell, Any]:
    study, found = kind(), dict[Cell, Any]()
    for quick in study.stages:
        for search in study.searches(quick):
            for (setting, contender), rates in search.tried.items():
                for times, cells in rates.items():
                    found |= {each.setting: contender for each in (*cells, search.final(contender, setting, times))}
    return found


def contender_of(study: TunedStudy[Any]) -> Callable[[Cell], Any]:
    """Whose network a cell is."""
    return lambda cell: _contenders(type(study))[cell.setting]
