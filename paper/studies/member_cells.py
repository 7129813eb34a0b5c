"""The networks of the study of members, by the question they answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import Lee, Orthogonal, Permutation, Scheme, Stiefel, get
from stiefel_init.theory import ACTIVATIONS

from ..tables.protocol import IMAGES, SHOTS, TABULAR_WIDTH

_NAMES = "stiefel", "permutation", "identity", "rotation 0.03", "rotation 0.1", "rotation 1", "lee", "he"
MEMBERS: tuple[Scheme, ...] = (*map(get, _NAMES), Orthogonal(), Orthogonal(math.sqrt(2)))
"""What is compared; the first six are members of the set."""
OF_THE_SET = MEMBERS[:6]
UNIFORM, RECOMMENDED = Stiefel(), Permutation()
DEPTHS = (10, 30, 100, 300, 1000)
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the paper's 0.001/√depth."""
QUICK_EPOCHS = 20
FEW_SHOT_SEEDS = 50
"""Few shots vary much, and are cheap; the uniform member's are those of table 3."""
TUNING_SEED = 1000
"""Seed of the networks that find each member's best rate; no compared network uses it."""
DEEPEST = {3_000: 10, 10_000: 5}
"""Epochs of the deepest networks."""


def kind(cell: Cell) -> str:
    """What was compared, by name."""
    if cell.scheme == UNIFORM:
        return "uniform"
    return "orthogonal, gain √2" if cell.scheme == MEMBERS[-1] else str(cell.scheme)


KINDS = tuple(kind(Cell("", scheme)) for scheme in MEMBERS)


def epochs_of(depth: int) -> int:
    """Epochs of the comparison: forty, for a thousand layers fifteen."""
    return 40 if depth < 1000 else 15


FRESH = {100: 100} | {depth: epochs_of(depth) for depth in (300, 1000)}
"""Depths and epochs of the final comparison of the recommended member with the uniform one."""


def cell(dataset: str, scheme: Scheme, depth: int, times: float = 1.0, *, seed: int = 0, **options: Any) -> Cell:
    """A network at `times` the paper's rate."""
    return _setting(dataset, scheme, depth, times, **options).with_seed(seed)


@cache
def _setting(dataset: str, scheme: Scheme, depth: int, times: float, **options: Any) -> Cell:
    usual = {"epochs": epochs_of(depth), "rate": times * 1e-3 / math.sqrt(depth)}
    return Cell(dataset, scheme, depth, **usual | options)


def _sets(quick: bool) -> tuple[str, ...]:
    return ("digits",) if quick else IMAGES


def _epochs(quick: bool) -> dict[str, Any]:
    return {"epochs": QUICK_EPOCHS} if quick else {}


def usual(seeds: int, quick: bool) -> list[Cell]:
    """Every member at every depth, at 0.001/√depth."""
    sets = product(range(seeds), _sets(quick), MEMBERS, DEPTHS)
    return [cell(dataset, scheme, depth, seed=seed, **_epochs(quick)) for seed, dataset, scheme, depth in sets]


def fixed(seeds: int, quick: bool) -> list[Cell]:
    """Lee's at the paper's rate for it, 0.001 at every depth."""
    return [
        cell(dataset, Lee(), depth, math.sqrt(depth), seed=seed, **_epochs(quick))
        for seed, dataset, depth in product(range(seeds), _sets(quick), DEPTHS)
    ]


