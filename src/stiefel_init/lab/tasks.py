"""From a cell to what it learns from: its data set, split, shift and few shots."""

from __future__ import annotations

from collections.abc import Mapping
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
        return whole if cell.shots is None else self._few(whole, cell)

    def dataset(self, name: str) -> Dataset:
        """The data set of that name: one of the user's own, or one of the laboratory's."""
        if name not in self._given:
            self._given[name] = load(name, directory=self._directory)
        return self._given[name]

    def _make(self, name: str, seed: int | None, alpha: float) -> Task:
        dataset = self.dataset(name)
        parts = split(dataset, seed or 0, alpha=alpha)
        loss = "cross_entropy" if dataset.task == "classification" else "squared_error"
        return Task(*map(np.ascontiguousarray, parts), dataset.outputs, loss, dataset.scale)

    def _few(self, whole: Task, cell: Cell) -> Task:
        assert cell.shots is not None
        if whole.loss != "cross_entropy":
            raise StiefelError(f"shots={cell.shots} needs classes; {cell.dataset} is a regression.")
        key = _stream.key(cell.seed, "shots")
        lots = _stream.words(key, (0, 1), (0, (len(whole.targets) + 1) // 2)).ravel()[: len(whole.targets)]
        rows = []
        for label in range(whole.outputs):
            members = np.flatnonzero(whole.targets == label)
            if len(members) < cell.shots:
                raise StiefelError(
                    f"shots={cell.shots}, but class {label} of {cell.dataset} has {len(members)} training rows; ask fewer."
                )
            rows.append(members[np.argsort(lots[members], kind="stable")[: cell.shots]])
        return Task(
            whole.features, whole.targets, whole.test_features, whole.test_targets,
            whole.outputs, whole.loss, whole.scale, np.concatenate(rows),
        )  # fmt: skip
