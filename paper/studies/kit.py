"""What the studies share: contenders at their best learning rates, which networks with seeds of their own choose."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.recipe.search import best_first
from stiefel_init.schemes import Scheme

from ..experiment import Options, Trained
from ..results import Results
from ..tables.protocol import TABULAR_WIDTH

WORKS = 0.9
"""A rate works if its networks reach this share of the best score of any contender at any rate."""
FEW = 5
"""Seeds of a contender without hope: enough to show that it fails, where hundreds of comparisons share the level."""
DEEP = 300
"""From this depth on one network chooses at each rate, not two: that is where networks are dear."""
SCORE = "score"
MISSING = "—"
Contender = TypeVar("Contender", bound=Hashable)
Row = TypeVar("Row")
Column = TypeVar("Column")


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


class Grid(NamedTuple):
    """Settings, and the contenders that are compared in each."""

    settings: tuple[Setting, ...]
    contenders: tuple[Any, ...]


Stage = tuple[Grid, ...]
"""Grids that are trained together: all rates are chosen before networks are compared."""
Key = tuple[Setting, Contender]


def perceptron(
    setting: Setting, scheme: Scheme | str, times: float, *, epochs: int, steps: int = 100, batch: int = 256,
    **more: Any,
) -> Cell:  # fmt: skip
    """A plain network at `times` 0.001/√depth; on a few images of each class, all of them in each of so many steps."""
    (dataset, depth, shots), table = setting, setting.dataset in TABULAR_WIDTH
    few: dict[str, Any] = {"epochs": epochs, "batch": batch} if shots is None else {"epochs": steps, "batch": None}
    return Cell(
        dataset, scheme, depth, TABULAR_WIDTH.get(dataset, 64), rate=times * 1e-3 / math.sqrt(depth), shots=shots,
        alpha=0.0 if table else None, **few, **more,
    )  # fmt: skip


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


def share_of(best: float, share: float) -> float:
    """The quality that is a share of the best one: of an accuracy so much of it, of an error so much more.

    >>> share_of(90.0, 0.5), share_of(-3.0, 0.5), share_of(-3.0, 0.0)
    (45.0, -6.0, -inf)
    """
    return best * share if best > 0 else best / share if share else -math.inf


def top_of(reached: Mapping[Key[Contender], Mapping[float, float]], setting: Setting) -> float:
    """What the best contender of a setting reached at its best rate; 0 if there is none."""
    return max((max(rates.values()) for (where, _), rates in reached.items() if where == setting), default=0.0)


class Search(Generic[Contender]):
    """A stage of a study: the best learning rates of contenders, and the networks that follow from them."""

    def __init__(self, study: TunedStudy[Contender], stage: Stage, quick: bool) -> None:
        self.study = study
        self.tried: dict[Key[Contender], dict[float, list[Cell]]] = {
            (setting, contender): {
                times: [study.cell(contender, setting, times, quick=quick, tuning=True).with_seed(seed)
                        for seed in study.tuning_seeds[: 2 if setting.depth < DEEP and not quick else 1]]
                for times in study.rates(contender, setting, quick)
            }
            for grid in stage for setting, contender in product(grid.settings, grid.contenders)
        }  # fmt: skip
        self.tuning = [cell for rates in self.tried.values() for cells in rates.values() for cell in cells]
        self.final = cache(lambda contender, setting, times: study.cell(contender, setting, times, quick=quick))
        self.hopeless, self.dead = (0.0, -math.inf) if quick else (study.hopeless, study.dead)

    def by_rate(self, records: Mapping[Cell, Record]) -> dict[Key[Contender], dict[float, float]]:
        """Of each setting and contender: rate → mean quality of its tuning networks, where all of them are finished."""
        found = {}
        for key, rates in self.tried.items():
            done = {times: cells for times, cells in rates.items() if all(cell in records for cell in cells)}
            if done:
                found[key] = {t: sum(quality(records[cell]) for cell in c) / len(c) for t, c in done.items()}
        return found

    def best(self, records: Mapping[Cell, Record]) -> dict[Key[Contender], float]:
        """The rate that each contender does best with, where all rates were tried."""
        ties = self.study.ties_to_largest
        return {
            key: best_first(rates, ties_to_largest=ties)[0]
            for key, rates in self.by_rate(records).items()
            if len(rates) == len(self.tried[key])
        }

    def following(self, seeds: int, records: Mapping[Cell, Record]) -> list[tuple[Key[Contender], Cell]]:
        """Every contender at its best rate, with so many seeds that did not choose it, or a few if it is hopeless."""
        reached, best, first = self.by_rate(records), self.best(records), self.study.first_seed
        top = {setting: top_of(reached, setting) for setting, _ in best}
        return [
            (key, self.final(key[1], key[0], times).with_seed(seed))
            for seed in range(first, first + seeds)
            for key, times in best.items()
            if reached[key][times] > self.dead
            and (seed < first + FEW or reached[key][times] >= share_of(top[key[0]], self.hopeless))
        ]

    def compared(self, seeds: int, records: Mapping[Cell, Record]) -> list[Cell]:
        """Their networks."""
        return [cell for _, cell in self.following(seeds, records)]


def grid_of(
    title: str, rows: Mapping[str, Row], columns: Mapping[str, Column], text: Callable[[Row, Column], str]
) -> Table:
    """A table of what `text` says of each row and column; rows without anything are left out."""
    made = [[name, *(text(row, column) for column in columns.values())] for name, row in rows.items()]
    return Table(title, ["", *columns], [row for row in made if any(told not in ("", MISSING) for told in row[1:])])


def by_depth(title: str, found: Tuned[Any], rows: Mapping[str, Row], text: Callable[[Row, int], str]) -> Table:
    """The same with a column for each depth."""
    return grid_of(title, rows, {f"{depth:,} layers": depth for depth in found.depths()}, text)


@dataclass(frozen=True)
class Tuned(Generic[Contender]):
    """What records say of a study."""

    tuned: Mapping[Key[Contender], Mapping[float, float]]
    """Rate → mean quality of the networks that chose it."""
    samples: Mapping[str, Mapping[Key[Contender], np.ndarray]]
    """Of each measure: the compared networks, turned so that more is better."""
    settings: Sequence[Setting]
    """Those with compared networks, in the order of the page."""

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

    def working(self, setting: Setting, contender: Contender) -> str:
        """The highest rate that comes close to the best of its setting, over the lowest."""
        if (rates := self.tuned.get((setting, contender))) is None:
            return MISSING
        least = share_of(top_of(self.tuned, setting), WORKS)
        works = [times for times, reached in rates.items() if reached >= least]
        return f"× {max(works) / min(works):g}" if works else "none"


class TunedStudy(Trained, Generic[Contender]):
    """A study of contenders at their best rates, stage by stage: the most telling first, as a run may end early."""

    stages: ClassVar[Mapping[bool, tuple[Stage, ...]]]
    """Of the full study (False) and of the quick one (True)."""
    order: ClassVar[tuple[str, ...]]
    """The data sets as the page has them."""
    tuning_seeds: ClassVar[tuple[int, ...]] = (1000, 1001)
    """Of the networks that choose a rate."""
    first_seed: ClassVar[int] = 2000
    """Of the compared networks; no network that chooses a rate has one of theirs."""
    hopeless: ClassVar[float] = 0.0
    """A contender whose best rate reaches less than this share of the best of its setting gets `FEW` seeds."""
    dead: ClassVar[float] = -math.inf
    """One that reaches no more than this gets none."""
    ties_to_largest: ClassVar[bool] = False
    """Whether the largest of equally good rates is taken, not the smallest."""
    measures: ClassVar[Mapping[str, Callable[[Record], float | None]]] = {SCORE: quality}

    @abstractmethod
    def cell(self, contender: Contender, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        """A network at `times` the study's rate; one that chooses a rate trains for a shorter time."""

    @abstractmethod
    def rates(self, contender: Contender, setting: Setting, quick: bool) -> tuple[float, ...]:
        """The rates that are tried, times the study's."""

    def searches(self, quick: bool) -> tuple[Search[Contender], ...]:
        """The stages of the study, in the order in which they are trained."""
        return _searches(type(self), quick)

    def all_settings(self, quick: bool) -> list[Setting]:
        """All settings, by data and depth."""
        known = {setting for search in self.searches(quick) for setting, _ in search.tried}
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
        following = dict.fromkeys(chain(*(search.following(seeds, records) for search in searches)))
        compared = [(key, records[cell]) for key, cell in following if cell in records]
        samples = {name: _sampled(compared, value) for name, value in self.measures.items()}
        there = {setting for setting, _ in samples[SCORE]}
        settings = [setting for setting in self.all_settings(quick) if setting in there]
        tuned = {key: rates for search in searches for key, rates in search.by_rate(records).items()}
        return Tuned(tuned, samples, settings) if settings else None


def _sampled(
    compared: Iterable[tuple[Key[Contender], Record]], value: Callable[[Record], float | None]
) -> dict[Key[Contender], np.ndarray]:
    """A value of the compared networks, for each setting and contender; None is left out."""
    found: dict[Key[Contender], list[float]] = {}
    for key, record in compared:
        if (number := value(record)) is not None:
            found.setdefault(key, []).append(number)
    return {key: np.array(values) for key, values in found.items()}


@cache
def _searches(kind: type[TunedStudy[Any]], quick: bool) -> tuple[Search[Any], ...]:
    study = kind()
    return tuple(Search(study, stage, quick) for stage in study.stages[quick])
