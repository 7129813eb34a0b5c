"""What was trained, read as each protocol would report it: at its last or its best epoch, after so many epochs.

Published records keep only the last score of a network; the table READINGS keeps the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..tables.published import Published
from .hypotheses import EXPLAINING, STATED, Protocol, numbers, trainings

READINGS = "table5-protocol-readings"
_KEY = ("dataset", "scheme", "depth", "alpha", "batch", "rate", "epochs", "seed")
Reading = dict[tuple[int, bool], float]
"""(epochs, whether the best of them) → score."""


def reading(record: Record) -> Reading:
    """A record at half its epochs and at all, the last and the best tested so far."""
    epochs = record.cell.epochs
    found: Reading = {(epochs, False): record.score}
    curve = dict(zip(record.tested, record.test_score))
    pick = min if record.metric.less_is_better else max
    for upto in (epochs // 2, epochs):
        known = [score for epoch, score in curve.items() if epoch <= upto and np.isfinite(score)]
        if upto in curve and known:
            found.setdefault((upto, False), curve[upto])
            found[upto, True] = pick(known)
    return found


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The table READINGS: what of these records their last score does not say."""
    table = []
    for record in records:
        found, epochs = reading(record), record.cell.epochs
        if (epochs, True) in found:
            identity = record.cell.identity()
            values = found[epochs // 2, False], found[epochs // 2, True], found[epochs, True]
            names = ("half", "half_best", "best")
            key = {name: identity[name] for name in _KEY}
            table.append(key | {name: round(value, 4) for name, value in zip(names, values)})
    return table


def merged(before: Sequence[Mapping[str, Any]], fresh: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Two such tables as one, in which each network is once: as in the second, if that has it."""
    return list({_key(row): row for row in (*before, *fresh)}.values())


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str("" if row[name] is None else row[name]) for name in _KEY)


class Readings:
    """Scores of our seeds, for each protocol and published number."""

    def __init__(self, records: Mapping[Cell, Record], kept: Sequence[Mapping[str, Any]] = ()) -> None:
        table = {_key(row): row for row in kept}
        self._found: dict[Cell, dict[int, Reading]] = {}
        self._scores: dict[tuple[Protocol, Published], np.ndarray] = {}
        self.laws: dict[Any, Any] = {}
        """What rankings of these readings have computed, for the next one."""
        wanted = {protocol.cell(number) for protocol in trainings() for number in numbers()}
        for record in records.values():
            cell = record.cell
            if cell.setting not in wanted:
                continue
            found = reading(record)
            if (row := table.get(_key(cell.identity()))) is not None:
                half = cell.epochs // 2
                found |= {(half, False): row["half"], (half, True): row["half_best"], (cell.epochs, True): row["best"]}
            self._found.setdefault(cell.setting, {})[cell.seed] = found

    def scores(self, protocol: Protocol, number: Published, seeds: int | None = None) -> np.ndarray:
        """The scores of our seeds, the first `seeds` of them."""
        place = protocol, number
        if place not in self._scores:
            found, key = self._found.get(protocol.cell(number), {}), (protocol.epochs, protocol.best)
            self._scores[place] = np.array([found[seed][key] for seed in sorted(found) if key in found[seed]], float)
        return self._scores[place][:seeds]

    def covered(self, protocol: Protocol, least: int = 2) -> frozenset[Published]:
        """The numbers that it concerns and for which there are so many seeds."""
        concerned = (number for number in numbers() if protocol.concerns(number.dataset))
        return frozenset(number for number in concerned if len(self.scores(protocol, number)) >= least)

    def protocols(self) -> list[Protocol]:
        """The hypotheses for which there is anything: each training in all its readings."""
        read: list[Protocol] = []
        for protocol in dict.fromkeys([STATED, EXPLAINING, *trainings()]):
            longer = protocol.epochs != STATED.epochs  # at half its epochs it is another training
            read += [r for r in protocol.readings() if not longer or r.epochs == protocol.epochs]
        return [protocol for protocol in read if self.covered(protocol)]
