"""Numbers of tables 1 and 2 that disagree: each gets the reason that was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from laboratory import record
from paper.protocols import misses
from paper.tables.images import Table1

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

TABLE = Table1()
WHICH = ("mnist", "he", 30)


def agreeing(scores: list[float], which: tuple[str, str, int] = WHICH) -> dict[Cell, Record]:
    """Records that agree with every number of table 1, but for one cell's."""
    found = {}
    for number in TABLE.published():
        chosen = (number.dataset, number.scheme, number.depth) == which
        values = scores if chosen else list(number.value + np.array([-0.2, -0.1, 0.0, 0.1, 0.2]))
        for seed, score in enumerate(values):
            cell = replace(TABLE.cell(number.dataset, str(number.scheme), number.depth), seed=seed)
            found[cell] = record(cell, score)
    return found


def reason(records: dict[Cell, Record]) -> str:
    (miss,) = misses.misses(TABLE, TABLE.select(records), misses.by_setting(records))
    assert (miss.comparison.published.dataset, miss.comparison.published.depth) == ("mnist", WHICH[2])
    return miss.reason


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([96.64, 96.86, 96.42, 96.6, 96.7], misses.CHANCE),  # published: 97.21
        ([92.01, 92.0, 92.02, 92.01, 92.0], misses.OPEN),
        ([98.51, 98.5, 98.52, 98.51, 98.5], misses.NONE),  # no best epoch is worse than the last
        ([11.35] * 5, misses.UNSEEN),
        ([11.35] * 4 + [12.5], misses.SEEN),
    ],
)
def test_reasons(scores: list[float], expected: str) -> None:
    assert reason(agreeing(scores)) == expected


def test_another_rate() -> None:
    records = agreeing([92.01, 92.0, 92.02, 92.01, 92.0])
    cell = TABLE.cell(*WHICH)
    for seed, score in enumerate((97.1, 97.2, 97.3)):
        other = replace(cell, rate=2e-3, seed=seed)
        records[other] = record(other, score)
    assert reason(records) == misses.RATE


def test_the_best_epoch() -> None:
    records = agreeing([92.01, 92.0, 92.02, 92.01, 92.0])
    for cell, one in records.items():
        if cell.setting == TABLE.cell(*WHICH):
            records[cell] = replace(one, best=97.2 + 0.1 * cell.seed)
    assert reason(records) == misses.EPOCH


def test_without_records_nothing_is_known() -> None:
    assert "nothing is known" in misses.section([], {})[0]