def rates(seeds: int, quick: bool) -> list[Cell]:
    """Networks that find each member's best rate: with a seed of their own, in a third of the epochs.

    A quick study only shows what rates do, at a hundred layers, with the seeds of the comparison.
    """
    if quick:
        sets = product(range(seeds), MEMBERS, RATES)
        return [cell("digits", scheme, 100, times, seed=seed, epochs=QUICK_EPOCHS) for seed, scheme, times in sets]
    return [
        cell(dataset, scheme, depth, times, seed=TUNING_SEED, epochs=epochs_of(depth) // 3)
        for dataset, scheme, depth, times in product(IMAGES, MEMBERS, DEPTHS, RATES)
    ]


def best(seeds: int, records: Mapping[Cell, Record]) -> list[Cell]:
    """Each member at the rate whose tuning network scored best, as far as they have records."""
    top: dict[tuple[str, Scheme, int], tuple[float, float]] = {}
    for tuning in rates(0, False):
        if (record := records.get(tuning)) is not None:
            key = tuning.dataset, tuning.scheme, tuning.depth
            top[key] = max(top.get(key, (-math.inf, 1.0)), (record.score, tuning.lr_multiplier))
    return [cell(*key, times, seed=seed) for key, (_, times) in top.items() for seed in range(seeds)]


def few(seeds: int, quick: bool) -> list[Cell]:
    """A few images of each class, a hundred layers."""
    cells = []
    for dataset, scheme, shots in product(_sets(quick), MEMBERS, SHOTS):
        count = seeds if quick or scheme not in OF_THE_SET else FEW_SHOT_SEEDS
        cells += [cell(dataset, scheme, 100, seed=s, shots=shots, batch=None, epochs=100) for s in range(count)]
    return cells


def activations(seeds: int, quick: bool) -> list[Cell]:
    """Other activations, a hundred layers."""
    return [
        cell(dataset, scheme, 100, seed=seed, activation=activation, epochs=QUICK_EPOCHS if quick else 15)
        for seed, dataset, scheme, activation in product(range(seeds), _sets(quick), MEMBERS, ACTIVATIONS)
    ]


def tabular(seeds: int, quick: bool) -> list[Cell]:
    """Tabular data, a hundred narrow layers."""
    sets = ("wine", "cancer") if quick else tuple(TABULAR_WIDTH)
    return [
        cell(dataset, scheme, 100, seed=seed, width=TABULAR_WIDTH[dataset], alpha=alpha, epochs=100)
        for seed, scheme, dataset, alpha in product(range(seeds), MEMBERS, sets, (0.0, 2.0))
    ]


def long(seeds: int) -> list[Cell]:
    """The paper's hundred epochs, twice as many seeds."""
    sets = product(range(2 * seeds), IMAGES, OF_THE_SET)
    return [cell(dataset, scheme, 100, seed=seed, epochs=100) for seed, dataset, scheme in sets]


def fresh(seeds: int) -> list[Cell]:
    """Seeds that were not used to choose the recommended member."""
    return [
        cell(dataset, scheme, depth, seed=seed, epochs=epochs)
        for seed, dataset, scheme in product(range(2 * seeds, 4 * seeds), IMAGES, (UNIFORM, RECOMMENDED))
        for depth, epochs in FRESH.items()
    ]


def thousand(seeds: int) -> list[Cell]:
    """A thousand layers for forty epochs."""
    sets = product(range(seeds), IMAGES, (get("rotation 0.1"), RECOMMENDED))
    return [cell(dataset, scheme, 1000, seed=seed, epochs=40) for seed, dataset, scheme in sets]


def deepest() -> list[Cell]:
    """Deeper than the comparison goes, on MNIST, one network each."""
    sets = product(DEEPEST, MEMBERS[1:4], (1.0, 4.0))
    return [cell("mnist", scheme, depth, times, epochs=DEEPEST[depth]) for depth, scheme, times in sets]


def everything(seeds: int, quick: bool, records: Mapping[Cell, Record]) -> list[Cell]:
    """All of the study; a quick one is on digits, without the long and the deep networks."""
    cells = [part for make in (usual, fixed, rates, few, activations, tabular) for part in make(seeds, quick)]
    if not quick:
        cells += [*long(seeds), *fresh(seeds), *thousand(seeds), *deepest(), *best(seeds, records)]
    return list(dict.fromkeys(cells))
