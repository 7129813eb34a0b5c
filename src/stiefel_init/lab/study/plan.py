"""A user's study: from the options of the command line to trained networks, at one rate or each scheme at its best."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import StiefelError
from ...recipe.search import beyond, judged
from ...schemes import Scheme, get
from ...theory import ACTIVATIONS
from ..data import Dataset, load
from ..data.dataset import TEST_SHARE
from ..data.user import words
from ..files import prepare
from ..train.cell import Cell, digest
from ..train.cluster import ClusterSpec, reach
from ..train.convolutional import own
from ..train.family import FAMILIES, PERCEPTRON, DeviceName, is_own, settled
from ..train.problem import Metric, Problems
from ..train.record import Record
from ..train.runner import check as check_cells
from ..train.runner import pick_device
from . import SCHEMES

MOST = 1_000_000  # networks of one study
EPOCHS, STEPS = 20, 500
AUTO = (0.25, 0.5, 1.0, 2.0, 4.0)
SMALLEST, LARGEST = 0.02, 1e5
FIRST_SEED = 1000  # the seeds of the networks that choose a rate begin here; those of the result begin at 0
MOST_SEEDS = 3
EXTENSIONS = 3  # how often `auto` doubles the range where the best rate lies at its edge
HELD_OUT, VALIDATION = "#held-out", "#validation"


def grid(
    dataset: str, schemes: str, depths: str, activations: str, *,
    batch: int, network: str = PERCEPTRON, width: int | None = None, **settings: Any,
) -> list[Cell]:  # fmt: skip
    """The settings of a study, at seed 0 and the default rate; `all` stands for the paper's schemes or activations.

    The network is a family, with its depth or without, or the user's own, as FILE.py:NAME.
    """
    if batch < 0:
        raise StiefelError(f"batch={batch} is negative; give the batch size, or 0 for full batch.")
    if is_own(network):
        network, depth = own(network)
        numbers, usual = [depth], 1
    else:
        try:
            numbers = list(dict.fromkeys(int(part) for part in depths.split(",")))
        except ValueError:
            raise StiefelError(f"depth={depths!r} is not a list of whole numbers; write for example 5,10,50.") from None
        usual = FAMILIES[settled(network, numbers[0])[0]].width
    settings |= {"width": usual if width is None else width, "batch": batch or None, "network": network}
    chosen = itertools.product(listed("activation", activations, ACTIVATIONS), numbers, schemes_of(schemes))
    cells = [Cell(dataset, scheme, depth, activation=name, **settings) for name, depth, scheme in chosen]
    return list(dict.fromkeys(cells))  # a depth in the network's name is the only one


def schemes_of(text: str) -> list[Scheme]:
    """The schemes of a comma-separated list; `all` stands for the default recipe and the paper's six.

    >>> [str(scheme) for scheme in schemes_of("stiefel, rotation 0.03")]
    ['stiefel', 'rotation 0.03']
    """
    return list(dict.fromkeys(get(name) for name in listed("scheme", text, ("recipe", *SCHEMES))))


def listed(what: str, text: str, every: Sequence[str]) -> list[str]:
    """The names of a comma-separated list; `all` stands for every one."""
    names = every if text == "all" else words(text)
    if not names:
        raise StiefelError(f"{what}={text!r} is empty; write for example {every[0]},{every[2]}, or all.")
    return list(dict.fromkeys(names))


def usual_epochs(dataset: Dataset, batch: int, shots: int | None) -> int:
    """Epochs where the user names none: 20, and on a table so many that they are 500 steps."""
    rows = len(dataset.y) * (1 - TEST_SHARE) if shots is None else max(1, shots) * dataset.outputs
    return EPOCHS if dataset.image else max(EPOCHS, math.ceil(STEPS / math.ceil(rows / (batch or rows))))


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
    records: Sequence[Record] = ()  # the networks that chose, on the validation part

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


@dataclass(frozen=True, eq=False)
class Study:
    """What to train: settings, seeds and rates on one data set."""

    settings: Sequence[Cell]  # at seed 0 and the default rate
    seeds: int
    rates: Rates
    dataset: Dataset
    datasets: Mapping[str, Dataset]  # what the cells call it; empty for the laboratory's own sets, whole
    choosing: str = ""  # the name of the set on which rates are chosen

    @property
    def name(self) -> str:
        """A name for its folder: the data set, and a word for everything else that it depends on."""
        data = re.sub(r"[^A-Za-z0-9.-]+", "-", self.settings[0].dataset.partition("@")[0]).partition("-held-out")[0]
        word = hashlib.blake2b(f"{digest(self.settings)} {self.seeds} {self.rates}".encode(), digest_size=3)
        return f"{data}-{word.hexdigest()}"

    def foreseen(self) -> list[Cell]:
        """What it would train; `auto` is taken to try one rate more in each setting."""
        tried = (*self.rates.values, *((2 * self.rates.values[-1],) if self.rates.auto else ()))
        chosen = [
            at(replace(setting, dataset=self.choosing, seed=FIRST_SEED + seed), times)
            for setting in (self.settings if self.rates.searched else [])
            for times in tried
            for seed in range(min(self.seeds, MOST_SEEDS))
        ]
        return chosen + self.cells(dict.fromkeys(self.settings, self.rates.values[0]))

    def cells(self, best: Mapping[Cell, float]) -> list[Cell]:
        """The networks of the result, given the best rate of each setting."""
        return [at(setting, best[setting]).with_seed(seed) for setting in self.settings for seed in range(self.seeds)]


@dataclass(frozen=True, eq=False)
class Outcome:
    """A study and what came of it."""

    study: Study
    records: Sequence[Record]
    choice: Choice

    @property
    def metric(self) -> Metric:
        return self.records[0].metric

    def of(self, setting: Cell) -> Sequence[Record]:
        """The networks of a setting, at its rate."""
        start = self.study.settings.index(setting) * self.study.seeds
        return self.records[start : start + self.study.seeds]


def plan(
    cells: Sequence[Cell], seeds: int, rates: Rates, datasets: Mapping[str, Dataset], folder: Path | None
) -> Study:
    """The study of some settings, at seed 0 and the default rate, on data that allow it.

    `datasets` are the user's own, by the name that the cells use; `folder` is where files of the others are.
    """
    if seeds < 1:
        raise StiefelError(f"seeds={seeds} is not a number of networks; give 1 or more.")
    total = len(cells) * (seeds + (min(seeds, MOST_SEEDS) * len(rates.values) if rates.searched else 0))
    if total > MOST:
        raise StiefelError(f"That would be {total:,} networks; a study takes at most {MOST:,}.")
    name = cells[0].dataset
    dataset = datasets[name] if name in datasets else load(name, directory=folder)
    if not rates.searched:
        return Study(cells, seeds, rates, dataset, datasets)
    final, choosing, data = parts(name, dataset)
    return Study([replace(cell, dataset=final) for cell in cells], seeds, rates, data[final], data, choosing)


def check(study: Study, out: Path, folder: Path | None, device: DeviceName, on: str) -> None:
    """Stop at whatever would stop the study later: data, a device, a cluster, or a directory that takes no files."""
    if (place := ClusterSpec.of(on)) is not None:
        reach(place)
    where = pick_device(device) if place is None else None
    check_cells(study.foreseen(), Problems(study.datasets, folder), where)
    prepare(out)


def run_study(study: Study, train: Callable[[list[Cell]], list[Record]]) -> Outcome:
    """Choose the rates, if there is a choice, and train the networks of the result."""
    if study.rates.searched:
        choice = choose(study.settings, study.choosing, study.rates, study.seeds, train)
    else:
        choice = Choice(dict.fromkeys(study.settings, study.rates.values[0]))
    return Outcome(study, train(study.cells(choice.best)), choice)
