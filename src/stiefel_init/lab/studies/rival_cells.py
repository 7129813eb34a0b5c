"""The networks of the study of rivals: every start at every depth, at rates that networks of their own choose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from ...schemes import MuP, Orthogonal, Scheme, get
from ..paper.protocol import IMAGES, TABULAR_WIDTH
from ..train.cell import Cell
from ..train.record import Record
from .tuned import TUNING, Search, Setting


class Rival(NamedTuple):
    """A start that is compared."""

    name: str
    scheme: Scheme
    activation: str = "relu"


OURS = tuple(Rival(name, get(name)) for name in ("stiefel", "permutation", "identity"))
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
NAMES = tuple(rival.name for rival in STARTS)
_NAMES = {rival.scheme: rival.name for rival in STARTS}
DEPTHS, QUICK_DEPTHS = (10, 30, 100, 300, 1000), (10, 30, 100)
RATES, QUICK_RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), (0.25, 1.0, 4.0, 16.0)
"""Times the paper's 0.001/√depth."""
SHOTS = (1, 8)
QUICK_EPOCHS, QUICK_STEPS = 12, 60
"""On all data, and on a few of each class."""


def name_of(cell: Cell) -> str:
    """The name of the start that a network has."""
    return _NAMES[cell.scheme]


def settings(quick: bool) -> list[Setting]:
    """All settings; a quick study has digits alone."""
    if quick:
        return [*(Setting("digits", depth) for depth in QUICK_DEPTHS), Setting("digits", 30, 8)]
    full = [Setting(dataset, depth) for dataset, depth in product((*IMAGES, "digits", *TABULAR_WIDTH), DEPTHS)]
    few = [Setting(*each) for each in product((*IMAGES, "digits"), DEPTHS, SHOTS)]
    return full + few


def cell(rival: Rival, setting: Setting, times: float, seed: int, *, quick: bool, tuning: bool = False) -> Cell:
    """A network at `times` the paper's rate."""
    dataset, depth, shots = setting
    epochs = QUICK_EPOCHS if quick else 15 if depth >= 1000 else 40
    if dataset in TABULAR_WIDTH:
        epochs = 100
    if tuning and not quick:
        epochs = max(epochs // 3, 5)
    return Cell(
        dataset, rival.scheme, depth, TABULAR_WIDTH.get(dataset, 64), rival.activation, seed,
        epochs=epochs if shots is None else QUICK_STEPS if quick else 100, batch=256 if shots is None else None,
        rate=times * 1e-3 / math.sqrt(depth), shots=shots, alpha=0.0 if dataset in TABULAR_WIDTH else None,
    )  # fmt: skip


@lru_cache
def tuning(quick: bool) -> tuple[Cell, ...]:
    """The networks that choose each start's rate in each setting."""
    rates, seeds = (QUICK_RATES, TUNING[:1]) if quick else (RATES, TUNING)
    return tuple(
        cell(rival, setting, times, seed, quick=quick, tuning=True)
        for setting, rival, times, seed in product(settings(quick), STARTS, rates, seeds)
    )


@lru_cache
def search(quick: bool) -> Search[str]:
    """The rates of all starts in all settings."""
    starts = {rival.name: rival for rival in STARTS}
    return Search(
        tuning(quick),
        name_of,
        lambda name, setting, times, seed: cell(starts[name], setting, times, seed, quick=quick),
    )


def everything(seeds: int, quick: bool, records: Mapping[Cell, Record]) -> list[Cell]:
    """All networks of the study, as far as those that choose the rates have been trained."""
    return [*tuning(quick), *search(quick).compared(seeds, records)]
