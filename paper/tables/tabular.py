"""Table 5: tabular data, by the shift of the inputs; under the stated protocol, and under the one that explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from stiefel_init.lab.data import Dataset
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..experiment import Claim
from ..protocols.hypotheses import EXPLAINING, of_names
from ..results import Results
from .protocol import ALPHAS, EPOCHS, TABULAR_WIDTH, drawn, rate
from .published import Published
from .table import PaperTable


class Table5(PaperTable):
    """Six tabular sets, their standardized features shifted by α, at depths 50 and 100."""

    name = "table5"
    title = "Table 5: tabular data"
    labels = ("data set", "depth", "α")
    seeds = 10
    of_claim = "table 5"

    def cell(self, dataset: str, scheme: str, depth: int, *, alpha: float | None = None, **setting: Any) -> Cell:
        """A hundred epochs at the paper's rate, in layers of the paper's width."""
        width = TABULAR_WIDTH[dataset]
        return Cell(dataset, drawn(scheme), depth, width, epochs=EPOCHS, rate=rate(scheme, depth), alpha=alpha)

    def row(self, number: Published) -> tuple[str, ...]:
        """A data set, a depth and a shift."""
        return number.dataset, str(number.depth), f"{number.alpha:g}"

    def quick(self, cell: Cell) -> Cell | None:
        """One depth; without Adult, which is as large as MNIST."""
        return cell if cell.depth == 50 and cell.dataset != "adult" else None

    def claims(self, evidence: Sequence[Record] | None) -> list[Claim]:
        """That a shift of 2 is the best."""
        claim = f"Among shifts of tabular inputs, α = 2 is best, and -2 and 50 are worse than 0 ({self.of_claim})"
        scores = self.scores(evidence or ())
        metrics = {record.cell.setting: record.metric for record in evidence or ()}
        best, worse, rows, others = 0, 0, 0, []
        for dataset, depth in product(TABULAR_WIDTH, (50, 100)):
            by_alpha = {alpha: scores(self.cell(dataset, "stiefel", depth, alpha=alpha)) for alpha in ALPHAS}
            if any(not len(values) for values in by_alpha.values()):
                continue
            metric = metrics[self.cell(dataset, "stiefel", depth, alpha=0.0)]
            mean = {alpha: metric.better(float(values.mean())) for alpha, values in by_alpha.items()}
            rows += 1
            best += mean[2.0] == max(mean.values())
            worse += max(mean[-2.0], mean[50.0]) < mean[0.0]
            if mean[2.0] != max(mean.values()):
                others.append(f"{dataset}, depth {depth}: {abs(mean[0.0]):.2f} at 0, {abs(mean[2.0]):.2f} at 2")
        if not rows:
            return [Claim(claim, "not tested", "No records.")]
        text = f"For stiefel, α = 2 has the best mean in {best} of {rows} rows; -2 and 50 are both worse than 0 in "
        text += f"{worse}."
        if others:
            text += f" Not best: {'; '.join(others)}."
        complete = best == worse == rows
        return [Claim(claim, "holds" if complete else "holds in part" if best + worse else "does not hold", text)]

    def note(self, evidence: Sequence[Record]) -> list[str]:
        """What the numbers are."""
        return [
            "Test accuracy (%); for diabetes, the root mean squared error. The published numbers are in parentheses."
        ]


class Table5Explained(Table5):
    """The same numbers under the protocol that explains them: small batches, and one split for all networks."""

    name = f"table5-batches-of-{EXPLAINING.batch}"
    title = f"Table 5 under another protocol: {EXPLAINING}"
    numbers = "table5"
    of_claim = f"table 5, {EXPLAINING}"

    def cell(self, dataset: str, scheme: str, depth: int, *, alpha: float | None = None, **setting: Any) -> Cell:
        """A hundred epochs at the paper's rate, in smaller batches."""
        return replace(
            super().cell(dataset, scheme, depth, alpha=alpha),
            dataset=EXPLAINING.dataset(dataset),
            batch=EXPLAINING.batch,
        )

    def quick(self, cell: Cell) -> Cell | None:
        """One depth, two small sets."""
        return cell if cell.depth == 50 and cell.dataset.startswith(("wine", "diabetes")) else None

    def evidence(self, results: Results) -> list[Record] | None:
        """Its records, if the table is complete: a part of it is evidence on the page of the protocol only."""
        complete = results.records.keys() >= set(self.cells(self.seeds))
        return super().evidence(results) if complete else None

    def datasets(self, cells: Sequence[Cell], directory: Path | None) -> dict[str, Dataset]:
        """The data sets with one split."""
        return of_names(cells, directory)

    def note(self, evidence: Sequence[Record]) -> list[str]:
        """What the numbers are, and why this protocol."""
        return [*super().note(evidence), "Why this protocol: [table5-protocol.md](table5-protocol.md)."]
