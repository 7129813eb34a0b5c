"""The experiment `table5-protocol`: which protocol explains table 5's numbers best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stiefel_init.lab.data import Dataset
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..experiment import Options, Trained
from ..results import Results, write_table
from . import page
from .hypotheses import QUICK, STATED, WAVES, of_names
from .page import MAIN, QUICK_MAIN, Found
from .readings import READINGS, Readings, merged, rows


class Table5Protocol(Trained):
    """The numbers of table 5 under every hypothesis about how they were made."""

    name = "table5-protocol"
    title = "Table 5: which protocol?"
    page = "table5-protocol"
    seeds = 5
    quick_seeds = 2
    files = (READINGS,)

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """Wave after wave, the most informative first; all of them if no records are given."""
        cells: dict[Cell, None] = {}
        for wave in (QUICK,) if quick else WAVES:
            cells |= dict.fromkeys(wave.cells(seeds))
            if records is not None and not cells.keys() <= records.keys():
                break
        return list(cells)

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Its records without what this study does not ask; READINGS has what it asks besides the score."""
        return [record.scored() for record in super().select(records, quick=quick)]

    def datasets(self, cells: Sequence[Cell], directory: Path | None) -> dict[str, Dataset]:
        """One split for all networks, targets standardized, categories encoded another way."""
        return of_names(cells, directory)

    def evidence(self, results: Results) -> Any:
        """All records, and what else is kept of them: those of table 5 are enough to have a page."""
        readings = Readings(results.records, results.table(READINGS))
        return Found(readings, results.records) if readings.protocols() else None

    def tables(self, evidence: Found) -> list[Table]:
        """The ranking, by data set, and under other noise models."""
        others = page.robust(evidence)
        return [*page.tables(evidence), *([others] if others is not None else [])]

    def section(self, evidence: Found) -> list[str]:
        """The page below its introduction."""
        return page.section(evidence)

    def asides(self, evidence: Found) -> dict[str, list[str]]:
        """The entry in the list of errata."""
        return {"errata": page.erratum(evidence)}

    def show(self, records: list[Record], options: Options) -> None:
        """Print the verdict and the tables, and keep what records of networks do not."""
        by_cell = {record.cell: record for record in records}
        file = READINGS.replace(self.name, self.label(options.quick), 1)
        kept = merged(Results(options.out).table(file), rows(records))  # of published networks only the table has them
        if kept:
            print(f"wrote {write_table(kept, options.out / f'{file}.csv')}")
        readings = Readings(by_cell, kept)
        main = QUICK_MAIN if options.quick else MAIN if readings.covered(STATED) else MAIN[1:]
        found = Found(readings, by_cell, main)
        for table in self.tables(found):
            table.show()
        print("\n".join(page.verdict(found)).replace("**", ""))
