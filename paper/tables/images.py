"""Tables 1, 2 and 3 and figure 3: networks on images, by depth, by activation, and on a few images of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stiefel_init.lab.data import CATALOG
from stiefel_init.lab.report import plots
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.theory import ACTIVATIONS

from ..experiment import Claim, Trained, held
from .compare import COLLAPSED_WITHIN
from .protocol import DEPTHS, EPOCHS, IMAGES, SCHEMES, SHOTS, drawn, rate
from .table import PaperTable, Scores, best_in_every_row

QUICK_EPOCHS = 1


class Table1(PaperTable):
    """Plain networks of 10 to 100 layers on MNIST and Fashion-MNIST."""

    name = "table1"
    title = "Table 1: depth"
    seeds = 10

    def cell(self, dataset: str, scheme: str, depth: int, **setting: Any) -> Cell:
        # In tf32: on a GPU twice as fast, and as good (docs/performance.md).
        return Cell(dataset, drawn(scheme), depth, epochs=EPOCHS, rate=rate(scheme, depth), precision="tf32")

    def quick(self, cell: Cell) -> Cell | None:
        chosen = cell.depth in (10, 50, 100)
        return replace(cell, epochs=QUICK_EPOCHS, precision="float32") if chosen else None

    def pictures(self, evidence: Sequence[Record]) -> dict[str, Any]:
        return {"results-table1": over_depth(evidence)}

    def claims(self, evidence: Sequence[Record] | None) -> list[Claim]:
        scores = Scores(evidence)
        best = best_in_every_row(
            (f"{dataset}, depth {depth}", self.of_schemes(scores, dataset, depth))
            for dataset, depth in product(IMAGES, range(40, 101, 10))
        )
        above = {
            scheme: np.concatenate([scores(self.cell(d, scheme, depth)) - (CATALOG[d].floor or 0)
                                    for d, depth in product(IMAGES, DEPTHS)])
            for scheme in SCHEMES
        }  # fmt: skip
        lost = {scheme: int((~(values > COLLAPSED_WITHIN)).sum()) for scheme, values in above.items()}
        claim, ended = "No collapse up to depth 100 (table 1)", len(above["stiefel"])
        others = ", ".join(f"{scheme} {lost[scheme]}" for scheme in SCHEMES[1:])
        text = f"{lost['stiefel']} of {ended} stiefel networks end at chance; of {ended} each: {others}."
        collapse = Claim(claim, held(not lost["stiefel"]), text) if ended else Claim(claim)
        return [Claim("The best initialization at every depth from 40 on (table 1)", *best), collapse]


class Table2(PaperTable):
    """Five activations at depths 50 and 100. Except for Lee, the ReLU networks are those of table 1.

    Table 1 seems to use Lee's initialization with LAPACK's signs, table 2 the direct one.
    """

    name = "table2"
    title = "Table 2: activations"
    seeds = 5

    def cell(self, dataset: str, scheme: str, depth: int, *, activation: str = "relu", **setting: Any) -> Cell:
        return Cell(
            dataset, "lee direct" if scheme == "lee" else scheme, depth, activation=activation, epochs=EPOCHS,
            rate=rate(scheme, depth), precision="tf32",
        )  # fmt: skip

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Its records, and all seeds of the networks that it shares with table 1."""
        selected = {record.cell: record for record in super().select(records, quick=quick)}
        settings = {cell.setting for cell in selected}
        shared = Table1().select(records, quick=quick)
        selected |= {record.cell: record for record in shared if record.cell.setting in settings}
        return list(selected.values())

    def quick(self, cell: Cell) -> Cell | None:
        chosen = cell.depth == 50 and cell.dataset == IMAGES[0]
        return replace(cell, epochs=QUICK_EPOCHS, precision="float32") if chosen else None

    def claims(self, evidence: Sequence[Record] | None) -> list[Claim]:
        claim = "From depth 50 to 100 accuracy drops by less than one point for every activation (table 2)"
        scores = Scores(evidence)
        rows = list(product(IMAGES, ACTIVATIONS))
        losses, seeds = {}, set()
        for dataset, activation in rows:
            a, b = (scores(self.cell(dataset, "stiefel", depth, activation=activation)) for depth in (50, 100))
            if len(a) and len(b):
                losses[f"{dataset}, {activation}"] = a.mean() - b.mean()
                seeds |= {len(a), len(b)}
        if not losses:
            return [Claim(claim)]
        worst = max(losses, key=lambda name: losses[name])
        within, told = sum(loss < 1 for loss in losses.values()), map(str, sorted({min(seeds), max(seeds)}))
        text = (
            f"{within} of the {len(losses)} rows run (of {len(rows)}) lose less than a point; the largest loss: "
            f"{worst}, {losses[worst]:+.2f}. Means of {' to '.join(told)} seeds."
        )
        return [Claim(claim, held(within == len(losses) == len(rows), within > 0), text)]


