"""All of the paper in one run: `reproduce all`, which goes on where it was cut off, and where its time goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.data import Dataset
from stiefel_init.lab.progress import duration
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.cluster import ClusterSpec, reach
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.source import source_hash

from .experiment import Experiment, Options, Trained, registered
from .limit import time_limit
from .results import Results, recorded, write_table

REST = "the rest"
"""Loading, compiling, tables and pictures."""


class Everything(Experiment):
    """Every table, figure and claim of the paper; and the time that each takes."""

    name = "all"
    title = "One run: where the time goes"
    files = ("all",)

    def parts(self) -> list[Experiment]:
        """The experiments of the paper, in the order of the report."""
        return [experiment for experiment in registered().values() if experiment.of_paper]

    def run(self, options: Options) -> None:
        """Train the networks of all, on a GPU side by side; then run what else there is, and show it all."""
        if (place := ClusterSpec.of(options.on)) is not None:
            reach(place)  # before any data are loaded
        start, (cells, own) = time.perf_counter(), self._networks(options)
        with time_limit(options.minutes) as limit:
            records = run(
                list(cells), out=options.out, device=options.device, datasets=own, directory=options.data,
                most=options.stack, on=options.on, title=self.label(options.quick),
                known=recorded(options.out, lambda text: print(text, file=sys.stderr)),
            )  # fmt: skip
        if limit.reached:
            print(f"Stopped after {options.minutes:g} minutes; finished networks are kept, rerun to resume.")
            return
        taken = dict.fromkeys(cells.values(), 0.0)
        for record in records:
            taken[cells[record.cell]] += record.seconds
        options = replace(options, minutes=None)  # what is left takes a minute or two
        for experiment in self.parts():
            begun = time.perf_counter()
            if isinstance(experiment, Trained):
                experiment.run(options)
                continue
            if options.on != "local":
                print(f"{experiment.name} is not made of networks; it runs on this machine.", file=sys.stderr)
            if self._done(experiment, options):
                print(f"{experiment.name} is done already; remove its file from {options.out} to run it again.")
            else:
                experiment.run(options)
                taken[experiment.name] = time.perf_counter() - begun
        self._note(taken, time.perf_counter() - start, options)
        for table in self.tables(Results(options.out).table(self.label(options.quick))):
            table.show()

    def _networks(self, options: Options) -> tuple[dict[Cell, str], dict[str, Dataset]]:
        """All networks, each with the first experiment that has it, and the data sets that they bring along."""
        cells: dict[Cell, str] = {}
        own: dict[str, Dataset] = {}
        for experiment in self.parts():
            if isinstance(experiment, Trained):
                some = experiment.cells(experiment.count(options), quick=options.quick, records={})
                cells = dict.fromkeys(some, experiment.name) | cells
                own |= experiment.datasets(some, options.data)
        return cells, own

    def seconds(self, options: Options) -> float:
        """All of its own is to run the others."""
        return 0.0

    def _done(self, experiment: Experiment, options: Options) -> bool:
        """Whether this source has run an experiment that keeps no records of networks, which would tell."""
        label = experiment.label(options.quick)
        if isinstance(experiment, Trained) or not (options.out / f"{label}.csv").exists():
            return False
        entry = Results(options.out).environments.get(label, {"environments": []})
        return any(environment.get("source") == source_hash() for environment in entry["environments"])

    def _note(self, taken: Mapping[str, float], passed: float, options: Options) -> None:
        """Keep how long each took: that of networks is in their records, the rest is of this run."""
        path = options.out / f"{self.label(options.quick)}.csv"
        before = {row["experiment"]: row["seconds"] for row in Results(options.out).table(path.stem)}
        rest = max(0.0, passed - sum(taken.values())) + before.pop(REST, 0.0)
        rows = {**before, **taken, REST: rest}
        write_table([{"experiment": name, "seconds": round(value, 1)} for name, value in rows.items()], path)

    def evidence(self, results: Results) -> list[dict[str, Any]] | None:
        """Seconds by experiment."""
        rows = results.table(self.name)
        if any(not isinstance(row.get("seconds"), int | float) or "experiment" not in row for row in rows):
            raise StiefelError(f"{results.place / 'all.csv'} is damaged; restore the file, or reproduce all again.")
        return rows or None

    def tables(self, evidence: Sequence[Mapping[str, Any]]) -> list[Table]:
        """Seconds and shares."""
        total = sum(row["seconds"] for row in evidence)
        rows = [
            [str(row["experiment"]), f"{row['seconds']:.1f}", f"{100 * row['seconds'] / max(total, 1e-9):.0f}"]
            for row in evidence
        ]
        rows.append(["all", f"{total:.1f}", ""])
        return [Table("all: seconds by experiment", ["experiment", "seconds", "%"], rows)]

    def section(self, evidence: Sequence[Mapping[str, Any]]) -> list[str]:
        """The table."""
        (table,) = self.tables(evidence)
        total = sum(row["seconds"] for row in evidence)
        text = (
            f"`stiefel-init reproduce all` took {duration(total)} by the clock on the wall. Time that networks of "
            f"several tables shared is divided among them; {REST} is loading, compiling, tables and pictures."
        )
        return [f"## {self.title}", "", *wrapped(text), "", *table.markdown(), ""]
