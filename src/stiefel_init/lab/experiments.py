"""The paper's experiments as cells.

Images: pixels/255, 784 → 64 × D → 10, Adam, batches of 256, 100 epochs, lr = 0.001/√D; the paper keeps Lee's at 0.001.
Few shots: all k images per class are one batch, 100 steps, tested on all 10,000. Tabular: see `lab.data.split`.
Lee's product form is what tables 1, 3 and 5 show; table 2 looks like the direct form, so that is what it uses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .._errors import unknown
from .cells import ACTIVATIONS, SCHEMES, Cell

IMAGES = ("mnist", "fashion-mnist")
DEPTHS = tuple(range(10, 101, 10))
SHOTS = (1, 2, 4, 8)
ALPHAS = (-2.0, 0.0, 2.0, 50.0)
TABULAR_WIDTH = {"adult": 8, "cancer": 16, "pima": 4, "ionosphere": 16, "wine": 8, "diabetes": 8}
SEEDS = {"table1": 10, "table2": 5, "table3": 50, "table5": 10, "figure3": 50, "members": 5}
"""Seeds, or repeats, of each experiment as we ran it."""
QUICK_SEEDS = {"table1": 1, "table2": 1, "table3": 3, "table5": 1, "figure3": 2, "members": 1}
QUICK_EPOCHS = 2


def rate(scheme: str, depth: int) -> float:
    """The paper's learning rate: 0.001/√depth, but 0.001 for Lee."""
    return 1e-3 if scheme == "lee" else 1e-3 / math.sqrt(depth)


def _table1(seeds: int, quick: bool) -> Iterator[Cell]:
    for depth in (10, 50, 100) if quick else DEPTHS:
        yield from _images("table1", depth, "relu", seeds)


def _table2(seeds: int, quick: bool) -> Iterator[Cell]:
    for depth in (50,) if quick else (50, 100):
        for activation in ACTIVATIONS:
            for cell in _images("table2", depth, activation, seeds):
                if cell.scheme == "lee":
                    yield replace(cell, variant="direct")
                elif activation == "relu":
                    yield replace(cell, experiment="table1")  # the same networks: trained once, counted in both
                else:
                    yield cell


def _images(experiment: str, depth: int, activation: str, seeds: int) -> Iterator[Cell]:
    for dataset in IMAGES:
        for scheme in SCHEMES:
            for seed in range(seeds):
                yield Cell(
                    dataset, scheme, depth, activation=activation, seed=seed, epochs=100, rate=rate(scheme, depth),
                    experiment=experiment,
                )  # fmt: skip


def _few_shot(experiment: str, shots: tuple[int, ...], depths: tuple[int, ...], seeds: int) -> Iterator[Cell]:
    for depth in depths:
        for k in shots:
            for dataset in IMAGES:
                for scheme in SCHEMES:
                    for seed in range(seeds):
                        yield Cell(
                            dataset, scheme, depth, seed=seed, epochs=100, batch=None, rate=rate(scheme, depth),
                            shots=k, experiment=experiment,
                        )  # fmt: skip


def _table3(seeds: int, quick: bool) -> Iterator[Cell]:
    yield from _few_shot("table3", (1,) if quick else SHOTS, (10, 50) if quick else (10, 50, 100), seeds)


def _figure3(seeds: int, quick: bool) -> Iterator[Cell]:
    for cell in _few_shot("figure3", (4,), (10, 30) if quick else DEPTHS, seeds):
        # Where table 3 has the same networks, they are the same cells.
        shared = not quick and cell.depth in (10, 50, 100)
        yield replace(cell, experiment="table3") if shared else cell


def _table5(seeds: int, quick: bool) -> Iterator[Cell]:
    for dataset, width in TABULAR_WIDTH.items():
        if quick and dataset == "adult":
            continue  # as large as MNIST; the five small sets show the same
        for depth in (50,) if quick else (50, 100):
            for alpha in ALPHAS:
                for scheme in SCHEMES:
                    for seed in range(seeds):
                        yield Cell(
                            dataset, scheme, depth, width, seed=seed, epochs=100, rate=rate(scheme, depth), alpha=alpha,
                            experiment="table5",
                        )  # fmt: skip


MEMBERS = (
    ("stiefel", None), ("stiefel", "permutation"), ("stiefel", "identity"), ("stiefel", "rotation 0.03"),
    ("stiefel", "rotation 0.1"), ("stiefel", "rotation 1"), ("lee", None), ("he", None), ("orthogonal", None),
    ("orthogonal", "1.4142135623730951"),
)  # fmt: skip
"""What the study of members compares; a rotation by its spread, orthogonal with gain 1 and √2."""
MEMBER_DEPTHS = (10, 30, 100, 300, 1000)
MEMBER_RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the paper's 0.001/√depth."""
MEMBER_QUICK_EPOCHS = 20
TUNING_SEED = 1000
"""Of the networks that find each member's best rate; none of those that are compared has it."""
RECOMMENDED = ("stiefel", "permutation")
DEEPEST = {3_000: 10, 10_000: 5}
"""Epochs of the deepest networks."""


def member_epochs(depth: int) -> int:
    """Epochs of the study of members: forty, for a thousand layers fifteen."""
    return 40 if depth < 1000 else 15


