"""From a cell to what it learns from: its data set, split, shift and few shots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from .. import _stream
from .._errors import StiefelError
from .cells import Cell
from .data import Dataset, load, split
from .engine import Task


class Tasks:
    """The tasks of cells, each array made once, so that cells which share one share its memory."""

    def __init__(self, datasets: Mapping[str, Dataset] | None = None, directory: Path | None = None) -> None:
        self._given = dict(datasets or {})
        self._directory = directory
        self._whole = lru_cache(maxsize=None)(self._make)
        self._few = lru_cache(maxsize=None)(self._choose)

    def __call__(self, cell: Cell) -> Task:
        """What `cell` learns from."""
        dataset = self.dataset(cell.dataset)
        if dataset.train_rows is not None:  # one split for all
            if cell.alpha is not None:
                raise StiefelError(
                    f"alpha={cell.alpha} shifts tabular features; {cell.dataset} has pixels, leave it out."
                )
            whole = self._whole(cell.dataset, None, 0.0)
        else:
            whole = self._whole(cell.dataset, cell.seed, cell.alpha or 0.0)
        return whole if cell.shots is None else self._few(whole, cell.dataset, cell.seed, cell.shots)

    def dataset(self, name: str) -> Dataset:
        """The data set of that name: one of the user's own, or one of the laboratory's."""
        if name not in self._given:
            self._given[name] = load(name, directory=self._directory)
        return self._given[name]

    def _make(self, name: str, seed: int | None, alpha: float) -> Task:
        dataset = self.dataset(name)
        parts = split(dataset, seed or 0, alpha=alpha)
        loss = "cross_entropy" if dataset.task == "classification" else "squared_error"
        x, y, x_test, y_test = (np.ascontiguousarray(part) for part in parts)
        return Task(x, y, x_test, y_test, dataset.outputs, loss, dataset.scale)

    def _choose(self, whole: Task, dataset: str, seed: int, shots: int) -> Task:
        """The same task on `shots` random training rows of each class."""
        if whole.loss != "cross_entropy":
            raise StiefelError(f"shots={shots} needs classes; {dataset} is a regression.")
        lots = _stream.words(_stream.key(seed, "shots"), (0, 1), (0, (len(whole.targets) + 1) // 2)).ravel()
        rows = []
        for label in range(whole.outputs):
            members = np.flatnonzero(whole.targets == label)
            if len(members) < shots:
                raise StiefelError(
                    f"shots={shots}, but class {label} of {dataset} has only {len(members)} training rows."
                )
            rows.append(members[np.argsort(lots[members], kind="stable")[:shots]])
        return replace(whole, rows=np.concatenate(rows))
