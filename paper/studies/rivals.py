"""The study of rivals: every start on one engine, each at its best rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Record

from ..experiment import Options, Trained
from ..results import Results, write_table
from . import rival_cells as cells
from .rival_findings import Found, found_in, speed
from .rival_tables import numbers, tables

SPEED = "rivals-speed"


class Rivals(Trained):
    """Starts by other authors and ours in plain networks, each at its best rate."""

    name = "rivals"
    title = "Which start?"
    page = "baselines"
    seeds = 10
    quick_seeds = 3
    files = (SPEED,)
    optional = cells.DOWNLOADED

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """The networks that choose the rates; once they are trained, those that are compared."""
        return cells.everything(seeds, quick, records or {})

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Those of all stages: one that was not finished, or has fewer seeds, does not hide the next."""
        stages = (cells.of_stage(search, self.seeds, records) for search in cells.searches(quick))
        return [records[cell].scored() for stage in stages for cell in stage if cell in records]

    def evidence(self, results: Results) -> Any:
        """The records of the study, and how fast its networks learned."""
        return found_in(results.records_of(self.name), results.table(SPEED), self.seeds)

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables, keep how fast networks learned, and draw the picture."""
        by_cell = {record.cell: record for record in records}
        rows = speed(by_cell, Problems(None, options.data), self.count(options), options.quick)
        if rows:
            print(f"wrote {write_table(rows, options.out / f'{SPEED}.csv')}")
        found = found_in(by_cell, rows, self.count(options))
        if found is None:
            print("The rates of no setting are chosen yet, so that there is nothing to compare.")
            return
        for table in self.tables(found):
            table.show()
        for group in found.groups:
            for table in numbers(found, group):
                replace(table, title=f"{group}: {table.title}").show()
        self.write_pictures(found, options)

    def tables(self, evidence: Found) -> list[Table]:
        """What was wanted, the verdicts, and who is best where."""
        return tables(evidence)

    def pictures(self, evidence: Found) -> dict[str, Any]:
        """Which start, at which depth."""
        from .rival_pictures import over_depth

        return {"baselines": over_depth(evidence)}

    def section(self, evidence: Found) -> list[str]:
        """The page: where a rival wins, the picture, the tables, and a section for each rival."""
        from .rival_page import page

        return page(evidence, self.shown(evidence), self.tables(evidence), self.seeds)
