"""The study of training on the set: what the constraint buys, and what it costs, each way at its best rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..experiment import Options, Trained
from ..results import Results
from . import on_set_cells as cells
from .on_set_findings import MARGIN, Found, found_in, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class OnTheSet(Trained):
    """Plain networks trained freely, on the set and on the Stiefel manifold, each way at its best rate."""

    name = "on-the-set"
    title = "What does it buy?"
    page = "on-the-set"
    seeds = 10
    quick_seeds = 3

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """Stage by stage: the networks that choose the rates; once they are trained, those that are compared."""
        return cells.everything(seeds, quick, records or {})

    def evidence(self, results: Results) -> Any:
        """The records of the study."""
        return found_in(results.records_of(self.name), self.seeds)

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables and draw the pictures."""
        found = found_in({record.cell: record for record in records}, self.count(options))
        if found is not None:
            for table in self.tables(found):
                table.show()
            self.write_pictures(found, options)

    def tables(self, evidence: Found) -> list[Table]:
        """Targets, scores, rates that work, verdicts, and the other measures."""
        return tables(evidence)

    def pictures(self, evidence: Found) -> dict[str, Figure]:
        """The score over the rate, and the rates that work over the depth."""
        from .on_set_pictures import over_depth, over_rates

        return {self.name: over_rates(evidence), f"{self.name}-rates": over_depth(evidence)}

    def section(self, evidence: Found) -> list[str]:
        """What was run and how verdicts are made, before pictures and tables."""
        return [*_run(evidence, self.seeds), "", *_words(), "", *super().section(evidence)[2:]]


def _run(found: Found, full: int) -> list[str]:
    counts = [len(values) for values in found.scores.values()]
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    lines = [f"**{OnTheSet.title}** {len(found.settings)} settings, {seeds} seeds each."]
    if found.quick:
        return [
            f"{lines[0]} These are records of `stiefel-init reproduce on-the-set --quick`, on digits alone; the full "
            f"study (MNIST, Fashion-MNIST and a table, up to {cells.DEEPEST:,} layers, {full} seeds) was not run."
        ]
    missing = sorted(
        {f"{setting} ({how})" for setting, how in set(cells.asked(False)) - {(s, w.how) for s, w in found.scores}}
    )
    return [lines[0] + (f" Not run: {'; '.join(missing)}." if missing else " All of the study was run.")]


def _words() -> list[str]:
    return [
        "Ways: *free*, Adam; *on the set*, `stiefel-adam`; *Stiefel manifold*, the same without the ones; *cosine*, a",
        "warm-up and a cosine to zero instead of a constant rate; *then free*, half of the steps on the set, then free",
        "at a sixteenth of the rate and a cosine to zero; *gains*, with a cosine, members times a learned gain for",
        "each layer; *fast ends*, with a cosine, the first and the last layer at √depth times the rate of the others.",
        "Each way of each start has its best rate, chosen by networks with other seeds and a third of the epochs.",
        "",
        "*better*, *worse*: the means differ (Welch's test; p times the comparisons in the table is below 0.05).",
        f"*not worse*: by less than {MARGIN} points, likewise. *not shown*: neither. In brackets: the difference of",
        "means, more being better, and the corrected p.",
    ]
