"""The experiment `table5-protocol`: which protocol explains table 5's numbers best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...data import Dataset
from ...experiment import Trained
from ...train.cell import Cell
from ...train.record import Record
from .hypotheses import QUICK, WAVES, of_names


class Table5Protocol(Trained):
    """The numbers of table 5 under every hypothesis about how they were made."""

    name = "table5-protocol"
    title = "Table 5: which protocol?"
    page = "table5-protocol"
    seeds = 5
    quick_seeds = 3

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """Wave after wave, the most informative first; all of them if no records are given."""
        cells: dict[Cell, None] = {}
        for wave in (QUICK,) if quick else WAVES:
            cells |= dict.fromkeys(wave.cells(seeds))
            if records is not None and not cells.keys() <= records.keys():
                break
        return list(cells)

    def datasets(self, cells: Sequence[Cell], directory: Path | None) -> dict[str, Dataset]:
        """One split for all networks, targets standardized, categories encoded another way."""
        return of_names(cells, directory)