class Table3(PaperTable):
    """One to eight images per class, 100 full-batch steps; means of 50 repeats."""

    name = "table3"
    title = "Table 3: few shots"
    seeds = 50
    quick_seeds = 3

    def cell(self, dataset: str, scheme: str, depth: int, *, shots: int | None = None, **setting: Any) -> Cell:
        return Cell(dataset, drawn(scheme), depth, epochs=EPOCHS, batch=None, rate=rate(scheme, depth), shots=shots)

    def quick(self, cell: Cell) -> Cell | None:
        return cell if cell.shots == 1 and cell.depth < 100 else None

    def claims(self, evidence: Sequence[Record] | None) -> list[Claim]:
        scores = Scores(evidence)
        best = best_in_every_row(
            (f"{dataset}, {shots}-shot, depth {depth}", self.of_schemes(scores, dataset, depth, shots=shots))
            for dataset, shots, depth in product(IMAGES, SHOTS, (10, 50, 100))
        )
        return [Claim("The best initialization in every few-shot row (table 3)", *best)]


class Figure3(Trained):
    """The few-shot networks of table 3 at more depths."""

    name = "figure3"
    title = "Figure 3: few shots by depth"
    of_paper = True
    seeds = 50
    quick_seeds = 2

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        depths = (10, 30) if quick else DEPTHS
        return [
            Cell(d, drawn(s), depth, seed=seed, epochs=EPOCHS, batch=None, rate=rate(s, depth), shots=4)
            for depth, d, s, seed in product(depths, IMAGES, SCHEMES, range(seeds))
        ]

    def pictures(self, evidence: Sequence[Record]) -> dict[str, Any]:
        return {"results-figure3": over_depth(evidence, "4-shot test accuracy (%)")}

    def section(self, evidence: Sequence[Record]) -> list[str]:
        return [f"## {self.title}", "", *self.shown(evidence)]


def banded(axis: Any, records: Sequence[Record], alpha: float, **look: Any) -> list[float]:
    """Mean scores against depth with a band of one standard deviation, as far as there are such scores; the means."""
    scores: dict[int, list[float]] = {}
    for record in sorted(records, key=lambda record: record.cell.depth):
        scores.setdefault(record.cell.depth, []).append(record.score)
    if not scores:
        return []
    depths, (mean, std) = list(scores), (np.array([of(s) for s in scores.values()]) for of in (np.mean, np.std))
    axis.plot(depths, mean, marker="o", markersize=3, **look)
    low, high = np.maximum(mean - std, 0), np.minimum(mean + std, 100)
    axis.fill_between(depths, low, high, color=look["color"], alpha=alpha, linewidth=0)
    return mean.tolist()


def at_places(axis: Any, values: Sequence[float], what: str, score: str = "test accuracy (%)") -> None:
    """A logarithmic axis with these values alone, scores above it, and names at the ends of lines."""
    axis.set(xscale="log", xlabel=what, ylabel=score)
    axis.set_xticks(values, [f"{value:,g}" for value in values])
    axis.set_xticks([], minor=True)
    plots.direct(axis)


def over_depth(records: Sequence[Record], ylabel: str = "test accuracy (%)") -> Figure:
    """Score against depth: one panel for each data set."""
    datasets = list(dict.fromkeys(record.cell.dataset for record in records))
    drawn, axes = plots.column(len(datasets), label=f"{ylabel} over depth")
    for axis, dataset in zip(axes, datasets):
        for scheme in dict.fromkeys(record.cell.scheme for record in records):
            chosen = [r for r in records if (r.cell.dataset, r.cell.scheme) == (dataset, scheme)]
            banded(axis, chosen, 0.15, color=plots.colour(scheme), label=str(scheme), linewidth=1.8)
        axis.set(title=dataset, xlabel="depth", ylabel=ylabel, ylim=(0, 102))
        plots.direct(axis)
    return drawn
