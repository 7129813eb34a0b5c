"""The study of training on the set: what the constraint buys, and what it costs, each way at its best rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..experiment import Options, Trained
from ..paper.protocol import TABULAR_WIDTH
from ..paper.statistics import greater_p
from ..report import plots
from ..report.tables import Table
from ..results import Results
from ..train.cell import Cell, OptimizerName
from ..train.record import Record
from .rival_cells import FIRST, TUNING, Setting, quality, setting_of
from .rival_findings import WORKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WAYS: dict[str, OptimizerName] = {
    "free": "adam",
    "on the set": "stiefel-adam",
    "on the set, Muon": "stiefel-muon",
}
FREE = "free"
STARTS = ("stiefel", "permutation")
RATES, QUICK_RATES = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0), (1.0, 16.0, 256.0)
"""Times the paper's 0.001/√depth."""
TABLE = "ionosphere"
QUICK = (Setting("digits", 30), Setting("digits", 100))
FULL = (
    *(Setting(dataset, depth) for dataset, depth in product(("mnist", "fashion-mnist"), (100, 300, 1000))),
    Setting("mnist", 100, 8),
    Setting("fashion-mnist", 100, 8),
    Setting(TABLE, 50),
)


class Way(NamedTuple):
    """A start, and how it is trained."""

    start: str
    how: str

    def __str__(self) -> str:
        return f"{self.start}, {self.how}"


EVERY = tuple(Way(start, how) for start, how in product(STARTS, WAYS))
Key = tuple[Setting, Way]


def way_of(cell: Cell) -> Way:
    """The way in which a network is trained."""
    return Way(str(cell.scheme), next(how for how, optimizer in WAYS.items() if optimizer == cell.optimizer))


def cell(way: Way, setting: Setting, times: float, seed: int, *, quick: bool, tuning: bool = False) -> Cell:
    """A network at `times` the paper's rate."""
    dataset, depth, shots = setting
    epochs = 6 if quick else 15
    if dataset == TABLE:
        epochs = 100
    if tuning and not quick:
        epochs = epochs // 3
    return Cell(
        dataset, way.start, depth, TABULAR_WIDTH.get(dataset, 64), seed=seed, optimizer=WAYS[way.how],
        epochs=epochs if shots is None else 100, batch=256 if shots is None else None, shots=shots,
        rate=times * 1e-3 / math.sqrt(depth), alpha=0.0 if dataset in TABULAR_WIDTH else None,
    )  # fmt: skip


@lru_cache
def tuning(quick: bool) -> tuple[Cell, ...]:
    """The networks that choose the rate of each way in each setting."""
    settings, rates = (QUICK, QUICK_RATES) if quick else (FULL, RATES)
    return tuple(
        cell(way, setting, times, TUNING[0], quick=quick, tuning=True)
        for setting, way, times in product(settings, EVERY, rates)
    )


def by_rate(records: Mapping[Cell, Record], quick: bool) -> dict[Key, dict[float, float]]:
    """Of each setting and way: rate → quality."""
    found: dict[Key, dict[float, float]] = {}
    for tried in tuning(quick):
        if (record := records.get(tried)) is not None:
            found.setdefault((setting_of(tried), way_of(tried)), {})[tried.times] = quality(record)
    return found


def compared(seeds: Iterable[int], records: Mapping[Cell, Record], quick: bool) -> list[Cell]:
    """Every way at its best rate, with fresh seeds; of equally good rates the smallest."""
    best = {key: max(rates, key=lambda times: (rates[times], -times)) for key, rates in by_rate(records, quick).items()}
    return [cell(way, setting, best[setting, way], seed, quick=quick) for seed in seeds for setting, way in best]


class Found(NamedTuple):
    """The records of the study, full or quick."""

    tuned: dict[Key, dict[float, float]]
    scores: dict[Key, np.ndarray]
    """Of the compared networks, turned so that more is better."""
    quick: bool

    @property
    def settings(self) -> list[Setting]:
        """Those with records."""
        return [setting for setting in (QUICK if self.quick else FULL) if any(key[0] == setting for key in self.scores)]

    def working(self, key: Key) -> float | None:
        """The highest rate that comes close to the best of its setting, over the lowest; None if none does."""
        best = max(max(rates.values()) for (setting, _), rates in self.tuned.items() if setting == key[0])
        rates = [times for times, reached in self.tuned.get(key, {}).items() if reached >= WORKS * best]
        return max(rates) / min(rates) if rates else None


