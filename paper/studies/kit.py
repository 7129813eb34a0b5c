"""What the studies share: contenders at their best learning rates, which networks with seeds of their own choose."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, product
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.recipe.search import best_first

from ..experiment import Options, Trained
from ..results import Results

WORKS = 0.9
"""A rate works if its networks reach this share of the best score of any contender at any rate."""
FEW = 5
"""Seeds of a contender without hope: enough to show that it fails, where hundreds of comparisons share the level."""
DEEP = 300
"""From this depth on one network chooses at each rate, not two: that is where networks are dear."""
SCORE = "score"
MISSING = "—"
Contender = TypeVar("Contender", bound=Hashable)


class Data(NamedTuple):
    """What a network is trained on: settings that differ in depth alone share it."""

    dataset: str
    shots: int | None = None

    def __str__(self) -> str:
        return self.dataset if self.shots is None else f"{self.dataset}, {self.shots} per class"


class Setting(NamedTuple):
    """Data and a depth: contenders are compared within one."""

    dataset: str
    depth: int
    shots: int | None = None

    @property
    def data(self) -> Data:
        """What its networks are trained on."""
        return Data(self.dataset, self.shots)

    def __str__(self) -> str:
        return f"{self.data}, {self.depth:,} layers"


Key = tuple[Setting, Contender]


def setting_of(cell: Cell) -> Setting:
    """The setting of a network."""
    return Setting(cell.dataset, cell.depth, cell.shots)


def quality(record: Record) -> float:
    """The score, turned so that more is better; a network that diverged has the worst."""
    score = record.metric.better(record.score)
    return score if math.isfinite(score) else -math.inf


def spread(values: Sequence[float] | np.ndarray | None, digits: int = 1) -> str:
    """Mean ± standard deviation of scores, or of scores turned so that more is better.

    >>> spread([80.0, 82.0]), spread([-3.0], 2), spread([]), spread([80.0, -np.inf])
    ('81.0 ± 1.4', '3.00', '—', 'diverged')
    """
    if values is None or not len(values):
        return MISSING
    scores = np.abs(np.asarray(values, float))
    if not np.isfinite(scores).all():
        return "diverged"
    return f"{scores.mean():.{digits}f}" + (f" ± {scores.std(ddof=1):.{digits}f}" if len(scores) > 1 else "")


@dataclass(frozen=True)
class Search(Generic[Contender]):
    """The best learning rates of contenders in settings, and the networks that follow from them."""

    tuning: tuple[Cell, ...]
    """The networks that choose the rates."""
    contender: Callable[[Cell], Contender]
    """Whose network it is."""
    final: Callable[[Contender, Setting, float], Cell]
    """The compared network of a contender in a setting, at so many times 0.001/√depth, with any seed."""
    first: int
    """First seed of the compared networks; no network that chooses a rate has one of them."""
    hopeless: float = 0.0
    """A contender whose best rate reaches less than this share of the best of its setting gets `FEW` seeds."""
    dead: float = -math.inf
    """One that reaches no more than this gets none."""
    ties_to_largest: bool = False
    """Whether the largest of equally good rates is taken, not the smallest."""

    @cached_property
    def _rates(self) -> dict[tuple[Key[Contender], float], list[Cell]]:
        """The tuning networks of each setting, contender and rate."""
        found: dict[tuple[Key[Contender], float], list[Cell]] = {}
        for cell in self.tuning:
            found.setdefault(((setting_of(cell), self.contender(cell)), cell.lr_multiplier), []).append(cell)
        return found

    def by_rate(self, records: Mapping[Cell, Record]) -> dict[Key[Contender], dict[float, float]]:
        """Of each setting and contender: rate → mean quality of its tuning networks, where all of them are finished."""
        found: dict[Key[Contender], dict[float, float]] = {}
        for (key, times), networks in self._rates.items():
            if all(cell in records for cell in networks):
                mean = sum(quality(records[cell]) for cell in networks) / len(networks)
                found.setdefault(key, {})[times] = mean
        return found

    def best(self, records: Mapping[Cell, Record]) -> dict[Key[Contender], float]:
        """The rate that each contender does best with, where all rates were tried."""
        tried = Counter(key for key, _ in self._rates)
        return {
            key: best_first(rates, ties_to_largest=self.ties_to_largest)[0]
            for key, rates in self.by_rate(records).items()
            if len(rates) == tried[key]
        }

    def compared(self, seeds: int, records: Mapping[Cell, Record]) -> list[Cell]:
        """Every contender at its best rate, with so many seeds that did not choose it, or a few if it is hopeless."""
        reached = self.by_rate(records)
        best = {key: (times, self.final(key[1], key[0], times)) for key, times in self.best(records).items()}
        top = {setting: top_of(reached, setting) for setting in {setting for setting, _ in best}}
        return [
            cell.with_seed(seed)
            for seed in range(self.first, self.first + seeds)
            for key, (times, cell) in best.items()
            if reached[key][times] > self.dead
            and (seed < self.first + FEW or reached[key][times] >= share_of(top[key[0]], self.hopeless))
        ]

    def samples(
        self, seeds: int, records: Mapping[Cell, Record], value: Callable[[Record], float | None] = quality
    ) -> dict[Key[Contender], np.ndarray]:
        """A value of the compared networks, for each setting and contender; None is left out."""
        found: dict[Key[Contender], list[float]] = {}
        for cell in self.compared(seeds, records):
            if cell in records and (number := value(records[cell])) is not None:
                found.setdefault((setting_of(cell), self.contender(cell)), []).append(number)
        return {key: np.array(values) for key, values in found.items()}


Row = TypeVar("Row")
Column = TypeVar("Column")


def grid_of(
    title: str, rows: Mapping[str, Row], columns: Mapping[str, Column], text: Callable[[Row, Column], str]
) -> Table:
    """A table of what `text` says of each row and column; rows without anything are left out."""
    made = [[name, *(text(row, column) for column in columns.values())] for name, row in rows.items()]
    return Table(title, ["", *columns], [row for row in made if any(told not in ("", MISSING) for told in row[1:])])


def by_depth(title: str, found: Tuned[Any], rows: Mapping[str, Row], text: Callable[[Row, int], str]) -> Table:
    """The same with a column for each depth."""
    return grid_of(title, rows, {f"{depth:,} layers": depth for depth in found.depths()}, text)


def share_of(best: float, share: float) -> float:
    """The quality that is a share of the best one: of an accuracy so much of it, of an error so much more.

    >>> share_of(90.0, 0.5), share_of(-3.0, 0.5), share_of(-3.0, 0.0)
    (45.0, -6.0, -inf)
    """
    return best * share if best > 0 else best / share if share else -math.inf


def top_of(reached: Mapping[Key[Contender], Mapping[float, float]], setting: Setting) -> float:
    """What the best contender of a setting reached at its best rate; 0 if there is none."""
    return max((max(rates.values()) for (where, _), rates in reached.items() if where == setting), default=0.0)


@dataclass(frozen=True)
class Tuned(Generic[Contender]):
    """What records say of a study, full or quick."""

    tuned: Mapping[Key[Contender], Mapping[float, float]]
    """Rate → mean quality of the networks that chose it."""
    best: Mapping[Key[Contender], float]
    """The rates that were chosen."""
    samples: Mapping[str, Mapping[Key[Contender], np.ndarray]]
    """Of each measure: the compared networks, turned so that more is better."""
    settings: Sequence[Setting]
    """Those with compared networks, in the order of the page."""
    quick: bool

    @property
    def scores(self) -> Mapping[Key[Contender], np.ndarray]:
        """Of the compared networks."""
        return self.samples[SCORE]

    @property
    def data(self) -> list[Data]:
        """That of the settings, in their order."""
        return list(dict.fromkeys(setting.data for setting in self.settings))

    def depths(self) -> list[int]:
        """Of all settings."""
        return sorted({setting.depth for setting in self.settings})

    def of(self, setting: Setting) -> dict[Contender, np.ndarray]:
        """The scores of all contenders in a setting."""
        return {contender: values for (where, contender), values in self.scores.items() if where == setting}

    def working(self, setting: Setting, contender: Contender) -> float | None:
        """The highest rate that comes close to the best of its setting, over the lowest; None if none does."""
        least = share_of(top_of(self.tuned, setting), WORKS)
        works = [times for times, reached in self.tuned.get((setting, contender), {}).items() if reached >= least]
        return max(works) / min(works) if works else None

    def working_text(self, setting: Setting, contender: Contender) -> str:
        """The same for a table."""
        if (setting, contender) not in self.tuned:
            return MISSING
        return "none" if (width := self.working(setting, contender)) is None else f"× {width:g}"


class Grid(NamedTuple):
    """Settings, and the contenders that are compared in each."""

    settings: tuple[Setting, ...]
    contenders: tuple[Any, ...]


Stage = tuple[Grid, ...]
"""Grids that are trained together: all rates are chosen before networks are compared."""


class TunedStudy(Trained, Generic[Contender]):
    """A study of contenders at their best rates, stage by stage: the most telling first, as a run may end early."""

    stages: ClassVar[Mapping[bool, tuple[Stage, ...]]]
    """Of the full study (False) and of the quick one (True)."""
    order: ClassVar[tuple[str, ...]]
    """The data sets as the page has them."""
    tuning_seeds: ClassVar[tuple[int, ...]] = (1000, 1001)
    first_seed: ClassVar[int] = 2000
    hopeless: ClassVar[float] = 0.0
    dead: ClassVar[float] = -math.inf
    measures: ClassVar[Mapping[str, Callable[[Record], float | None]]] = {SCORE: quality}

    @abstractmethod
    def cell(self, contender: Contender, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        """A network at `times` 0.001/√depth; one that chooses a rate trains for a third of the epochs."""

    @abstractmethod
    def contender(self, cell: Cell) -> Contender:
        """Whose network it is."""

    @abstractmethod
    def rates(self, contender: Contender, setting: Setting, quick: bool) -> tuple[float, ...]:
        """The rates that are tried, times 0.001/√depth."""

    def searches(self, quick: bool) -> tuple[Search[Contender], ...]:
        """The stages of the study, in the order in which they are trained."""
        return _searches(type(self), quick)

    def all_settings(self, quick: bool) -> list[Setting]:
        """All settings, by data and depth."""
        known = {setting for stage in self.stages[quick] for grid in stage for setting in grid.settings}
        return sorted(known, key=lambda s: (s.shots or 0, self.order.index(s.dataset), s.depth))

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """The networks of the study up to the first stage that is not finished.

        A stage on data that nobody has, of which no network was trained, does not keep the next one waiting.
        """
        known, found = records or {}, list[Cell]()
        for search in self.searches(quick):
            stage = [*search.tuning, *search.compared(seeds, known)]
            found += stage
            if any(cell not in known and cell.dataset not in self.optional for cell in stage):
                break
        return found

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Those of all stages: one that was not finished, or has fewer seeds, does not hide the next."""
        stages = ((*search.tuning, *search.compared(self.seeds, records)) for search in self.searches(quick))
        return [records[cell] for cell in dict.fromkeys(chain(*stages)) if cell in records]

    def evidence(self, results: Results) -> Any:
        """What the records of the full study say."""
        return self.found_in(results.records_of(self.label(quick=False)), self.seeds)

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables and draw the pictures."""
        found = self.found_in({record.cell: record for record in records}, self.count(options), quick=options.quick)
        if found is None:
            print("The rates of no setting are chosen yet, so that there is nothing to compare.")
            return
        self.present(found, options)

    def found_in(self, records: Mapping[Cell, Record], seeds: int, *, quick: bool = False) -> Tuned[Contender] | None:
        """What the records have of the study; None if there is nothing to compare."""
        searches = self.searches(quick)
        samples = {
            name: _joined(search.samples(seeds, records, value) for search in searches)
            for name, value in self.measures.items()
        }
        compared = {setting for setting, _ in samples[SCORE]}
        reached, best = (_joined(of(records) for of in each) for each in zip(*((s.by_rate, s.best) for s in searches)))
        settings = [setting for setting in self.all_settings(quick) if setting in compared]
        return Tuned(reached, best, samples, settings, quick) if settings else None


Value = TypeVar("Value")


def _joined(parts: Iterable[Mapping[Key[Contender], Value]]) -> dict[Key[Contender], Value]:
    return {key: value for part in parts for key, value in part.items()}


@cache
def _searches(kind: type[TunedStudy[Any]], quick: bool) -> tuple[Search[Any], ...]:
    study = kind()

    def search(stage: Stage) -> Search[Any]:
        tuning = tuple(
            study.cell(contender, setting, times, quick=quick, tuning=True).with_seed(seed)
            for grid in stage
            for setting, contender in product(grid.settings, grid.contenders)
            for times in study.rates(contender, setting, quick)
            for seed in study.tuning_seeds[: 2 if setting.depth < DEEP and not quick else 1]
        )
        final = cache(lambda contender, setting, times: study.cell(contender, setting, times, quick=quick))
        least = (0.0, -math.inf) if quick else (study.hopeless, study.dead)
        return Search(tuning, study.contender, final, study.first_seed, *least)

    return tuple(map(search, study.stages[quick]))
