"""The study of training on the set: its networks, and that tables and page say what planted records have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import planting
from laboratory import record
from paper.studies import on_the_set
from paper.studies.baselines import Baselines
from paper.studies.kit import Setting, Tuned
from paper.studies.on_the_set import (
    ENDS,
    EVERY,
    FREE,
    FREE_COSINE,
    FREE_ENDS,
    HOW,
    ON_SET,
    ON_SET_COSINE,
    STIEFEL,
    OnTheSet,
    Way,
    duels,
)
from paper.tables.protocol import IMAGES

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

Truth = Callable[[Cell], float]
DIGITS = Setting("digits", 30)


def records_of(score: Truth, quick: bool = True, seeds: int = 4, **options: Any) -> dict[Cell, Record]:
    """Of networks with these scores and a little noise."""
    noise = np.random.default_rng(0)

    def made(cell: Cell) -> Record:
        more = {name: value(cell) + noise.normal(0, 0.01) for name, value in options.items()}
        return record(cell, score(cell) + noise.normal(0, 0.3), **more)

    return planting.planted(lambda found: OnTheSet().cells(seeds, quick=quick, records=found), made)


def planted(score: Truth, **options: Any) -> Tuned[Way]:
    found = OnTheSet().found_in(records_of(score, **options), 4, quick=True)
    assert found is not None
    return found


whose = planting.contender_of(OnTheSet())


def how(cell: Cell) -> str:
    return whose(cell).how


def test_every_way_is_compared_at_its_best_rate_with_fresh_seeds() -> None:
    def truth(cell: Cell) -> float:
        return 90 - abs(np.log2(cell.lr_multiplier / 16)) if how(cell) != FREE else 80 - cell.lr_multiplier

    records = records_of(truth)
    compared = [cell for cell in records if cell.seed >= OnTheSet.first_seed]
    assert {cell.seed for cell in records} - {cell.seed for cell in compared} <= set(OnTheSet.tuning_seeds)
    assert {whose(cell) for cell in compared} == set(EVERY)
    assert all((cell.lr_multiplier == 1) == (how(cell) == FREE) for cell in compared)
    assert len(compared) == 4 * len(EVERY) * len(OnTheSet().all_settings(True))


def test_the_full_study_is_that_of_the_page() -> None:
    full = [cell for search in OnTheSet().searches(False) for cell in search.tuning]
    assert {cell.depth for cell in full} == set(on_the_set.DEPTHS)
    assert {cell.lr_multiplier for cell in full} == set(on_the_set.RATES)
    assert {(cell.optimizer, cell.schedule, cell.ends != 1) for cell in full} == {how[:3] for how in HOW.values()}
    assert {cell.dataset for cell in full} == {"mnist", "fashion-mnist", on_the_set.TABLE}
    assert {cell.shots for cell in full} == {None, 8}
    for depth, settings in ((100, IMAGES), (300, IMAGES), (1000, ("mnist",))):
        for dataset in settings:
            here = {how(cell) for cell in full if (cell.dataset, cell.depth, cell.shots) == (dataset, depth, None)}
            assert {FREE, ON_SET, STIEFEL} <= here


def test_stages_are_trained_in_order_and_the_deepest_on_the_set_first() -> None:
    """So a run that is stopped has the most telling networks; a later stage waits for an earlier one."""
    first = OnTheSet().cells(2)
    assert {(cell.depth, how(cell)) for cell in first} == {
        (1000, each) for each in (ON_SET_COSINE, FREE, ENDS, FREE_ENDS)
    }
    records = {cell: record(cell, 50.0) for cell in first}
    second = OnTheSet().cells(2, records=records)
    assert {cell.depth for cell in second} == {1000}
    assert {cell.epochs for cell in second if cell not in records} == {15}
    records |= {cell: record(cell, 50.0) for cell in second}
    third = OnTheSet().cells(2, records=records)
    assert {cell.depth for cell in third if cell not in records} == {100}


def test_no_network_is_in_the_study_of_baselines_too() -> None:
    others = set(Baselines().cells(1)) | set(Baselines().cells(1, quick=True))
    seeds = {cell.seed for cell in others}
    ours = {cell.seed for quick in (True, False) for search in OnTheSet().searches(quick) for cell in search.tuning}
    assert not seeds & (ours | set(range(OnTheSet.first_seed, OnTheSet.first_seed + 100)))


def test_half_a_search_chooses_nothing() -> None:
    search = OnTheSet().searches(True)[0]
    records = {cell: record(cell, 50.0) for cell in search.tuning if cell.lr_multiplier < 256}
    assert search.by_rate(records)
    assert search.best(records) == {}
    assert search.compared(2, records) == []
    assert OnTheSet().found_in(records, 2, quick=True) is None, "so nothing is said"


def test_what_the_constraint_buys_is_told_from_what_it_costs() -> None:
    scores = {FREE: 80.0, FREE_COSINE: 80.0, ON_SET: 85.0, STIEFEL: 75.0}
    found = planted(lambda cell: scores.get(how(cell), 80.0))
    words = {duel.way.how: duel.verdict.word for duel in duels(found)}
    assert (words[ON_SET], words[STIEFEL], words[ON_SET_COSINE]) == ("better", "worse", "not shown")


def test_calibration_counts_as_better_where_it_is_less() -> None:
    found = planted(
        lambda cell: 80.0,
        calibration=lambda cell: 2.0 if how(cell) == ON_SET else 5.0,
        noisy=lambda cell: 40.0 if how(cell) == ON_SET else 60.0,
    )
    words = [
        {d.verdict.word for d in duels(found, measure) if d.way.how == ON_SET}
        for measure in ("log loss", "calibration", "accuracy under noise")
    ]
    assert words == [set(), {"better"}, {"worse"}], "no log loss, no verdict"
    counts = OnTheSet().tables(found)[-1]
    assert list(counts.header) == ["", "accuracy", "calibration", "accuracy under noise"]
    assert ["uniform, on the set", "0 : 0, of 3", "3 : 0, of 3", "0 : 3, of 3"] in counts.rows


def test_working_rates_are_those_near_the_best_of_the_setting() -> None:
    found = planted(lambda cell: 90.0 if how(cell) != FREE or cell.lr_multiplier == 1 else 11.0)
    assert found.working(DIGITS, Way("stiefel", FREE)) == "× 1"
    assert found.working(DIGITS, Way("stiefel", ON_SET)) == "× 256"
    never = planted(lambda cell: 90.0 if how(cell) != FREE else 11.0)
    assert never.working(DIGITS, Way("stiefel", FREE)) == "none"


def test_tables_and_page_of_planted_records() -> None:
    flat = planted(lambda cell: 80.0)
    scores, rates, verdicts = OnTheSet().tables(flat)
    assert [row[0] for row in scores.rows] == list(map(str, EVERY))
    assert all("× 256" in row for row in rates.rows)
    assert [row[0] for row in verdicts.rows] == [str(way) for way in EVERY if way.how in on_the_set.AGAINST]
    page = "\n".join(OnTheSet().section(flat))
    assert "| uniform, on the set |" in page
    assert "| uniform, on the set, gains |" not in page, "which the file has"


def test_where_a_schedule_was_not_run_freely_the_constant_one_stands_in() -> None:
    found = planted(lambda cell: 80.0 if how(cell) == FREE else 90.0)
    found.samples["score"] = {key: v for key, v in found.scores.items() if key[1].how != FREE_COSINE}  # type: ignore[index]
    others = {duel.other.how for duel in duels(found) if duel.way.how == ON_SET_COSINE}
    assert others == {FREE}
