"""The study of baselines: every initialization on one engine, each at its best learning rate, against ours."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.significance import different, holm, verdicts
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import MuP, Orthogonal, Scheme, get

from ..experiment import Options
from ..results import Results, write_table
from ..tables.protocol import IMAGES, TABULAR_WIDTH
from .kit import DEEP, Data, Grid, Setting, Tuned, TunedStudy

FAST = ", fast ends"
"""What a name ends with if the first and the last layer learn √depth times as fast as the others, by a cosine."""


class Initialization(NamedTuple):
    """An initialization that is compared, and how it is trained."""

    scheme: Scheme
    activation: str = "relu"
    fast: bool = False


OURS = ("recipe", "stiefel", "permutation", "identity")
"""`recipe` is what `initialize_(model)` does."""
_SCHEMES = {
    **{name: Initialization(get(name)) for name in (*OURS, "looks-linear")},
    "tat": Initialization(get("tat"), "tat"),
    "orthogonal √2": Initialization(Orthogonal(math.sqrt(2))),
    **{name: Initialization(get(name)) for name in ("lsuv", "zero", "idinit", "sinusoidal")},
    "tanh-init": Initialization(get("tanh-init"), "tanh"),
    **{name: Initialization(get(name)) for name in ("he", "xavier", "torch", "truncated-normal", "gpt-2")},
    "mup √2": Initialization(MuP(math.sqrt(2))),
}
NAMES = tuple(_SCHEMES)
BASELINES = NAMES[len(OURS) :]
FAST_NAMES = tuple(name + FAST for name in NAMES)
EVERY = _SCHEMES | {name + FAST: each._replace(fast=True) for name, each in _SCHEMES.items()}
"""All of them with one rate for all layers, then all of them with fast ends."""
MINE = {name + end for name in OURS for end in ("", FAST)}
_NAME_OF = {(each.scheme, each.fast): name for name, each in EVERY.items()}
DEPTHS = (10, 30, 100, 300, 1000)
RATES, QUICK_RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), (0.25, 1.0, 4.0, 16.0)
"""Times the paper's 0.001/√depth."""
SHOTS = (1, 8)
EPOCHS = {**dict.fromkeys(IMAGES, 15), "digits": 40}
TABLE_EPOCHS, STEPS = 100, 100
"""On tables, and on a few of each class."""
QUICK_EPOCHS, QUICK_STEPS = 12, 60
DOWNLOADED = ("pima", "ionosphere")
"""Tables that do not come with scikit-learn: the study goes on without them."""
TABLES = ("cancer", "wine", "diabetes", *DOWNLOADED)
"""Without Adult, which has as many rows as MNIST and would cost as much."""
SPEED = "rivals-speed"


def _grid(
    datasets: Sequence[str], depths: Sequence[int] = DEPTHS, shots: int | None = None, names: tuple[str, ...] = NAMES
) -> Grid:
    return Grid(tuple(Setting(dataset, depth, shots) for depth, dataset in product(depths, datasets)), names)


