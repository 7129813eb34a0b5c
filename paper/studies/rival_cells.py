"""The networks of the study of rivals: which starts, in which settings, and in which order they are trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import MuP, Orthogonal, Scheme, get

from ..tables.protocol import IMAGES, TABULAR_WIDTH
from .tuned import TUNING, Search, Setting


class Rival(NamedTuple):
    """A start that is compared, and how it is trained."""

    name: str
    scheme: Scheme
    activation: str = "relu"
    fast: bool = False
    """Whether the first and the last layer learn √depth times as fast as the others, by a cosine schedule."""


FAST = ", fast ends"
"""What the name of a start ends with if its ends learn fast."""
OURS = tuple(Rival(name, get(name)) for name in ("recipe", "stiefel", "permutation", "identity"))
"""`recipe` is what `initialize_(model)` does."""
RIVALS = (
    Rival("looks-linear", get("looks-linear")),
    Rival("tat", get("tat"), "tat"),
    Rival("orthogonal √2", Orthogonal(math.sqrt(2))),
    Rival("lsuv", get("lsuv")),
    Rival("zero", get("zero")),
    Rival("idinit", get("idinit")),
    Rival("sinusoidal", get("sinusoidal")),
    Rival("tanh-init", get("tanh-init"), "tanh"),
    *(Rival(name, get(name)) for name in ("he", "xavier", "torch", "truncated-normal", "gpt-2")),
    Rival("mup √2", MuP(math.sqrt(2))),
)
STARTS = (*OURS, *RIVALS)
FAST_STARTS = tuple(rival._replace(name=rival.name + FAST, fast=True) for rival in STARTS)
EVERY = (*STARTS, *FAST_STARTS)
"""All starts with one rate for all layers, then all of them with fast ends."""
NAMES = tuple(rival.name for rival in EVERY)
MINE = {rival.name for rival in EVERY if rival.scheme in {ours.scheme for ours in OURS}}
"""The names of ours."""
_NAMES = {(rival.scheme, rival.fast): rival.name for rival in EVERY}
DEPTHS, QUICK_DEPTHS = (10, 30, 100, 300, 1000), (10, 30, 100)
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
HOPELESS = 0.5
"""A start that reaches less than this share of the best of its setting at every rate gets few seeds."""
DEEP = 300
"""From this depth on one network chooses at each rate, not two: that is where networks are dear."""


class Part(NamedTuple):
    """Settings, and the starts that are compared in them."""

    settings: tuple[Setting, ...]
    starts: tuple[Rival, ...] = STARTS


Stage = tuple[Part, ...]
"""Parts that are trained together: all rates are chosen before networks are compared."""


def _images(*depths: int, shots: int | None = None) -> tuple[Setting, ...]:
    return tuple(Setting(dataset, depth, shots) for depth, dataset in product(depths, IMAGES))


def _of(dataset: str, depths: Sequence[int] = DEPTHS, shots: int | None = None) -> Part:
    return Part(tuple(Setting(dataset, depth, shots) for depth in depths))


FULL: tuple[Stage, ...] = (  # the most telling first, as a run may end early
    (Part(_images(100), EVERY),),
    (Part(_images(1000)), Part((Setting("mnist", 1000),), FAST_STARTS)),
    (Part(_images(10, 30)),),
    (Part(_images(300)), Part((Setting("mnist", 300),), FAST_STARTS)),
    *((Part(_images(*DEPTHS, shots=shots)),) for shots in SHOTS),
    (_of("digits"), *(_of("digits", shots=shots) for shots in SHOTS)),
    *((_of(table, depths),) for depths, table in product((DEPTHS[::2], DEPTHS[1::2]), TABLES)),
)
QUICK: tuple[Stage, ...] = (
    (Part((Setting("digits", 30), Setting("digits", 100)), EVERY),),
    (Part((Setting("digits", 10), Setting("digits", 30, 8))),),
)


def settings(quick: bool) -> list[Setting]:
    """All settings, by data set, shots and depth."""
    order = [*IMAGES, "digits", *TABLES]
    known = {setting for stage in (QUICK if quick else FULL) for part in stage for setting in part.settings}
    return sorted(known, key=lambda s: (s.shots or 0, order.index(s.dataset), s.depth))


def name_of(cell: Cell) -> str:
    """The name of the start that a network has."""
    return _NAMES[cell.scheme, cell.ends != 1]


def cell(rival: Rival, setting: Setting, times: float, seed: int, *, quick: bool, tuning: bool = False) -> Cell:
    """A network at `times` the paper's rate; those that choose a rate train for a third of the epochs."""
    return _cell(rival, setting, times, quick, tuning).with_seed(seed)


@cache
def _cell(rival: Rival, setting: Setting, times: float, quick: bool, tuning: bool) -> Cell:
    dataset, depth, shots = setting
    if shots is not None:
        epochs = QUICK_STEPS if quick else STEPS
    else:
        epochs = QUICK_EPOCHS if quick else EPOCHS.get(dataset, TABLE_EPOCHS)
        epochs = epochs // 3 if tuning and not quick else epochs
    return Cell(
        dataset, rival.scheme, depth, TABULAR_WIDTH.get(dataset, 64), rival.activation,
        epochs=epochs, batch=256 if shots is None else None, rate=times * 1e-3 / math.sqrt(depth), shots=shots,
        alpha=0.0 if dataset in TABULAR_WIDTH else None, schedule="cosine" if rival.fast else "constant",
        ends=math.sqrt(depth) if rival.fast else 1.0,
    )  # fmt: skip


@cache
def searches(quick: bool) -> tuple[Search[str], ...]:
    """The stages of the study, in the order in which they are trained."""
    return tuple(_search(stage, quick) for stage in (QUICK if quick else FULL))


def _rates(rival: Rival, setting: Setting, quick: bool) -> tuple[float, ...]:
    """Those that are tried; every second one where deep networks are trained in a second way."""
    return QUICK_RATES if quick or (rival.fast and setting.depth >= DEEP) else RATES


def _search(stage: Stage, quick: bool) -> Search[str]:
    starts = {rival.name: rival for part in stage for rival in part.starts}
    tuning = tuple(
        cell(rival, setting, times, seed, quick=quick, tuning=True)
        for part in stage
        for setting, rival in product(part.settings, part.starts)
        for times in _rates(rival, setting, quick)
        for seed in (TUNING if setting.depth < DEEP and not quick else TUNING[:1])
    )
    return Search(
        tuning,
        name_of,
        lambda name, setting, times, seed: cell(starts[name], setting, times, seed, quick=quick),
        hopeless=0.0 if quick else HOPELESS,
    )


def of_stage(search: Search[str], seeds: int, records: Mapping[Cell, Record]) -> list[Cell]:
    """The networks that choose the rates of a stage, and those that are compared, as far as rates are chosen."""
    return [*search.tuning, *search.compared(seeds, records)]


def everything(seeds: int, quick: bool, records: Mapping[Cell, Record]) -> list[Cell]:
    """The networks of the study up to the first stage that is not finished.

    A stage on data that nobody has, of which no network was trained, does not keep the next one waiting.
    """
    found: list[Cell] = []
    for search in searches(quick):
        stage = of_stage(search, seeds, records)
        found += stage
        if any(each not in records and each.dataset not in DOWNLOADED for each in stage):
            break
    return found
