"""What a cell learns from, and how it is scored: `Problem`, `Metric`; `Problems` makes them from data sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from ...core import stream as _stream
from ...core.errors import StiefelError
from ..data import Dataset, load, split, standardized
from .cell import Cell

LossName = Literal["cross_entropy", "squared_error"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a score is."""

    name: str
    label: str
    less_is_better: bool = False
    highest: float = math.inf  # the largest score there is; the smallest is 0

    @property
    def worst(self) -> float:
        return math.inf if self.less_is_better else 0.0

    def better(self, score: float) -> float:
        """The score as a number for which more is better."""
        return -score if self.less_is_better else score


ACCURACY = Metric("accuracy", "test accuracy (%)", highest=100.0)
RMSE = Metric("rmse", "test root mean squared error", less_is_better=True)
METRICS = {metric.name: metric for metric in (ACCURACY, RMSE)}


@dataclass(frozen=True, eq=False)
class Problem:
    """What one cell learns from. Rows of `features` are divided by `scale` before they enter the network."""

    features: np.ndarray
    targets: np.ndarray
    test_features: np.ndarray
    test_targets: np.ndarray
    outputs: int
    loss: LossName
    scale: float = 1.0
    rows: np.ndarray | None = None  # the training rows to use; None for all
    image: tuple[int, int, int] | None = None  # channels, height and width of a row, where rows are images
    unit: float = 1.0  # what an error of 1 is in the unit of the data, where targets are standardized

    @property
    def size(self) -> int:
        return len(self.features) if self.rows is None else len(self.rows)

    def steps(self, batch: int | None) -> int:
        """Training steps of an epoch in batches of so many rows; None for all at once."""
        return -(-self.size // (batch or self.size))

    @property
    def inputs(self) -> int:
        return self.features.shape[1]

    @property
    def metric(self) -> Metric:
        return ACCURACY if self.loss == "cross_entropy" else RMSE

    @property
    def baseline(self) -> float:
        """The score of one answer to everything: the largest class of the training rows, or the mean of theirs."""
        known = self.targets if self.rows is None else self.targets[self.rows]
        if self.loss == "cross_entropy":
            return 100 * float(np.mean(self.test_targets == np.bincount(known).argmax()))
        return self.unit * float(np.sqrt(np.mean((self.test_targets - known.mean(dtype=float)) ** 2)))


class Problems:
    """The problems of cells, each array made once, so that cells which share one share its memory."""

    def __init__(self, datasets: Mapping[str, Dataset] | None = None, directory: Path | None = None) -> None:
        self._given = dict(datasets or {})
        self._directory = directory
        self._whole = lru_cache(maxsize=None)(self._make)
        self._few = lru_cache(maxsize=None)(self._choose)

    def __call__(self, cell: Cell) -> Problem:
        fixed = self.dataset(cell.dataset).train_rows is not None  # one split for all
        whole = self._whole(cell.dataset, 0 if fixed else cell.seed, cell.alpha or 0.0)
        return whole if cell.shots is None else self._few(whole, cell.dataset, cell.seed, cell.shots)

    def dataset(self, name: str) -> Dataset:
        """The data set of that name: the user's own, or the laboratory's."""
        self.provide(name, lambda: load(name, directory=self._directory))
        return self._given[name]

    def provide(self, name: str, make: Callable[[], Dataset]) -> None:
        """Use under that name what is made, unless there is one."""
        if name not in self._given:
            self._given[name] = make()

    def _make(self, name: str, seed: int, alpha: float) -> Problem:
        dataset, unit = self.dataset(name), 1.0
        parts = split(dataset, seed, alpha=alpha)
        loss: LossName = "cross_entropy" if dataset.task == "classification" else "squared_error"
        if dataset.standardize and loss == "squared_error":
            parts, unit = standardized(parts)
        x, y, x_test, y_test = (np.ascontiguousarray(part) for part in parts)
        return Problem(x, y, x_test, y_test, dataset.outputs, loss, dataset.scale, image=dataset.image, unit=unit)

    def _choose(self, whole: Problem, dataset: str, seed: int, shots: int) -> Problem:
        """The same problem on `shots` random training rows of each class."""
        if whole.loss != "cross_entropy":
            raise StiefelError(f"shots={shots} needs classes; {dataset} is a regression.")
        lots = _stream.words(_stream.key(seed, "shots"), (0, 1), (0, (len(whole.targets) + 1) // 2)).ravel()
        rows = []
        for label in range(whole.outputs):
            of_class = np.flatnonzero(whole.targets == label)
            if len(of_class) < shots:
                raise StiefelError(
                    f"shots={shots}, but class {label} of {dataset} has only {len(of_class)} training rows."
                )
            rows.append(of_class[np.argsort(lots[of_class], kind="stable")[:shots]])
        return replace(whole, rows=np.concatenate(rows))