class Baselines(TunedStudy[str]):
    """Initializations by other authors and ours in plain networks, each at its best rate."""

    name = "baselines"
    aliases = ("rivals",)
    stem = "rivals"  # what its records have been called
    title = "Which initialization?"
    page = "baselines"
    seeds = 10
    quick_seeds = 3
    files = (SPEED,)
    optional = DOWNLOADED
    order = (*IMAGES, "digits", *TABLES)
    hopeless = 0.5
    stages: ClassVar = {
        False: (
            (_grid(IMAGES, (100,), names=tuple(EVERY)),),
            (_grid(IMAGES, (1000,)), _grid(("mnist",), (1000,), names=FAST_NAMES)),
            (_grid(IMAGES, (10, 30)),),
            (_grid(IMAGES, (300,)), _grid(("mnist",), (300,), names=FAST_NAMES)),
            *((_grid(IMAGES, shots=shots),) for shots in SHOTS),
            tuple(_grid(("digits",), shots=shots) for shots in (None, *SHOTS)),
            *((_grid((table,), depths),) for depths, table in product((DEPTHS[::2], DEPTHS[1::2]), TABLES)),
        ),
        True: (
            (_grid(("digits",), (30, 100), names=tuple(EVERY)),),
            (Grid((Setting("digits", 10), Setting("digits", 30, 8)), NAMES),),
        ),
    }

    def contender(self, cell: Cell) -> str:
        """The name of the initialization that a network has."""
        return _NAME_OF[cell.scheme, cell.ends != 1]

    def rates(self, contender: str, setting: Setting, quick: bool) -> tuple[float, ...]:
        """Every second one where deep networks are trained in a second way."""
        return QUICK_RATES if quick or (is_fast(contender) and setting.depth >= DEEP) else RATES

    def cell(self, contender: str, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        """A network at `times` the paper's rate."""
        (dataset, depth, shots), each = setting, EVERY[contender]
        if shots is not None:
            epochs = QUICK_STEPS if quick else STEPS
        else:
            epochs = QUICK_EPOCHS if quick else EPOCHS.get(dataset, TABLE_EPOCHS)
            epochs = epochs // 3 if tuning and not quick else epochs
        return Cell(
            dataset, each.scheme, depth, TABULAR_WIDTH.get(dataset, 64), each.activation,
            epochs=epochs, batch=256 if shots is None else None, rate=times * 1e-3 / math.sqrt(depth), shots=shots,
            alpha=0.0 if dataset in TABULAR_WIDTH else None, schedule="cosine" if each.fast else "constant",
            ends=math.sqrt(depth) if each.fast else 1.0,
        )  # fmt: skip

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Its records without what this study does not ask."""
        return [record.scored() for record in super().select(records, quick=quick)]

    def evidence(self, results: Results) -> Any:
        """The records of the study, and how fast its networks learned."""
        return self.read(results.records_of(self.stem), results.table(SPEED), self.seeds)

    def read(self, records: Mapping[Cell, Record], speed: Sequence[Mapping[str, Any]], seeds: int) -> Tuned[str] | None:
        """What records and the table of speeds say."""
        found = self.found_in(records, seeds)
        return None if found is None else replace(found, speed=_mean_speeds(speed))

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables, keep how fast networks learned, and draw the picture."""
        from .baseline_page import numbers

        by_cell = {record.cell: record for record in records}
        rows = self.speed(by_cell, Problems(None, options.data), self.count(options), options.quick)
        if rows:
            print(f"wrote {write_table(rows, options.out / f'{SPEED}.csv')}")
        found = self.read(by_cell, rows, self.count(options))
        if found is None:
            print("The rates of no setting are chosen yet, so that there is nothing to compare.")
            return
        for table in self.tables(found):
            table.show()
        for data in found.data:
            for table in numbers(found, data):
                replace(table, title=f"{data}: {table.title}").show()
        self.write_pictures(found, options)

    def speed(
        self, records: Mapping[Cell, Record], tasks: Problems, seeds: int, quick: bool
    ) -> list[dict[str, object]]:
        """Of each compared network: the steps to 90 % of its final accuracy, and its seconds."""
        rows: list[dict[str, object]] = []
        for cell in (cell for search in self.searches(quick) for cell in search.compared(seeds, records)):
            if (record := records.get(cell)) is None:
                continue
            epochs, task = epochs_to(record), tasks(cell)
            steps = None if epochs is None else epochs * math.ceil(task.size / min(cell.batch or task.size, task.size))
            where = {"dataset": cell.dataset, "depth": cell.depth, "shots": cell.shots or 0}
            took = {"steps": "" if steps is None else steps, "seconds": round(record.seconds, 3)}
            rows.append({**where, "start": self.contender(cell), "seed": cell.seed, **took})
        return rows

    def tables(self, evidence: Tuned[str]) -> list[Table]:
        """What was wanted, the verdicts, and who is best where."""
        from . import baseline_page as page

        return [page.wanted(evidence), page.verdict_counts(evidence), page.leaders(evidence)]

    def pictures(self, evidence: Tuned[str]) -> dict[str, Any]:
        """Which initialization, at which depth."""
        from .baseline_page import over_depth

        return {self.name: over_depth(evidence)}

    def section(self, evidence: Tuned[str]) -> list[str]:
        """The page: where a baseline wins, the picture, the tables, and a section for each baseline."""
        from .baseline_page import page

        return page(evidence, self.shown(evidence), self.tables(evidence), self)


def _mean_speeds(speed: Sequence[Mapping[str, Any]]) -> dict[tuple[Setting, str], dict[str, float]]:
    """Mean steps to 90 % of the final accuracy, and mean seconds."""
    values: dict[tuple[Setting, str], dict[str, list[float]]] = {}
    for row in speed:
        key = Setting(row["dataset"], int(row["depth"]), int(row["shots"]) or None), str(row["start"])
        for what in ("steps", "seconds"):
            if row[what] not in ("", None):
                values.setdefault(key, {}).setdefault(what, []).append(float(row[what]))
    return {key: {what: float(np.mean(each)) for what, each in of.items()} for key, of in values.items()}


def epochs_to(record: Record, share: float = 0.9) -> int | None:
    """The first epoch after which the test accuracy was 90 % of the last one; None where it was taken only once."""
    if record.metric.name != "accuracy" or len(record.tested) < 2 or not math.isfinite(record.score):
        return None
    return next(epoch for epoch, score in zip(record.tested, record.test_score) if score >= share * record.score)


def is_fast(name: str) -> bool:
    """Whether the ends of the networks of that name learn fast."""
    return name.endswith(FAST)


def best_of_ours(
    found: Tuned[str], setting: Setting, *, fast: bool = False, among: Container[str] = MINE
) -> tuple[str, np.ndarray] | None:
    """Our initialization that did best in a setting among the networks that chose the rates, and its scores.

    To choose it by the scores themselves would favour ours: the best of several is high by chance.
    """
    scores = found.of(setting)
    ours = [name for name in scores if name in among and is_fast(name) == fast]
    if not ours:
        return None
    best = max(ours, key=lambda name: max(found.tuned[setting, name].values()))
    return best, scores[best]


class Duel(NamedTuple):
    """A baseline against ours in a setting, or over all depths of some data, both trained in the same way."""

    where: Any
    baseline: str
    ours: str
    gain: float
    """Of the baseline: the difference of means."""
    verdict: str


Pair = tuple[Setting, str, str, np.ndarray, np.ndarray]
"""Where, the baseline, the name of ours, its scores, the baseline's."""
WORDS = {"better": "wins", "worse": "loses"}


def _questions(found: Tuned[str], ours: str | None = None) -> list[list[Pair]]:
    """All baselines of a setting that were trained in one way, each beside our best or the one of that name."""
    questions = []
    for setting, fast in product(found.settings, (False, True)):
        mine = best_of_ours(found, setting, fast=fast, among=MINE if ours is None else {ours + FAST * fast})
        if mine is not None:
            others = {name: each for name, each in found.of(setting).items() if is_fast(name) == fast}
            questions.append([(setting, name, *mine, each) for name, each in others.items() if name not in MINE])
    return questions


def duels(found: Tuned[str], ours: str | None = None, *, apart: bool = False) -> list[Duel]:
    """Every baseline in every setting against our best initialization there.

    Args:
        found: The records.
        ours: The name of one of ours, to take it instead of the best.
        apart: Whether each setting is a question by itself, whose comparisons share the level among themselves;
            otherwise all settings share it.
    """
    questions = _questions(found, ours)
    results = []
    for pairs in questions if apart else [[pair for question in questions for pair in question]]:
        for (setting, name, our_name, *_), each in zip(pairs, verdicts([(theirs, mine) for *_, mine, theirs in pairs])):
            results.append(Duel(setting, name, our_name, each.gain, WORDS.get(each.word, each.word)))
    return results


def over_depths(found: Tuned[str]) -> list[Duel]:
    """Every baseline on all data: small differences that are the same at every depth show here.

    Networks of one seed have the same data. So the differences to our best are taken seed by seed, averaged over
    depths, and held against zero by Student's test; Holm at 0.05 for all baselines and data.
    """
    pools: dict[tuple[Data, str], list[np.ndarray]] = {}
    for setting, name, _, mine, theirs in (pair for question in _questions(found) for pair in question):
        count = min(len(theirs), len(mine))
        pools.setdefault((setting.data, name), []).append(theirs[:count] - mine[:count])
    means = {key: np.mean([each[: min(map(len, pool))] for each in pool], axis=0) for key, pool in pools.items()}
    means = {key: values for key, values in means.items() if len(values) > 1 and np.isfinite(values).all()}
    corrected = holm([different(values) for values in means.values()])
    return [
        Duel(
            data, name, "", gain := float(values.mean()), "not shown" if p >= 0.05 else "wins" if gain > 0 else "loses"
        )
        for ((data, name), values), p in zip(means.items(), corrected)
    ]
