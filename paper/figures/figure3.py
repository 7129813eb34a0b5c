"""Figure 3: four images of each class, by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..experiment import Trained
from ..tables.protocol import DEPTHS, EPOCHS, IMAGES, SCHEMES, drawn, rate
from ..tables.table1 import over_depth


class Figure3(Trained):
    """The few-shot networks of table 3 at more depths."""

    name = "figure3"
    title = "Figure 3: few shots by depth"
    of_paper = True
    seeds = 50
    quick_seeds = 2

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """A hundred steps at the paper's rate."""
        depths = (10, 30) if quick else DEPTHS
        return [
            Cell(d, drawn(s), depth, seed=seed, epochs=EPOCHS, batch=None, rate=rate(s, depth), shots=4)
            for depth, d, s, seed in product(depths, IMAGES, SCHEMES, range(seeds))
        ]

    def pictures(self, evidence: Sequence[Record]) -> dict[str, Any]:
        """Accuracy over depth."""
        return {"results-figure3": over_depth(evidence, "4-shot test accuracy (%)")}

    def section(self, evidence: Sequence[Record]) -> list[str]:
        """The picture."""
        return [f"## {self.title}", "", *self.shown(evidence)]
