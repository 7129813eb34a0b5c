"""A user's study: from the options of the command line to trained networks."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.errors import StiefelError
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
from .rates import FIRST_SEED, MOST_SEEDS, Choice, Rates, at, choose, parts

MOST = 1_000_000
"""Networks of one study."""
EPOCHS, STEPS = 20, 500


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
