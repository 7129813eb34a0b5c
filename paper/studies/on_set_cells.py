"""The networks of the study of training on the set: what is compared, where, and in which order it is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from stiefel_init.lab.train.cell import Cell, OptimizerName, ScheduleName
from stiefel_init.lab.train.record import Record

from ..tables.protocol import IMAGES, TABULAR_WIDTH
from .tuned import Search, Setting

FREE, FREE_COSINE, FREE_ENDS = "free", "free, cosine", "free, fast ends"
ON_SET, ON_SET_COSINE, RELEASED = "on the set", "on the set, cosine", "on the set, then free"
GAIN, ENDS, STIEFEL = "on the set, gains", "on the set, fast ends", "Stiefel manifold"
HOW: dict[str, tuple[OptimizerName, ScheduleName, bool]] = {
    FREE: ("adam", "constant", False),
    FREE_COSINE: ("adam", "cosine", False),
    FREE_ENDS: ("adam", "cosine", True),
    ON_SET: ("stiefel-adam", "constant", False),
    ON_SET_COSINE: ("stiefel-adam", "cosine", False),
    RELEASED: ("stiefel-adam", "release", False),
    GAIN: ("gain-adam", "cosine", False),
    ENDS: ("stiefel-adam", "cosine", True),
    STIEFEL: ("orthogonal-adam", "constant", False),
}
"""The ways to train: optimizer, schedule, and whether the first and the last layer learn √depth times as fast, so that
their rate does not shrink with depth. On the Stiefel manifold weights stay orthogonal, without the ones; with gains,
each layer has a learned one."""
_HOW = {training: how for how, training in HOW.items()}
STARTS = {"stiefel": "uniform", "permutation": "permutation"}
"""Scheme → what its members are called."""
TUNING, FIRST = (3000, 3001), 4000
"""Seeds that choose rates, and the first that is compared; not those of the study of rivals, so that no network is in
both."""
RATES, QUICK_RATES = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0), (1.0, 16.0, 256.0)
"""Times the paper's 0.001/√depth."""
EPOCHS, QUICK_EPOCHS, TABLE_EPOCHS, STEPS = 15, 6, 60, 100
"""On images, in the quick study, on tables, and on a few images of each class."""
TABLE = "cancer"
DEPTHS = (100, 300, 1000)
DEEPEST = DEPTHS[-1]
SHOTS = 8


class Way(NamedTuple):
    """A start, and how it is trained."""

    start: str
    how: str

    def __str__(self) -> str:
        return f"{STARTS[self.start]}, {self.how}"


EVERY = tuple(Way(start, how) for start, how in product(STARTS, HOW))
Key = tuple[Setting, Way]


class Part(NamedTuple):
    """Ways to train in some settings."""

    settings: tuple[Setting, ...]
    hows: tuple[str, ...]


def _images(depth: int, shots: int | None = None) -> tuple[Setting, ...]:
    return tuple(Setting(dataset, depth, shots) for dataset in IMAGES)


Stage = tuple[Part, ...]
"""Parts that are trained together: all rates are chosen before networks are compared."""
FULL: tuple[Stage, ...] = (  # the most telling first, as a run may end early; what costs most last
    (Part(_images(DEEPEST), (ON_SET_COSINE, FREE, ENDS, FREE_ENDS)),),
    (Part((*_images(100), *_images(100, SHOTS)), tuple(HOW)),),
    (Part(_images(300), (FREE, FREE_COSINE, ON_SET, ON_SET_COSINE, STIEFEL)),),
    (Part((Setting(TABLE, 100),), tuple(HOW)),),
    (Part((Setting("mnist", DEEPEST),), (ON_SET, STIEFEL)), Part(_images(DEEPEST), (FREE_COSINE,))),
)
QUICK: tuple[Stage, ...] = (
    (Part((Setting("digits", 30), Setting("digits", 100), Setting("digits", 30, SHOTS)), tuple(HOW)),),
)


def asked(quick: bool) -> list[tuple[Setting, str]]:
    """Every setting, with every way to train in it."""
    stages = QUICK if quick else FULL
    return [pair for stage in stages for part in stage for pair in product(part.settings, part.hows)]


def settings(quick: bool) -> list[Setting]:
    """All settings, by data set and depth."""
    order = ["digits", *IMAGES, TABLE]
    return sorted(
        {setting for setting, _ in asked(quick)}, key=lambda s: (s.shots or 0, order.index(s.dataset), s.depth)
    )


def way_of(cell: Cell) -> Way:
    """The way in which a network is trained."""
    return Way(str(cell.scheme), _HOW[cell.optimizer, cell.schedule, cell.ends != 1])


def cell(way: Way, setting: Setting, times: float, seed: int, *, quick: bool, tuning: bool = False) -> Cell:
    """A network at `times` the paper's rate; those that choose a rate train for a third of the epochs."""
    dataset, depth, shots = setting
    epochs = TABLE_EPOCHS if dataset == TABLE else QUICK_EPOCHS if quick else EPOCHS
    if tuning and not quick:
        epochs //= 3
    batch = 16 if dataset == TABLE else 256
    optimizer, schedule, fast_ends = HOW[way.how]
    return Cell(
        dataset, way.start, depth, TABULAR_WIDTH.get(dataset, 64), seed=seed, optimizer=optimizer, schedule=schedule,
        epochs=epochs if shots is None else STEPS, batch=batch if shots is None else None, shots=shots,
        rate=times * 1e-3 / math.sqrt(depth), alpha=0.0 if dataset in TABULAR_WIDTH else None,
        ends=math.sqrt(depth) if fast_ends else 1.0,
    )  # fmt: skip


@lru_cache
def searches(quick: bool) -> tuple[Search[Way], ...]:
    """The stages of the study, in the order in which they are trained."""
    return tuple(_search(stage, quick) for stage in (QUICK if quick else FULL))


def _search(stage: Stage, quick: bool) -> Search[Way]:
    tuning = tuple(
        cell(Way(start, how), setting, times, seed, quick=quick, tuning=True)
        for part in stage
        for how, setting, start, times in product(part.hows, part.settings, STARTS, QUICK_RATES if quick else RATES)
        for seed in (TUNING if setting.depth < 300 and not quick else TUNING[:1])
    )
    return Search(tuning, way_of, lambda way, setting, times, seed: cell(way, setting, times, seed, quick=quick), FIRST)


def everything(seeds: int, quick: bool, records: Mapping[Cell, Record]) -> list[Cell]:
    """The networks of the study up to the first stage that is not finished."""
    found: list[Cell] = []
    for search in searches(quick):
        stage: Sequence[Cell] = (*search.tuning, *search.compared(seeds, records))
        found += stage
        if any(each not in records for each in stage):
            break
    return found
