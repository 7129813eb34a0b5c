"""The study of training on the set, on records with planted outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from laboratory import record
from scipy import stats

from stiefel_init.lab.studies import on_the_set as study
from stiefel_init.lab.studies.on_the_set import EVERY, FREE, QUICK, Found, OnTheSet, Way, way_of
from stiefel_init.lab.studies.rival_cells import FIRST
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record


def planted(score: Callable[[Cell], float]) -> Found:
    """The quick study, of networks with these scores and a little noise."""
    noise = np.random.default_rng(0)
    records: dict[Cell, Record] = {}
    for _ in range(2):  # those that choose the rates, then those that are compared
        for cell in OnTheSet().cells(4, quick=True, records=records):
            if cell not in records:
                records[cell] = record(cell, score(cell) + noise.normal(0, 0.3))
    found = study.found_in(records, 4)
    assert found is not None
    return found


def test_every_way_is_compared_at_its_best_rate_with_fresh_seeds() -> None:
    found = planted(lambda cell: 90 - abs(np.log2(cell.times / 16)) if way_of(cell).how != FREE else 80 - cell.times)
    assert {key[1] for key in found.scores} == set(EVERY)
    assert all(len(values) == 4 for values in found.scores.values())
    records = {cell: record(cell, 50.0) for cell in study.tuning(True)}
    chosen = study.compared(range(FIRST, FIRST + 2), records, True)
    assert {cell.times for cell in chosen} == {1.0}  # the smallest of equal ones
    assert not {cell.seed for cell in chosen} & {cell.seed for cell in records}


def test_what_the_constraint_buys_is_told_from_what_it_costs() -> None:
    def score(cell: Cell) -> float:
        return {FREE: 80.0, "on the set": 85.0}.get(way_of(cell).how, 75.0)

    words = {(way.how): (gain > 0, p < 0.05) for _, way, gain, p in study.against_free(planted(score))}
    assert words == {"on the set": (True, True), "on the set, Muon": (False, True)}
    same = [p for *_, p in study.against_free(planted(lambda cell: 80.0))]
    assert len(same) == 8
    assert min(same) > 0.05


def test_p_values_are_two_sided_and_corrected_for_how_many_there_are() -> None:
    a, b = np.array([80.0, 81.0, 82.0, 83.0]), np.array([82.0, 83.0, 84.5, 85.0])
    alone = study._p(a, b, 1)
    assert alone == pytest.approx(float(stats.ttest_ind(a, b, equal_var=False).pvalue))
    assert study._p(b, a, 8) == pytest.approx(8 * alone)
    assert study._p(a, b, 1000) == 1


def test_working_rates_are_those_near_the_best_of_the_setting() -> None:
    found = planted(lambda cell: 90.0 if way_of(cell).how != FREE or cell.times == 1 else 11.0)
    key = QUICK[0], Way("stiefel", FREE)
    assert found.working(key) == 1
    assert found.working((QUICK[0], Way("stiefel", "on the set"))) == 256
    never = planted(lambda cell: 90.0 if way_of(cell).how != FREE else 11.0)
    assert never.working(key) is None


def test_tables_and_page_of_planted_records() -> None:
    found = planted(lambda cell: 80.0)
    scores, rates, verdicts = OnTheSet().tables(found)
    assert [row[0] for row in scores.rows] == list(map(str, EVERY))
    assert all("× 256" in row for row in rates.rows)
    assert len(verdicts.rows) == 4
    assert "![Accuracy over the learning rate](on-the-set.png)" in OnTheSet().section(found)


def test_full_cells_are_those_of_the_study() -> None:
    full = study.tuning(False)
    assert {cell.depth for cell in full} == {50, 100, 300, 1000}
    assert {cell.times for cell in full} == set(study.RATES)
    assert {replace(cell, seed=0).optimizer for cell in full} == set(study.WAYS.values())


@pytest.mark.parametrize("records", [{}, {Cell("digits"): record(Cell("digits"), 1.0)}])
def test_without_records_nothing_is_said(records: dict[Cell, Record]) -> None:
    assert study.found_in(records, 10) is None
