"""Table 1: accuracy by depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stiefel_init.lab.data import CATALOG
from stiefel_init.lab.report import plots
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..experiment import Claim
from .compare import COLLAPSED_WITHIN
from .protocol import DEPTHS, EPOCHS, IMAGES, SCHEMES, drawn, rate
from .published import Published
from .statistics import Duels
from .table import PaperTable

QUICK_EPOCHS = 1
TF32 = "Trained in tf32, in which networks learn as well as in float32 ([performance.md](performance.md))."


class Table1(PaperTable):
    """Plain networks of 10 to 100 layers on MNIST and Fashion-MNIST."""

    name = "table1"
    title = "Table 1: depth"
    labels = ("data set", "depth")
    seeds = 10

    def cell(self, dataset: str, scheme: str, depth: int, **setting: Any) -> Cell:
        """A hundred epochs at the paper's rate, in tf32: on a GPU twice as fast, and as good (docs/performance.md)."""
        return Cell(dataset, drawn(scheme), depth, epochs=EPOCHS, rate=rate(scheme, depth), precision="tf32")

    def row(self, number: Published) -> tuple[str, ...]:
        """A data set and a depth."""
        return number.dataset, str(number.depth)

    def quick(self, cell: Cell) -> Cell | None:
        """Three depths, one epoch."""
        chosen = cell.depth in (10, 50, 100)
        return replace(cell, epochs=QUICK_EPOCHS, precision="float32") if chosen else None

    def pictures(self, evidence: Sequence[Record]) -> dict[str, Any]:
        """Accuracy over depth."""
        return {"results-table1": over_depth(evidence)}

    def note(self, evidence: Sequence[Record]) -> list[str]:
        """What the numbers are."""
        return [*super().note(evidence), TF32]

    def claims(self, evidence: Sequence[Record] | None) -> list[Claim]:
        """That it is the best when deep, and that it does not collapse."""
        scores = self.scores(evidence or ())
        duels = Duels.of(
            [
                (f"{dataset}, depth {depth}", self.of_schemes(scores, dataset, depth))
                for dataset, depth in product(IMAGES, range(40, 101, 10))
            ]
        )
        lost, ended = {}, 0
        for scheme in SCHEMES:
            above = [
                scores(self.cell(dataset, scheme, depth)) - (CATALOG[dataset].floor or 0)
                for dataset, depth in product(IMAGES, DEPTHS)
            ]
            values = np.concatenate(above)
            lost[scheme] = int((~(values > COLLAPSED_WITHIN)).sum())
            ended = len(values) if scheme == "stiefel" else ended
        claim = "No collapse up to depth 100 (table 1)"
        if not ended:
            collapse = Claim(claim, "not tested", "No records.")
        else:
            others = ", ".join(f"{scheme} {lost[scheme]}" for scheme in SCHEMES[1:])
            text = f"{lost['stiefel']} of {ended} stiefel networks end at chance; of {ended} each: {others}."
            collapse = Claim(claim, "does not hold" if lost["stiefel"] else "holds", text)
        return [Claim("The best initialization at every depth from 40 on (table 1)", *duels.verdict()), collapse]


def over_depth(records: Sequence[Record], ylabel: str = "test accuracy (%)") -> Figure:
    """Score against depth with bands of one standard deviation: one panel for each data set."""
    datasets = list(dict.fromkeys(record.cell.dataset for record in records))
    drawn, axes = plots.figure(len(datasets), size=(5.0, 3.6), label=f"{ylabel} over depth")
    for axis, dataset in zip(axes[0], datasets):
        for scheme in dict.fromkeys(record.cell.scheme for record in records):
            chosen = [r for r in records if (r.cell.dataset, r.cell.scheme) == (dataset, scheme)]
            depths = sorted({record.cell.depth for record in chosen})
            if not depths:
                continue
            scores = [np.array([record.score for record in chosen if record.cell.depth == d]) for d in depths]
            mean, std = np.array([s.mean() for s in scores]), np.array([s.std() for s in scores])
            axis.plot(
                depths, mean, color=plots.colour(scheme), label=str(scheme), linewidth=1.8, marker="o", markersize=3
            )
            low, high = np.maximum(mean - std, 0), np.minimum(mean + std, 100)
            axis.fill_between(depths, low, high, color=plots.colour(scheme), alpha=0.15, linewidth=0)
        axis.set(title=dataset, xlabel="depth", ylim=(0, None))
    axes[0, 0].set_ylabel(ylabel)
    plots.legend(drawn, axes[0, -1])
    return drawn
