"""The study of baselines: which networks it trains, and that its page says what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from laboratory import record
from paper import experiment
from paper.studies import baselines
from paper.studies.baselines import DEPTHS, EVERY, FAST, MINE, NAMES, RATES, Baselines, duels, over_depths
from paper.studies.kit import FEW, Setting, Tuned
from paper.tables.protocol import IMAGES
from planting import contender_of, planted

from stiefel_init import StiefelError
from stiefel_init.lab.data import load
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

FIRST, TUNING = Baselines.first_seed, Baselines.tuning_seeds
name_of = contender_of(Baselines())
Truth = Callable[[Cell], float]


def records_of(truth: Truth, seeds: int = 4, noise: float = 0.2, *, full_stages: int = 0) -> dict[Cell, Record]:
    """Records of the quick study, of which the score of a cell is truth(cell) and noise; or of so many full stages."""
    rng = np.random.default_rng(0)

    def asked(found: dict[Cell, Record]) -> list[Cell]:
        if not full_stages:
            return Baselines().cells(seeds, quick=True, records=found)
        stages = Baselines().searches(False)[:full_stages]
        return [cell for search in stages for cell in (*search.tuning, *search.compared(seeds, found))]

    return planted(asked, lambda cell: record(cell, truth(cell) + noise * rng.normal()))


def study(truth: Truth, seeds: int = 4, *, full_stages: int = 0) -> Tuned[str]:
    records = records_of(truth, seeds, full_stages=full_stages)
    found = Baselines().found_in(records, seeds, quick=not full_stages)
    assert found is not None
    return found


def flat(cell: Cell) -> float:
    return 80.0


def text_of(found: Tuned[str]) -> str:
    return "\n".join(Baselines().section(found))


def test_the_full_study_has_all_starts_depths_and_rates() -> None:
    tuned = [cell for search in Baselines().searches(False) for cell in search.tuning]
    assert {name_of(cell) for cell in tuned} == set(EVERY)
    assert {cell.depth for cell in tuned} == set(DEPTHS)
    assert {cell.lr_multiplier for cell in tuned} == set(RATES)
    assert {cell.shots for cell in tuned} == {None, 1, 8}
    assert {cell.dataset for cell in tuned} == {"mnist", "fashion-mnist", "digits", *baselines.TABLES}
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


def test_the_best_rate_is_that_of_the_best_tuning_network() -> None:
    records = records_of(lambda cell: 80.0 - abs(cell.lr_multiplier - 4), noise=0)
    assert all(set(search.best(records).values()) == {4.0} for search in Baselines().searches(True))
    even = records_of(flat, noise=0)
    assert all(set(search.best(even).values()) == {0.25} for search in Baselines().searches(True))


def test_a_start_without_hope_gets_few_seeds() -> None:
    """In the full study, and only where all of its rates fail."""
    records = records_of(lambda c: 10.0 if name_of(c) == "he" and c.dataset == "mnist" else 80.0, 10, full_stages=1)
    found = Baselines().found_in(records, 10)
    assert found is not None
    assert {len(values) for (s, name), values in found.scores.items() if (s.dataset, name) == ("mnist", "he")} == {FEW}
    assert {len(values) for (s, name), values in found.scores.items() if (s.dataset, name) != ("mnist", "he")} == {10}


def test_our_best_start_is_chosen_by_the_networks_that_chose_the_rates() -> None:
    """The best of several is high by chance among those compared."""

    def truth(cell: Cell) -> float:
        chosen, chance = name_of(cell) == "identity", name_of(cell) == "permutation" and cell.seed >= FIRST
        return 85.0 if chosen else 99.0 if chance else 80.0

    found = study(truth)
    best = baselines.best_of_ours(found, Setting("digits", 30))
    assert best is not None
    assert best[0] == "identity"


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
    assert "**Where a baseline wins with all depths taken together** (" in text_of(found)
    flat_ones = study(flat)
    assert {each.verdict for each in over_depths(flat_ones)} == {"not shown"}
    assert {duel.baseline.endswith(FAST) == duel.ours.endswith(FAST) for duel in duels(flat_ones)} == {True}


def test_the_page_says_first_where_a_rival_wins_and_that_none_does() -> None:
    text = text_of(study(lambda cell: 95.0 if name_of(cell) == "tat" and cell.depth == 100 else 80.0))
    head, _, first, *_ = text.splitlines()
    assert head == "**Where a baseline wins:**"
    assert first.startswith("- tat: digits, 100 layers (+1")

    text = text_of(study(lambda cell: 90.0 if name_of(cell) in MINE else 40.0))
    assert text.splitlines()[0] == "**In no single setting is a baseline shown to win.**"


def test_a_run_that_was_cut_off_is_worth_a_page() -> None:
    """Here after its first stage: who leads at 100 layers is told."""
    found = study(lambda cell: 90.0 if name_of(cell) in MINE else 40.0, 10, full_stages=1)
    leading, counts, rates = Baselines().tables(found)
    assert [row[0] for row in leading.rows] == [d + end for d in IMAGES for end in ("", FAST)]
    assert all(row[1].startswith("**") for row in leading.rows)
    assert {row[0]: row[1] for row in counts.rows} == dict.fromkeys(set(NAMES) - MINE, "2/2")
    assert len(rates.rows) == len(NAMES)
    assert {row[0]: row[1] for row in rates.rows}["he"] == "none"
    assert {row[0]: row[1] for row in rates.rows}["recipe (ours)"] == "× 64"


def test_data_that_nobody_has_do_not_stop_the_study(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str, *, directory: Path | None = None) -> object:
        if name == "pima":
            raise StiefelError("No source has it.")
        return load(name, directory=directory)

    monkeypatch.setattr(experiment, "load", missing)
    experiment._has.cache_clear()
    asked = [Cell(name) for name in ("pima", "digits", "cancer", "pima")]
    monkeypatch.setattr(Baselines, "cells", lambda self, seeds, **options: asked)
    left = Baselines().trainable(experiment.Options(Path()), 1, {asked[2]: record(asked[2], 1.0)})
    assert left == [Cell("digits")]
    assert capsys.readouterr().err == "Left out, its data is not available: pima. No source has it.\n"
    experiment._has.cache_clear()


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