def found_in(records: Mapping[Cell, Record], seeds: int) -> Found | None:
    """What the records have of the study, full or, if they have nothing of that, quick."""
    for quick in (False, True):
        scores: dict[Key, list[float]] = {}
        for each in compared(range(FIRST, FIRST + seeds), records, quick):
            if (record := records.get(each)) is not None:
                scores.setdefault((setting_of(each), way_of(each)), []).append(quality(record))
        if scores:
            arrays = {key: np.array(values) for key, values in scores.items()}
            return Found(by_rate(records, quick), arrays, quick)
    return None


def against_free(found: Found) -> list[tuple[Setting, Way, float, float]]:
    """Of every way on the set: how much better than the same start trained freely, and p that it only seems to differ.

    Welch's two-sided test, times the number of comparisons.
    """
    pairs = [
        (setting, way, values, found.scores[setting, Way(way.start, FREE)])
        for (setting, way), values in found.scores.items()
        if way.how != FREE and (setting, Way(way.start, FREE)) in found.scores
    ]
    return [
        (setting, way, float(values.mean() - free.mean()), _p(values, free, len(pairs)))
        for setting, way, values, free in pairs
    ]


def _p(a: np.ndarray, b: np.ndarray, comparisons: int) -> float:
    if min(len(a), len(b)) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 1.0
    return min(1.0, 2 * comparisons * min(greater_p(a, b), greater_p(b, a)))


class OnTheSet(Trained):
    """Plain networks trained freely and on the set, each way at its best rate."""

    name = "on-the-set"
    title = "What does it buy?"
    page = "on-the-set"
    seeds = 10
    quick_seeds = 3

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """The networks that choose the rates; once they are trained, those that are compared."""
        return [*tuning(quick), *compared(range(FIRST, FIRST + seeds), records or {}, quick)]

    def evidence(self, results: Results) -> Any:
        """The records of the study."""
        return found_in(results.records, self.seeds)

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables and draw the picture."""
        found = found_in({record.cell: record for record in records}, self.count(options))
        if found is not None:
            for table in self.tables(found):
                table.show()
            self.write_pictures(found, options)

    def tables(self, evidence: Found) -> list[Table]:
        """Scores, rates that work, and the ways on the set against free training."""
        ways = [way for way in EVERY if any(key[1] == way for key in evidence.scores)]
        columns = ["", *map(str, evidence.settings)]

        def rows(value: Any) -> list[list[str]]:
            return [[str(way), *(value((setting, way)) for setting in evidence.settings)] for way in ways]

        def score(key: Key) -> str:
            values = evidence.scores.get(key)
            return "—" if values is None else f"{abs(values.mean()):.1f} ± {values.std(ddof=len(values) > 1):.1f}"

        def width(key: Key) -> str:
            return "none" if (found := evidence.working(key)) is None else f"× {found:g}"

        duels = {(setting, way): (gain, p) for setting, way, gain, p in against_free(evidence)}

        def verdict(key: Key) -> str:
            if key not in duels:
                return ""
            gain, p = duels[key]
            return f"{'not shown' if p >= 0.05 else 'better' if gain > 0 else 'worse'} ({gain:+.1f}, p = {p:.2g})"

        few = f"reach {WORKS:.0%} of the best score of their setting"
        return [
            Table("test accuracy (%) at the best rate", columns, rows(score)),
            Table(f"rates that work: the highest over the lowest of those that {few}", columns, rows(width)),
            Table("against the same start trained freely", columns, [row for row in rows(verdict) if any(row[1:])]),
        ]

    def pictures(self, evidence: Found) -> dict[str, Figure]:
        """The score over the rate."""
        settings = evidence.settings
        across = min(3, len(settings))
        drawn, axes = plots.figure(across, -(-len(settings) // across), label="Accuracy over the learning rate")
        for axis in axes.flat[len(settings) :]:
            axis.set_axis_off()
        for axis, setting in zip(axes.flat, settings):
            for number, way in enumerate(EVERY):
                if rates := evidence.tuned.get((setting, way)):
                    points = sorted(rates.items())
                    style = {FREE: ":", "on the set": "-"}.get(way.how, "--")
                    axis.plot(*zip(*points), style, color=f"C{number // len(WAYS)}", marker="o", label=str(way))
            axis.set(title=str(setting), xscale="log", xlabel="times 0.001/√depth")
        axes[0, 0].set_ylabel("test accuracy (%)")
        plots.legend(drawn, axes[0, 0])
        return {self.name: drawn}
