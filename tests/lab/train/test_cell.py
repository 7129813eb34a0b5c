"""Cells: equal for equal networks, refused where no network is meant; and what they learn from."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stiefel_init import StiefelError
from stiefel_init.lab.train.cell import Cell, digest
from stiefel_init.lab.train.problem import Problems


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 0}, "depth=0"),
        ({"depth": True}, "depth=True"),
        ({"width": (3, 4)}, "names 2 layers, but depth=10"),
        ({"epochs": 0}, "epochs=0"),
        ({"shots": 0}, "shots=0"),
        ({"seed": -1}, "seed=-1"),
        ({"rate": 0}, "rate=0"),
        ({"rate": math.nan}, "rate=nan"),
        ({"alpha": math.inf}, "alpha=inf"),
        ({"scheme": "kaiming"}, "scheme='kaiming' is not known"),
        ({"precision": "fp8"}, "precision='fp8' is not known"),
        ({"decay": -0.01}, r"decay=-0.01 is not a weight decay; give a number ≥ 0, such as 0.01[.]$"),
        ({"dropout": 1.0}, r"dropout=1.0 is not a probability below 1; .* such as 0.1[.]$"),
        ({"ends": 0}, "ends=0.0 is not a factor of the learning rate; give a positive number"),
        ({"schedule": "linear"}, "schedule='linear' is not known; choose one of 'constant', 'cosine'"),
        ({"activation": "mish"}, "activation='mish' is not known; choose one of .*'tanh'.*'gelu', 'silu'"),
        ({"scheme": "lee other"}, "variant='other'"),
        ({"scheme": "random big"}, "has 'big' where a number is expected"),
        ({"scheme": "random -1"}, "std=-1.0"),
        ({"protocol": 1}, "protocol=1 is of another version"),
    ],
)
def test_cells_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(StiefelError, match=words):
        Cell("digits", **options)


def test_equal_cells_have_equal_keys() -> None:
    assert Cell("wine", rate=1, alpha=2).key == Cell("wine", rate=1.0, alpha=2.0).key
    as_json_has_it: Any = [3, 4]
    assert Cell("wine", depth=2, width=as_json_has_it) == Cell("wine", depth=2, width=(3, 4))


def test_rates_are_told_in_units_of_the_papers_which_is_the_default() -> None:
    assert Cell("digits", depth=100) == Cell("digits", depth=100, rate=1e-4)
    assert Cell("wine", depth=300).lr_multiplier == 1
    assert Cell("wine", depth=100, rate=4e-4).lr_multiplier == 4
    assert Cell("wine", depth=1000, rate=0.25e-3 / math.sqrt(1000)).lr_multiplier == 0.25


def test_another_seed_gives_the_cell_that_was_made_with_it() -> None:
    cell = Cell("digits", "lee direct", 3, (5, 6, 7), "elu", seed=2, shots=4, batch=None, dropout=0.1, ends=2)
    for seed in (0, 2, 9):
        other, made = cell.with_seed(seed), replace(cell, seed=seed)
        assert (other, hash(other), other.key) == (made, hash(made), made.key)
    assert cell.setting == replace(cell, seed=8).setting == replace(cell, seed=0) != cell
    for wrong in (-1, 1.5, None):
        with pytest.raises(StiefelError, match="is not a whole number ≥ 0"):
            cell.with_seed(wrong)  # type: ignore[arg-type]


CELLS = [
    Cell("wine"),
    Cell("digits", "rotation 0.03", 3, (8, 16, 8), "prelu", 12, 7, None, 1 / 3, "sgd", 4, None, "tf32"),
    Cell("wine", "orthogonal 1.4142135623730951", 7, alpha=-2),
    Cell("wine", activation="gelu", decay=0.01, dropout=1 / 3, schedule="cosine", ends=7),
    Cell("größe\u2028, of a user|.csv@1a2b", "lee direct", 100, alpha=0),
]


@pytest.mark.parametrize("cell", CELLS, ids=range(len(CELLS)))
def test_an_identity_gives_its_cell_back(cell: Cell) -> None:
    again = Cell.from_dict(json.loads(json.dumps(cell.identity())))
    assert again == cell
    assert (again.key, hash(again)) == (cell.key, hash(cell))


def test_what_was_added_later_leaves_old_identities_as_they_were() -> None:
    """Keys from before decay, dropout and schedules: records with them must be found."""
    assert Cell("digits").key == (
        '{"activation": "relu", "alpha": null, "batch": 256, "dataset": "digits", "depth": 10, "epochs": 20, '
        '"optimizer": "adam", "precision": "float32", "protocol": 2, "rate": 0.00031622776601683794, '
        '"scheme": "stiefel", "seed": 0, "shots": null, "width": 64}'
    )
    assert digest([Cell("digits")]) == "aa2693af3bf77f3e"
    assert Cell("digits", decay=0, dropout=0.0, schedule="constant", ends=1).key == Cell("digits").key
    added: list[dict[str, Any]] = [{"decay": 0.1}, {"dropout": 0.1}, {"schedule": "cosine"}]
    assert len({Cell("digits", **options).key for options in [{}, *added]}) == 4


# What a cell learns from.


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
