"""The study of baselines: which networks it trains, and that its page says what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from laboratory import record
from paper import experiment
from paper.studies.baseline_page import numbers, wanted
from paper.studies.baselines import (
    BASELINES,
    DEPTHS,
    EVERY,
    FAST,
    MINE,
    NAMES,
    OURS,
    RATES,
    TABLES,
    Baselines,
    best_of_ours,
    duels,
    epochs_to,
    over_depths,
)
from paper.studies.kit import FEW, Setting, Tuned

from stiefel_init import StiefelError
from stiefel_init.lab.data import load
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Record

FIRST, TUNING = Baselines.first_seed, Baselines.tuning_seeds
name_of = Baselines().contender
Truth = Callable[[Cell], float]


def records_of(truth: Truth, seeds: int = 4, noise: float = 0.2, *, full_stages: int = 0) -> dict[Cell, Record]:
    """Records of the quick study, of which the score of a cell is truth(cell) and noise; or of so many full stages."""
    rng = np.random.default_rng(0)
    found: dict[Cell, Record] = {}

    def asked() -> list[Cell]:
        if not full_stages:
            return Baselines().cells(seeds, quick=True, records=found)
        return [
            c
            for search in Baselines().searches(False)[:full_stages]
            for c in (*search.tuning, *search.compared(seeds, found))
        ]

    while left := [cell for cell in asked() if cell not in found]:
        for cell in left:
            score = truth(cell) + noise * rng.normal()
            found[cell] = record(cell, score, tested=(1, 2, 3), test_score=(score / 2, 0.95 * score, score))
    return found


def study(truth: Truth, seeds: int = 4, *, full_stages: int = 0) -> Tuned[str]:
    records = records_of(truth, seeds, full_stages=full_stages)
    rows = (
        [] if full_stages else Baselines().speed(records, Problems(), seeds, True)
    )  # the full study's data are not at hand
    found = Baselines().read(records, rows, seeds)
    assert found is not None
    return found


def flat(cell: Cell) -> float:
    return 80.0


@cache
def flat_study() -> Tuned[str]:
    return study(flat)


def text_of(found: Tuned[str]) -> str:
    return "\n".join(Baselines().section(found))


def test_the_full_study_has_all_starts_depths_and_rates() -> None:
    tuned = [cell for search in Baselines().searches(False) for cell in search.tuning]
    assert {name_of(cell) for cell in tuned} == set(EVERY)
    assert {cell.depth for cell in tuned} == set(DEPTHS)
    assert {cell.lr_multiplier for cell in tuned} == set(RATES)
    assert {cell.shots for cell in tuned} == {None, 1, 8}
    assert {cell.dataset for cell in tuned} == {"mnist", "fashion-mnist", "digits", *TABLES}
    assert len(tuned) == len(set(tuned)), "no network is trained twice"


def test_every_baseline_gets_what_ours_gets() -> None:
    """The same settings, rates, epochs, schedules and fast ends."""
    for search in Baselines().searches(False):
        asked: dict[str, set[tuple[object, ...]]] = {}
        for c in search.tuning:
            same = c.dataset, c.depth, c.shots, c.lr_multiplier, c.seed, c.epochs, c.schedule, c.ends
            asked.setdefault(name_of(c), set()).add(same)
        by_way = {fast: [of for name, of in asked.items() if name.endswith(FAST) == fast] for fast in (False, True)}
        assert all(of == group[0] for group in by_way.values() for of in group)
        assert all(len(group) in (0, len(NAMES)) for group in by_way.values())


def test_ours_are_ours_in_both_ways() -> None:
    assert set(OURS) == {"recipe", "stiefel", "permutation", "identity"}
    assert {name + end for name in OURS for end in ("", FAST)} == MINE
    plain, fast = (Baselines().cell("recipe" + end, Setting("mnist", 100), 1.0, quick=False) for end in ("", FAST))
    assert (plain.ends, fast.ends) == (1.0, 10.0)
    assert fast.schedule == "cosine"


def test_the_best_rate_is_that_of_the_best_tuning_network() -> None:
    records = records_of(lambda cell: 80.0 - abs(cell.lr_multiplier - 4), noise=0)
    assert all(set(search.best(records).values()) == {4.0} for search in Baselines().searches(True))
    even = records_of(flat, noise=0)
    assert all(set(search.best(even).values()) == {0.25} for search in Baselines().searches(True))


def test_a_start_without_hope_gets_few_seeds() -> None:
    """In the full study, and only where all of its rates fail."""
    records = records_of(lambda c: 10.0 if name_of(c) == "he" and c.dataset == "mnist" else 80.0, 10, full_stages=1)
    found = Baselines().read(records, [], 10)
    assert found is not None
    assert {len(values) for (s, name), values in found.scores.items() if (s.dataset, name) == ("mnist", "he")} == {FEW}
    assert {len(values) for (s, name), values in found.scores.items() if (s.dataset, name) != ("mnist", "he")} == {10}


def test_our_best_start_is_chosen_by_the_networks_that_chose_the_rates() -> None:
    """The best of several is high by chance among those compared."""

    def truth(cell: Cell) -> float:
        chosen, chance = name_of(cell) == "identity", name_of(cell) == "permutation" and cell.seed >= FIRST
        return 85.0 if chosen else 99.0 if chance else 80.0

    found = study(truth)
    best = best_of_ours(found, Setting("digits", 30))
    assert best is not None
    assert best[0] == "identity"
    fast = best_of_ours(found, Setting("digits", 30), fast=True)
    assert fast is not None
    assert fast[0].endswith(FAST)


def test_baselines_are_compared_with_ours_that_were_trained_in_the_same_way() -> None:
    results = duels(flat_study())
    assert {duel.baseline.endswith(FAST) == duel.ours.endswith(FAST) for duel in results} == {True}
    assert any(duel.baseline.endswith(FAST) for duel in results)
    assert {duel.ours.removesuffix(FAST) for duel in duels(flat_study(), "recipe")} == {"recipe"}


def test_what_is_the_same_at_every_depth_shows_over_all_depths() -> None:
    """Data that differ from seed to seed hide it in each setting, but both starts have the same data."""

    def truth(cell: Cell) -> float:
        return 80.0 + 4 * (cell.seed % 7) + 1.5 * (name_of(cell) == "idinit")

    found = study(truth, 10)
    assert {duel.verdict for duel in duels(found) if duel.baseline == "idinit"} == {"not shown"}
    pooled = over_depths(found)
    assert {each.baseline for each in pooled if each.verdict == "wins"} == {"idinit"}
    assert all(1 < each.gain < 2 for each in pooled if each.baseline == "idinit")
    assert not {each.baseline for each in pooled if each.verdict == "loses"}
    assert text_of(found).startswith("**Where a baseline wins with all depths taken together**")
    assert not any(each.verdict != "not shown" for each in over_depths(flat_study()))


def test_the_page_says_first_where_a_rival_wins() -> None:
    text = text_of(study(lambda cell: 95.0 if name_of(cell) == "tat" and cell.depth == 100 else 80.0))
    first = text.splitlines()[:3]
    assert first[0] == "**Where a baseline wins:**"
    assert first[2].startswith("- tat: digits, 100 layers (+1")
    assert "When to prefer it: digits, 100 layers." in text


def test_and_that_none_does_where_none_does() -> None:
    text = text_of(study(lambda cell: 90.0 if name_of(cell) in MINE else 40.0))
    assert text.startswith("**In no single setting is a baseline shown to win.**")
    assert text.count("no evidence in its favour here.") == len(BASELINES)


def test_the_page_has_a_section_for_each_baseline_and_says_what_was_not_run() -> None:
    text = text_of(flat_study())
    sections = text.split("### ")
    for name in BASELINES:
        section = next(part for part in sections if part.startswith(f"{name}\n"))
        assert all(word in section for word in ("Needs: ", "Result", "When to prefer it: "))
    assert "was not run" in text
    assert "Balduzzi" in text
    assert "![Which initialization, at which depth" in text
    assert ">>>" not in text


def test_a_run_that_was_cut_off_is_worth_a_page() -> None:
    """Here after its first stage: what was wanted at 100 layers is judged, and what is missing is named."""
    found = study(lambda cell: 90.0 if name_of(cell) in MINE else 40.0, 10, full_stages=1)
    text = text_of(found)
    assert "Not run: mnist, 10 layers; " in text
    assert "mnist, 1,000 layers" in text
    rows = {row[0]: row[2] for row in wanted(found).rows}
    assert rows["our best initialization: no baseline wins, mnist, 100 layers"] == "reached"
    assert (
        rows["`initialize_(model)`, fast ends: rates as wide as any baseline's, fashion-mnist, 100 layers"] == "reached"
    )
    assert not any("1,000 layers" in what for what in rows)


def test_what_was_wanted_is_not_reached_where_a_rival_wins() -> None:
    def truth(cell: Cell) -> float:
        if name_of(cell) in MINE:
            return 95.0 if cell.lr_multiplier <= 4 else 20.0
        return 97.0 if name_of(cell) == "tat" else 90.0

    rows = {row[0]: row[1:] for row in wanted(study(truth, 10, full_stages=2)).rows}
    told, reached = rows["our best initialization: ahead of every baseline, mnist, 1,000 layers"]
    assert reached == "not reached"
    assert "tat 97." in told
    assert rows["our best initialization: no baseline wins, mnist, 100 layers"][1] == "not reached"
    assert rows["our best initialization: rates as wide as any baseline's, mnist, 100 layers"][1] == "not reached"
    assert rows["our best initialization, fast ends: ahead of every baseline, mnist, 1,000 layers"][1] == "reached"


def test_what_was_wanted_is_judged_line_by_line() -> None:
    """Hundreds of other settings do not change whether ours is ahead in this one."""
    deepest = Setting("mnist", 1000)

    def truth(cell: Cell) -> float:
        ahead = name_of(cell) in MINE and (cell.dataset, cell.depth) == deepest[:2]
        return 80.0 + 1.3 * ahead + np.random.default_rng([cell.seed, len(name_of(cell)), cell.depth]).normal()

    found = study(truth, 10, full_stages=2)
    together = [duel.verdict for duel in duels(found) if duel.where == deepest]
    apart = [duel.verdict for duel in duels(found, apart=True) if duel.where == deepest]
    assert apart.count("loses") > together.count("loses")


def test_rates_that_were_too_high_are_named() -> None:
    def truth(cell: Cell) -> float:
        failed = name_of(cell) == "recipe" and cell.depth == 100 and cell.dataset == "mnist" and cell.seed == FIRST
        return 40.0 if failed else 90.0

    assert "recipe (mnist, 100 layers: 1 of 10)" in text_of(study(truth, 10, full_stages=1))
    assert "too high" not in text_of(study(flat, 10, full_stages=1))


def test_the_numbers_have_all_measures_and_leave_out_what_nobody_knows() -> None:
    found = flat_study()
    whole, few = (numbers(found, group) for group in found.data)
    assert [table.title.split()[0] for table in whole] == ["test", "rates", "steps", "seconds"]
    assert len(few) == 4
    assert len(few[0].rows) == len(NAMES)
    assert len(whole[0].rows) == len(EVERY)


def test_data_that_nobody_has_do_not_stop_the_study(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str, *, directory: Path | None = None) -> object:
        if name == "pima":
            raise StiefelError("No source has it.")
        return load(name, directory=directory)

    monkeypatch.setattr(experiment, "load", missing)
    have = experiment.Available(Baselines.optional, None)
    asked = [Cell(name) for name in ("pima", "digits", "cancer", "pima")]
    assert [cell.dataset for cell in have.of(asked)] == ["digits", "cancer"]
    assert capsys.readouterr().err == "Left out, for want of its data: pima. No source has it.\n"
    assert set(have.sets(have.of(asked), {})) == {"digits", "cancer"}
    monkeypatch.setattr(Baselines, "optional", ())
    with pytest.raises(StiefelError, match="No source has it"):
        experiment.Available(Baselines.optional, None).sets(asked, {})


def test_a_quick_study_is_published_whole_though_it_has_fewer_seeds_than_a_full_one() -> None:
    records = records_of(flat, Baselines.quick_seeds)
    assert {record.cell for record in Baselines().select(records, quick=True)} == set(records)


def test_a_stage_without_data_does_not_keep_the_next_waiting() -> None:
    done: dict[Cell, Record] = {}
    stages = Baselines().searches(False)
    last = next(i for i, search in enumerate(stages) if search.tuning[0].dataset == "pima")
    for search in stages[:last]:
        done |= {cell: record(cell, 50.0) for cell in search.tuning}
        done |= {cell: record(cell, 50.0) for cell in search.compared(1, done)}
    left = {cell.dataset for cell in Baselines().cells(1, records=done) if cell not in done}
    assert left == {"pima", "ionosphere", "cancer"}


def test_how_fast_a_network_learned() -> None:
    cell = Baselines().searches(True)[0].tuning[0]
    assert epochs_to(record(cell, 80.0, tested=(1, 2, 3), test_score=(40.0, 73.0, 80.0))) == 2
    assert epochs_to(record(cell, 80.0, tested=(3,), test_score=(80.0,))) is None
    found = flat_study()
    steps = found.speed[Setting("digits", 10), "he"]["steps"]
    assert steps == 2 * 6  # 1,437 training rows in batches of 256
