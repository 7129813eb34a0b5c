"""A user's own study: from the options of the command line to trained networks."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.errors import StiefelError
from ...schemes import Scheme, get
from ...theory import ACTIVATIONS
from ..data import Dataset, from_file, load, names
from ..data.columns import Decimal
from ..data.dataset import Task as TaskName
from ..files import prepare
from ..train.cell import Cell, OptimizerName, PrecisionName, ScheduleName, digest
from ..train.cluster import ClusterSpec, reach
from ..train.problem import Problems
from ..train.record import Record
from ..train.runner import DeviceName, pick_device
from ..train.runner import check as check_cells
from . import SCHEMES
from .rates import FIRST_SEED, MOST_SEEDS, Choice, Rates, at, choose, parts

MOST = 1_000_000
"""Networks of one study."""
_READING = b"2"  # raised whenever the same file and options are read in another way


@dataclass(frozen=True)
class Columns:
    """How to read a user's file; every field is an option of the command line."""

    target: str | None = None
    task: TaskName | None = None
    drop: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    decimal: Decimal | None = None

    def given(self) -> list[str]:
        """The options that were given, as words."""
        return [f"--{name} {value}" for name, value in vars(self).items() if value]


def own_data(dataset: str, columns: Columns) -> dict[str, Dataset]:
    """A file as a data set, named by its content; nothing for the laboratory's own sets."""
    path = Path(dataset)
    if dataset in names():
        if given := columns.given():
            raise StiefelError(f"{given[0]} is for files; {dataset} has its own target and columns.")
        return {}
    if not path.suffix and not path.exists():
        return {}  # an unknown name: loading it says which are known
    if path.is_dir():
        raise StiefelError(f"--data {dataset} is a directory; give a file, or a name and --data-dir {dataset}.")
    if not path.is_file():
        raise StiefelError(f"--data {dataset} does not exist; give a file, or one of {', '.join(names())}.")
    if columns.target is None:
        raise StiefelError(f"--data {dataset} is a file; name the column to predict with --target.")
    options = {name: value for name, value in vars(columns).items() if name != "target"}
    made = from_file(path, columns.target, **options)
    content = hashlib.blake2b(path.read_bytes() + repr(columns).encode() + _READING, digest_size=4).hexdigest()
    return {f"{path.name}@{content}": made}


def grid(
    *,
    dataset: str,
    schemes: str,
    depths: str,
    width: int,
    activations: str,
    epochs: int,
    batch: int,
    optimizer: OptimizerName,
    shots: int | None,
    alpha: float | None,
    precision: PrecisionName,
    decay: float = 0.0,
    dropout: float = 0.0,
    ends: float = 1.0,
    schedule: ScheduleName = "constant",
) -> list[Cell]:
    """The settings of a study, at seed 0 and the default rate; `all` stands for the paper's schemes or activations."""
    if batch < 0:
        raise StiefelError(f"batch={batch} is negative; give the batch size, or 0 for full batch.")
    return [
        Cell(
            dataset, scheme, depth, width, activation, epochs=epochs, batch=batch or None, optimizer=optimizer,
            shots=shots, alpha=alpha, precision=precision, decay=decay, dropout=dropout, schedule=schedule,
            ends=ends,
        )
        for activation, depth, scheme in itertools.product(
            listed("activation", activations, ACTIVATIONS), _numbers("depth", depths), schemes_of(schemes)
        )
    ]  # fmt: skip


def schemes_of(text: str) -> list[Scheme]:
    """The schemes of a comma-separated list; `all` stands for the default recipe and the paper's six.

    >>> [str(scheme) for scheme in schemes_of("stiefel, rotation 0.03")]
    ['stiefel', 'rotation 0.03']
    """
    return list(dict.fromkeys(get(name) for name in listed("scheme", text, ("recipe", *SCHEMES))))


def listed(what: str, text: str, every: Sequence[str]) -> list[str]:
    """The names of a comma-separated list."""
    names = list(every) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise StiefelError(f"{what}={text!r} is empty; write for example {every[0]},{every[2]}, or all.")
    return list(dict.fromkeys(names))


def _numbers(name: str, text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise StiefelError(f"{name}={text!r} is not a list of whole numbers; write for example 5,10,50.") from None


@dataclass(frozen=True, eq=False)
class Study:
    """What to train: settings, seeds and rates on one data set."""

    settings: Sequence[Cell]
    """At seed 0 and the default rate."""
    seeds: int
    rates: Rates
    dataset: Dataset
    datasets: Mapping[str, Dataset]
    """What the cells call it; empty for the laboratory's own sets, whole."""
    choosing: str = ""
    """The name of the set on which rates are chosen."""

    @property
    def name(self) -> str:
        """A name for its folder: the data set, and a word for everything else that it depends on."""
        first = self.settings[0].dataset
        word = hashlib.blake2b(f"{digest(self.settings)} {self.seeds} {self.rates}".encode(), digest_size=3)
        return (
            f"{re.sub(r'[^A-Za-z0-9.-]+', '-', first.partition('@')[0]).partition('-held-out')[0]}-{word.hexdigest()}"
        )

    def forecast_cells(self) -> list[Cell]:
        """What it would train, for a forecast; `auto` is taken to try one rate more in each setting."""
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


def plan(
    cells: Sequence[Cell], seeds: int, rates: Rates, datasets: Mapping[str, Dataset], folder: Path | None
) -> Study:
    """The study of some settings, on data that allow it.

    Args:
        cells: The settings, at seed 0 and the default rate.
        seeds: Networks in each setting.
        rates: The learning rates to take or to choose from.
        datasets: The user's own data, by the name that the cells use.
        folder: Directory of the laboratory's data files.

    Raises:
        StiefelError: for no seeds, or too many networks.
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
    place = ClusterSpec.of(on)
    where = pick_device(device) if place is None else None
    if place is not None:
        reach(place)
    check_cells(study.forecast_cells(), Problems(study.datasets, folder), where)
    prepare(out)


def run_study(study: Study, train: Callable[[list[Cell]], list[Record]]) -> Outcome:
    """Choose the rates, if there is a choice, and train the networks of the result."""
    if study.rates.searched:
        choice = choose(study.settings, study.choosing, study.rates, study.seeds, train)
    else:
        choice = Choice(dict.fromkeys(study.settings, study.rates.values[0]), [])
    return Outcome(study, train(study.cells(choice.best)), choice)
