"""Table 3: a few images per class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..experiment import Claim
from .protocol import EPOCHS, IMAGES, SHOTS, drawn, rate
from .published import Published
from .statistics import Duels
from .table import PaperTable


class Table3(PaperTable):
    """One to eight images per class, 100 full-batch steps; means of 50 repeats."""

    name = "table3"
    title = "Table 3: few shots"
    labels = ("data set", "shots", "depth")
    seeds = 50
    quick_seeds = 3

    def cell(self, dataset: str, scheme: str, depth: int, *, shots: int | None = None, **setting: Any) -> Cell:
        """A hundred steps at the paper's rate."""
        return Cell(dataset, drawn(scheme), depth, epochs=EPOCHS, batch=None, rate=rate(scheme, depth), shots=shots)

    def row(self, number: Published) -> tuple[str, ...]:
        """A data set, a number of images and a depth."""
        return number.dataset, str(number.shots), str(number.depth)

    def quick(self, cell: Cell) -> Cell | None:
        """One image of each class, depths 10 and 50."""
        return cell if cell.shots == 1 and cell.depth < 100 else None

    def claims(self, evidence: Sequence[Record] | None) -> list[Claim]:
        """That it is the best."""
        scores = self.scores(evidence or ())
        duels = Duels.of(
            [
                (f"{dataset}, {shots}-shot, depth {depth}", self.of_schemes(scores, dataset, depth, shots=shots))
                for dataset, shots, depth in product(IMAGES, SHOTS, (10, 50, 100))
            ]
        )
        return [Claim("The best initialization in every few-shot row (table 3)", *duels.verdict())]

    def note(self, evidence: Sequence[Record]) -> list[str]:
        """What the numbers are."""
        return ["Test accuracy (%): our mean of 50 repeats, and the published mean in parentheses."]
