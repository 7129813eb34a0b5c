"""Table 2: accuracy by activation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.theory import ACTIVATIONS

from ..experiment import Claim
from .protocol import EPOCHS, IMAGES, rate
from .published import Published, published
from .table import PaperTable
from .table1 import QUICK_EPOCHS, TF32, Table1


class Table2(PaperTable):
    """Five activations at depths 50 and 100. Except for Lee, the ReLU networks are those of table 1.

    Table 1 seems to use Lee's initialization with LAPACK's signs, table 2 the direct one.
    """

    name = "table2"
    title = "Table 2: activations"
    labels = ("data set", "activation", "depth")
    seeds = 5

    def cell(self, dataset: str, scheme: str, depth: int, *, activation: str = "relu", **setting: Any) -> Cell:
        """A hundred epochs at the paper's rate, in tf32, as in table 1."""
        return Cell(
            dataset, "lee direct" if scheme == "lee" else scheme, depth, activation=activation, epochs=EPOCHS,
            rate=rate(scheme, depth), precision="tf32",
        )  # fmt: skip

    def row(self, number: Published) -> tuple[str, ...]:
        """A data set, an activation and a depth."""
        return number.dataset, number.activation, str(number.depth)

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Its records, and all seeds of the networks that it shares with table 1."""
        selected = {record.cell: record for record in super().select(records, quick=quick)}
        settings = {cell.setting for cell in selected}
        shared = Table1().select(records, quick=quick)
        selected |= {record.cell: record for record in shared if record.cell.setting in settings}
        return list(selected.values())

    def quick(self, cell: Cell) -> Cell | None:
        """MNIST, one depth, one epoch."""
        chosen = cell.depth == 50 and cell.dataset == IMAGES[0]
        return replace(cell, epochs=QUICK_EPOCHS, precision="float32") if chosen else None

    def claims(self, evidence: Sequence[Record] | None) -> list[Claim]:
        """That little is lost with depth."""
        claim = "From depth 50 to 100 accuracy drops by less than one point for every activation (table 2)"
        scores = self.scores(evidence or ())
        losses, seeds = {}, set()
        for dataset, activation in product(IMAGES, ACTIVATIONS):
            a, b = (scores(self.cell(dataset, "stiefel", depth, activation=activation)) for depth in (50, 100))
            if len(a) and len(b):
                losses[f"{dataset}, {activation}"] = a.mean() - b.mean()
                seeds |= {len(a), len(b)}
        if not losses:
            return [Claim(claim, "not tested", "No records.")]
        worst = max(losses, key=lambda name: losses[name])
        total = len(IMAGES) * len(ACTIVATIONS)
        within = sum(loss < 1 for loss in losses.values())
        text = (
            f"{within} of the {len(losses)} rows run (of {total}) lose less than a point; the largest loss: {worst}, "
        )
        text += f"{losses[worst]:+.2f}. Means of {' to '.join(map(str, sorted({min(seeds), max(seeds)})))} seeds."
        complete = within == len(losses) == total
        return [Claim(claim, "holds" if complete else "holds in part" if within else "does not hold", text)]

    def note(self, evidence: Sequence[Record]) -> list[str]:
        """How much of the table there is."""
        numbers = self.compare(evidence)
        return [
            "With the direct form of Lee's initialization. Except for Lee, the ReLU networks are those of table 1.",
            f"We ran {len(numbers)} of the {len(published('table2'))} published numbers, "
            f"{sum(number.judged for number in numbers)} of them with two or more seeds.",
            TF32,
        ]
