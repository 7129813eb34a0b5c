"""Learning rates of a user's study: one for all schemes, or each scheme at its best, chosen on a validation part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...core.errors import StiefelError
from ...recipe.search import beyond, judged
from ..data import Dataset
from ..train.cell import Cell
from ..train.record import Record

AUTO = (0.25, 0.5, 1.0, 2.0, 4.0)
SMALLEST, LARGEST = 0.02, 1e5
FIRST_SEED = 1000
"""The seeds of the networks that choose a rate begin here; those of the result begin at 0."""
MOST_SEEDS = 3
EXTENSIONS = 3
"""How often `auto` doubles the range where the best rate lies at its edge."""
HELD_OUT, VALIDATION = "#held-out", "#validation"


@dataclass(frozen=True)
class Rates:
    """The rates to try, in units of 0.001/√depth; a single one is taken without a search.

    >>> rates("1"), rates("0.5,2").searched, rates("auto").values
    (Rates(values=(1.0,), auto=False), True, (0.25, 0.5, 1.0, 2.0, 4.0))
    """

    values: tuple[float, ...]
    auto: bool = False

    @property
    def searched(self) -> bool:
        return len(self.values) > 1


def rates(text: str) -> Rates:
    """The rates that `--lr` names: `auto`, or numbers separated by commas."""
    if text.strip() == "auto":
        return Rates(AUTO, auto=True)
    try:
        values = tuple(sorted({float(f"{float(part):.6g}") for part in text.split(",")}))
    except ValueError:
        values = (math.nan,)
    if not all(0 < value < math.inf for value in values):
        raise StiefelError(f"lr={text} is not a learning rate; give a positive number, several as 0.5,1,2, or auto.")
    if values[0] < SMALLEST:
        raise StiefelError(
            f"lr={text} is counted in units of 0.001/√depth, and {values[0]:g} of them train nothing; write --lr 1 for "
            "0.001/√depth."
        )
    if values[-1] > LARGEST:
        raise StiefelError(f"lr={text} is counted in units of 0.001/√depth; give at most {LARGEST:g} of them.")
    return Rates(values)


def at(cell: Cell, times: float) -> Cell:
    """The cell at `times` the unit of its rates."""
    return replace(cell, rate=times * 1e-3 / cell.divisor)


def parts(name: str, dataset: Dataset) -> tuple[str, str, dict[str, Dataset]]:
    """The data for a search: (name of the set to test on, of the one to choose on, both sets).

    One test part serves all seeds, and the networks that choose a rate see nothing of it.
    """
    fixed = dataset.train_rows is not None or dataset.times is not None
    whole = dataset if fixed else replace(dataset, test_seed=0)
    final = name if fixed else f"{name}{HELD_OUT}"
    choosing = f"{name}{VALIDATION}"
    return final, choosing, {final: whole, choosing: replace(whole, validation=True)}


def base_name(name: str) -> str:
    return name.removesuffix(HELD_OUT).removesuffix(VALIDATION)


@dataclass(frozen=True)
class Choice:
    """What a search found: for each setting (a cell at seed 0 and rate 1), the best rate."""

    best: Mapping[Cell, float]
    scores: Mapping[Cell, Mapping[float, float]] = field(default_factory=dict)
    """Of each setting, the mean validation score at each rate, from the smallest."""
    records: Sequence[Record] = ()
    """The networks that chose, on the validation part."""

    def at_edge(self, setting: Cell) -> bool:
        """Whether the best rate is the smallest or the largest tried."""
        return bool(self.scores) and beyond(self.scores[setting], self.best[setting]) is not None


def choose(
    settings: Sequence[Cell], choosing: str, given: Rates, seeds: int, train: Callable[[list[Cell]], list[Record]]
) -> Choice:
    """Find the best rate of each setting, a cell at seed 0 and rate 1, on the data called `choosing`.

    `seeds` networks at each rate, at most three; `train` returns the records of cells in their order.
    """
    tried = {setting: set(given.values) for setting in settings}
    count = min(seeds, MOST_SEEDS)
    for extension in range(EXTENSIONS + 1):
        pairs = [(setting, rate) for setting, values in tried.items() for rate in sorted(values)]
        seeded = [(replace(s, dataset=choosing, seed=FIRST_SEED + seed), r) for s, r in pairs for seed in range(count)]
        records = train([at(cell, rate) for cell, rate in seeded])
        scores: dict[Cell, dict[float, float]] = {setting: {} for setting in settings}
        for place, (setting, rate) in enumerate(pairs):
            reached = [record.score for record in records[count * place : count * (place + 1)]]
            scores[setting][rate] = float(np.mean(reached))
        better = records[0].metric.better
        quality = {s: {rate: better(score) for rate, score in row.items()} for s, row in scores.items()}
        found: dict[Cell, Mapping[float, Any]] = {s: judged(row) if given.auto else row for s, row in quality.items()}
        best = {s: max(sorted(row), key=row.__getitem__) for s, row in found.items()}
        further = {setting: new for setting in settings if (new := beyond(tried[setting], best[setting]))}
        if not given.auto or not further or extension == EXTENSIONS:
            break
        for setting, rate in further.items():
            tried[setting].add(rate)
    return Choice(best, scores, records)


def times(cell: Cell) -> float:
    """The cell's learning rate in its unit."""
    return float(f"{cell.rate * 1e3 * cell.divisor:.6g}")