FRESH = {100: 100} | {depth: member_epochs(depth) for depth in (300, 1000)}
"""Depths and epochs of the networks that hold the recommended member against the uniform one once more."""


def _member(dataset: str, kind: tuple[str, str | None], depth: int, times: float = 1.0, **options: Any) -> Cell:
    usual: dict[str, Any] = {"epochs": member_epochs(depth), "experiment": "members"}
    return Cell(dataset, kind[0], depth, variant=kind[1], rate=times * 1e-3 / math.sqrt(depth), **usual | options)


def _members(seeds: int, quick: bool) -> Iterator[Cell]:
    """Beyond the paper: which member of the set trains best. A quick one is on digits, without the other protocols."""
    epochs: dict[str, Any] = {"epochs": MEMBER_QUICK_EPOCHS} if quick else {}
    for seed, dataset, kind in itertools.product(range(seeds), ("digits",) if quick else IMAGES, MEMBERS):
        for depth in MEMBER_DEPTHS:
            for times in MEMBER_RATES if quick and depth == 100 else (1.0,):
                yield _member(dataset, kind, depth, times, seed=seed, **epochs)
            if kind[0] == "lee":  # the rate that the paper gives it
                yield _member(dataset, kind, depth, math.sqrt(depth), seed=seed, **epochs)
        for activation in ACTIVATIONS[1:] if quick else ACTIVATIONS:
            yield _member(dataset, kind, 100, seed=seed, activation=activation, **epochs or {"epochs": 15})
    for dataset, kind, k in itertools.product(("digits",) if quick else IMAGES, MEMBERS, SHOTS):
        # Few shots vary much, and are cheap; the uniform member's are those of table 3.
        name = "table3" if kind == MEMBERS[0] and not quick else "members"
        for seed in range(seeds if quick or kind[0] != "stiefel" else SEEDS["table3"]):
            yield _member(dataset, kind, 100, seed=seed, shots=k, batch=None, epochs=100, experiment=name)
    for seed, kind, alpha in itertools.product(range(seeds), MEMBERS, (0.0, 2.0)):
        for dataset in ("wine", "cancer") if quick else TABULAR_WIDTH:
            width = TABULAR_WIDTH[dataset]
            yield _member(dataset, kind, 100, seed=seed, width=width, alpha=alpha, epochs=100)
    if quick:
        return
    for seed, dataset, kind in itertools.product(range(2 * seeds), IMAGES, MEMBERS[:6]):  # the paper's hundred epochs
        name = "table1" if kind == MEMBERS[0] else "members"
        yield _member(dataset, kind, 100, seed=seed, epochs=100, experiment=name)
    # Seeds that had no part in the choice of the recommended member.
    for seed, dataset, kind in itertools.product(range(2 * seeds, 4 * seeds), IMAGES, (MEMBERS[0], RECOMMENDED)):
        for depth, many in FRESH.items():
            yield _member(dataset, kind, depth, seed=seed, epochs=many, experiment="members-fresh")
    for seed, dataset, name in itertools.product(range(seeds), IMAGES, ("rotation 0.1", "permutation")):
        yield _member(dataset, ("stiefel", name), 1000, seed=seed, epochs=40)
    for depth, kind, times in itertools.product(DEEPEST, MEMBERS[1:4], (1.0, 4.0)):
        yield _member("mnist", kind, depth, times, epochs=DEEPEST[depth])


def member_rates() -> list[Cell]:
    """The networks that find each member's best rate at each depth, in a third of the epochs."""
    return [
        _member(
            dataset, kind, depth, times, seed=TUNING_SEED, epochs=member_epochs(depth) // 3, experiment="members-rates"
        )
        for dataset, kind, depth, times in itertools.product(IMAGES, MEMBERS, MEMBER_DEPTHS, MEMBER_RATES)
    ]


def members_at(best: Mapping[tuple[str, str, str | None, int], float], seeds: int | None = None) -> list[Cell]:
    """The networks of the study at the best rates, by data set, scheme, variant and depth."""
    return [
        _member(dataset, (scheme, variant), depth, times, seed=seed)
        for (dataset, scheme, variant, depth), times in best.items()
        for seed in range(seeds or SEEDS["members"])
    ]


EXPERIMENTS: dict[str, Callable[[int, bool], Iterator[Cell]]] = {
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    "table5": _table5,
    "figure3": _figure3,
    "members": _members,
}
NAMES = ("table1", "table2", "table3", "table5", "figure1", "figure2", "figure3", "signal", "members")
PAPER = NAMES[:-1]
"""What `all` stands for; the study of members goes beyond the paper."""


def cells(name: str, seeds: int | None = None, *, quick: bool = False) -> list[Cell]:
    """The cells of an experiment. A quick one is short of seeds, depths and epochs, and says so in its name.

    >>> len(cells("table1")), cells("table1", quick=True)[0].experiment
    (1200, 'table1-quick')
    """
    if name not in EXPERIMENTS:
        raise unknown("name", name, EXPERIMENTS)
    count = seeds or (QUICK_SEEDS if quick else SEEDS)[name]
    found = list(EXPERIMENTS[name](count, quick))
    if not quick:
        return found
    return [
        replace(
            cell,
            experiment=f"{name}-quick",
            epochs=QUICK_EPOCHS if name in ("table1", "table2") else cell.epochs,
        )
        for cell in found
    ]
