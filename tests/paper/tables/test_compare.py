"""Our records beside the published numbers: intervals, verdicts, and that every number is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from laboratory import ROOT, record
from paper.results import Results
from paper.tables.compare import CHANCE, NONE, SEEN, UNSEEN, Comparison
from paper.tables.images import Table1, Table3
from paper.tables.published import Published
from paper.tables.tabular import Table5

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record


def one(value: float, scores: list[float], std: float | None = None) -> Comparison:
    shots = None if std is None else 1
    return Comparison(Published("t", "mnist", "he", 50, "relu", shots, None, value, std), np.array(scores))


def test_the_interval_of_one_more_run_is_wider_than_that_of_the_mean() -> None:
    found = one(90.0, [89.0, 90.0, 91.0])
    # Student's 97.5 % point with 2 degrees of freedom is 4.3027.
    mean = one(90.0, [89.0, 90.0, 91.0], std=1.0)
    assert mean.interval == pytest.approx((90 - 4.3027 / 3**0.5, 90 + 4.3027 / 3**0.5), abs=1e-4)
    assert found.interval == pytest.approx((90 - 4.3027 * (4 / 3) ** 0.5, 90 + 4.3027 * (4 / 3) ** 0.5), abs=1e-4)
    assert one(97.0, [96.0, 97.0, 98.0]).interval[1] == 100  # no accuracy lies beyond


def test_verdicts() -> None:
    assert one(97.2, [96.0, 97.0, 98.0]).verdict(5) == "agrees"
    assert one(90.0, [97.0, 97.1, 97.2]).verdict(5) == "differs by +7.10 (unexplained)"
    assert one(90.0, [97.0, 11.35, 97.2]).verdict(5).endswith("1 of 3 seeds collapse")
    assert one(97.0, [96.0]).verdict(5) == "one seed only (-1.00)"
    assert not one(97.0, [97.0]).agrees
    assert one(11.35, [11.35, 11.35]).verdict(5) == "agrees; every seed collapses"


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([97.2, 97.3, 97.1, 97.2, 97.25], ""),
        ([96.64, 96.86, 96.42, 96.6, 96.7], CHANCE),
        ([92.01, 92.0, 92.02, 92.01, 92.0], NONE),
        ([11.35] * 5, UNSEEN),
        ([11.35] * 4 + [12.5], SEEN),
        ([90.0], ""),
    ],
)
def test_why_a_number_disagrees(scores: list[float], reason: str) -> None:
    assert one(97.21, scores).reason(120) == reason


def test_a_network_that_diverged_is_the_worst_there_is() -> None:
    rows = [record(cell, None) for cell in Table5().cells(2) if cell.dataset in ("wine", "diabetes")]
    found = {comparison.published.dataset: comparison.mean for comparison in Table5().compare(rows)}
    assert found == {"wine": 0.0, "diabetes": np.inf}


def test_means_of_fifty_are_held_to_standard_errors() -> None:
    scores = [40.0, 42.0] * 25  # standard deviation 1.0102
    near = one(41.5, scores, std=1.0)
    assert near.standard_errors == pytest.approx(0.5 / (1.0102**2 / 50 + 1 / 50) ** 0.5, rel=1e-3)
    assert near.agrees
    assert not one(42.0, scores, std=1.0).agrees


# Our own records.


@pytest.fixture(scope="module")
def records() -> Mapping[Cell, Record]:
    return Results(ROOT / "results").records


def test_our_runs_give_the_papers_numbers_for_its_own_initialization(records: Mapping[Cell, Record]) -> None:
    first = [c for c in Table1().compare(Table1().select(records)) if c.published.scheme == "stiefel"]
    assert sum(abs(c.difference) <= 0.6 for c in first) >= 18
    three = [c for c in Table3().compare(Table3().select(records)) if c.published.scheme == "stiefel"]
    assert sum(c.standard_errors <= 3 for c in three) >= 20


def test_seeds_that_another_study_trained_of_some_networks_do_not_enter_a_table(records: Mapping[Cell, Record]) -> None:
    deep = Table1().cell("mnist", "stiefel", 100)
    more = dict(records) | {cell: record(cell, 90.0) for cell in (replace(deep, seed=seed) for seed in range(10, 20))}
    seeds = {one.cell.seed for one in Table1().select(more)}
    assert seeds == set(range(10))
    every = {cell: record(cell, 90.0) for cell in Table5().cells(13)}
    assert len(Table5().select(every)) == len(every)
    del every[next(cell for cell in every if cell.seed == 11)]
    assert {one.cell.seed for one in Table5().select(every)} == set(range(11))
