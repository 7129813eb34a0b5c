"""What table 5 says about its protocol without any training.

On Diabetes, a dead network answers its last bias alone, and Adam moves that by about the learning rate a step. So its
error is √mean((y - rate·steps)²) over the test part: the published errors above DEAD count the steps and name the
split. And the share of correct answers of one run is a whole number of test rows; a mean of several need not be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from stiefel_init.lab.data import CATALOG, load, split
from stiefel_init.lab.data.dataset import TEST_SHARE
from stiefel_init.lab.report.tables import wrapped

from ..tables.protocol import EPOCHS
from ..tables.published import Published
from .hypotheses import BATCHES, SMALL, Protocol, numbers

DEAD = 150.0
"""Errors above this are of networks that still answer about zero; the targets' own deviation is half of it."""
SPLITS = 100
CLOSE = 0.05
"""An error that is predicted within this is explained; published ones are rounded to 0.01."""


class Fit(NamedTuple):
    """How far the published errors are from those of dead networks under one protocol."""

    error: float
    """The median distance."""
    close: int
    """Errors within CLOSE."""
    split: int
    batch: int
    epochs: int


def dead_numbers() -> list[Published]:
    """The published errors of networks that learned nothing but a bias."""
    return [number for number in numbers() if number.dataset == "diabetes" and number.value > DEAD]


def test_rows(dataset: str) -> int:
    """Rows of a set's test part."""
    return math.ceil(TEST_SHARE * CATALOG[dataset].rows)


@cache
def _targets(seed: int) -> tuple[np.ndarray, int]:
    parts = split(load("diabetes"), seed)
    return parts.y_test.astype(float), len(parts.y_train)


def predicted(number: Published, protocol: Protocol) -> float:
    """The error of a dead network under a protocol with one split."""
    y, rows = _targets(protocol.split or 0)
    steps = math.ceil(rows / protocol.batch) * protocol.epochs
    bias = protocol.rate(str(number.scheme), number.depth) * steps
    return float(np.sqrt(np.mean((y - bias) ** 2)))


@cache
def fits(splits: int = SPLITS, values: Sequence[Published] | None = None) -> tuple[Fit, ...]:
    """Every split, batch size and number of epochs, the closest first."""
    dead = dead_numbers() if values is None else values
    found = []
    for seed, batch, epochs in product(range(splits), BATCHES, (EPOCHS // 2, EPOCHS, 2 * EPOCHS)):
        protocol = Protocol(batch=batch, split=seed, epochs=epochs)
        errors = [abs(predicted(number, protocol) - number.value) for number in dead]
        found.append(Fit(float(np.median(errors)), sum(error < CLOSE for error in errors), seed, batch, epochs))
    return tuple(sorted(found))


def whole_rows() -> tuple[int, int]:
    """How many published accuracies of the small sets are whole numbers of test rows, and of how many."""
    accuracies = [number for number in numbers() if number.dataset in SMALL and number.dataset != "diabetes"]
    whole = 0
    for number in accuracies:
        rows = test_rows(number.dataset)
        whole += abs(100 * round(number.value * rows / 100) / rows - number.value) < 0.006
    return whole, len(accuracies)


def sentences() -> list[str]:
    """The findings, as lines of Markdown."""
    best, dead = fits()[0], dead_numbers()
    ties = [fit for fit in fits() if fit.error <= best.error + 0.01]
    stated = min(fit for fit in fits() if (fit.batch, fit.epochs) == (256, EPOCHS))
    others = min(fit for fit in fits() if (fit.batch, fit.epochs) != (best.batch, best.epochs) and fit not in ties)
    whole, accuracies = whole_rows()
    same = "; ".join(f"batches of {fit.batch}, {fit.epochs} epochs, split {fit.split}" for fit in ties)
    dead_text = (
        f"- **Dead networks on Diabetes.** {len(dead)} published errors are above {DEAD:g}: networks that answer their "
        "last bias alone, which Adam moves by about the rate a step. Their errors therefore count the steps and name "
        f"the split. Of {SPLITS} splits (seeds of scikit-learn's `train_test_split`), {len(BATCHES)} batch sizes and "
        f"three numbers of epochs, the closest: {same}. The median distance is {best.error:.3f}, and {best.close} of "
        f"{len(dead)} lie within {CLOSE:g}. The next: batches of {others.batch}, {others.epochs} epochs, split "
        f"{others.split}, at {others.error:.3f}. With the stated batches of 256 and 100 epochs, the best split is "
        f"{stated.error:.3f} away, with {stated.close} of {len(dead)} within {CLOSE:g}."
    )
    rows_text = (
        f"- **Whole rows.** {whole} of the {accuracies} accuracies on the four small sets are whole numbers of test "
        "rows. So each is one run; means of several would fall between."
    )
    return [*wrapped(dead_text, "  "), *wrapped(rows_text, "  ")]


def pointed_to() -> Protocol:
    """The protocol that the dead networks name: the closest split and batch size at the stated hundred epochs."""
    best = min(fit for fit in fits() if fit.epochs == EPOCHS)
    return Protocol(batch=best.batch, split=best.split)
