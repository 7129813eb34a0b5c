"""From a cell to what it learns from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stiefel_init import StiefelError
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems


def test_few_shots_are_so_many_of_each_class_drawn_by_the_seed() -> None:
    problems = Problems()
    cells = [Cell("digits", scheme, seed=seed, shots=3, batch=None) for seed in (0, 1) for scheme in ("he", "lee")]
    rows: Any = [problems(cell).rows for cell in cells]
    whole = problems(Cell("digits"))
    assert np.bincount(whole.targets[rows[0]]).tolist() == [3] * 10
    assert len(set(rows[0].tolist())) == 30
    assert (rows[0] == rows[1]).all(), "the same for every scheme"
    assert not (rows[0] == rows[2]).all()
    assert problems(cells[0]).features is whole.features, "shared, not copied"
    assert problems(cells[0]).size == 30


def test_a_table_is_split_by_the_seed_and_shifted_by_alpha() -> None:
    problems = Problems()
    first, shifted, other = (problems(cell) for cell in (Cell("wine"), Cell("wine", alpha=2.0), Cell("wine", seed=1)))
    assert np.allclose(shifted.features, first.features + 2, atol=1e-6)
    assert not np.array_equal(first.targets, other.targets)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cell("digits", alpha=2), "digits has pixels"),
        (Cell("diabetes", shots=1), "diabetes is a regression"),
        (Cell("wine", shots=1000), "class 0 of wine has only"),
        (Cell("wines"), "wines"),
    ],
)
def test_tasks_that_cannot_be(cell: Cell, words: str) -> None:
    with pytest.raises(StiefelError, match=words):
        Problems()(cell)
