"""The study of rivals: which networks it trains, and that its page says what the numbers say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from laboratory import record

from stiefel_init.lab.studies import rival_cells as cells
from stiefel_init.lab.studies.rival_cells import NAMES, OURS, RIVALS, STARTS, name_of
from stiefel_init.lab.studies.rival_findings import Found, epochs_to, found_in, speed, verdict
from stiefel_init.lab.studies.rivals import Rivals
from stiefel_init.lab.studies.tuned import FIRST, TUNING, Setting
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.task import Tasks

Truth = Callable[[Cell], float]


def records_of(truth: Truth, seeds: int = 4, noise: float = 0.2) -> dict[Cell, Record]:
    """Records of the quick study, of which the score of a cell is truth(cell) and noise."""
    rng = np.random.default_rng(0)
    found: dict[Cell, Record] = {}
    while left := [cell for cell in Rivals().cells(seeds, quick=True, records=found) if cell not in found]:
        for cell in left:
            score = truth(cell) + noise * rng.normal()
            found[cell] = record(cell, score, tested=(1, 2, 3), test_score=(score / 2, 0.95 * score, score))
    return found


def study(truth: Truth, seeds: int = 4) -> Found:
    records = records_of(truth, seeds)
    found = found_in(records, speed(records, Tasks(), seeds, True), seeds)
    assert found is not None
    return found


def flat(cell: Cell) -> float:
    return 80.0


def text_of(found: Found) -> str:
    return "\n".join(Rivals().section(found))


def test_rates_are_chosen_with_other_seeds_than_are_compared() -> None:
    everything = list(records_of(flat))
    tuned = [cell for cell in everything if cell.seed in TUNING]
    compared = [cell for cell in everything if cell.seed >= FIRST]
    assert len(tuned) + len(compared) == len(everything)
    assert len(tuned) == len(STARTS) * len(cells.QUICK_RATES) * len(cells.settings(True))
    assert len(compared) == len(STARTS) * len(cells.settings(True)) * 4


def test_the_full_study_has_all_starts_depths_and_rates() -> None:
    tuned = cells.tuning(False)
    assert {name_of(cell) for cell in tuned[:2000]} == set(NAMES)
    assert {cell.depth for cell in tuned} == set(cells.DEPTHS)
    assert {cell.times for cell in tuned} == set(cells.RATES)
    assert {cell.shots for cell in tuned} == {None, 1, 8}


def test_each_start_has_the_activation_it_is_made_for() -> None:
    by_name = {name_of(cell): cell.activation for cell in cells.tuning(True)}
    assert {name: activation for name, activation in by_name.items() if activation != "relu"} == {
        "tat": "tat",
        "tanh-init": "tanh",
    }


def test_the_best_rate_is_that_of_the_best_tuning_network() -> None:
    records = records_of(lambda cell: 80.0 - abs(cell.times - 4), noise=0)
    assert set(cells.search(True).best(records).values()) == {4.0}
    assert set(cells.search(True).best(records_of(flat, noise=0)).values()) == {0.25}


def test_a_rate_works_if_it_comes_close_to_the_best_start() -> None:
    found = study(lambda cell: 10.0 if name_of(cell) == "he" or cell.times == 16 else 80.0)
    setting = Setting("digits", 30)
    assert found.working(setting, "tat") == 16
    assert found.working(setting, "he") is None


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ([90.0, 90.2, 89.8, 90.1], [80.0, 80.2, 79.9, 80.3], "wins"),
        ([70.0, 70.2, 69.8, 70.1], [80.0, 80.2, 79.9, 80.3], "loses"),
        ([80.0, 80.4, 79.8, 80.1], [80.0, 80.2, 79.9, 80.3], "not shown"),
        ([90.0], [80.0], "open"),
        ([90.0, -np.inf], [80.0, 80.0], "loses"),
    ],
)
def test_verdicts(a: list[float], b: list[float], word: str) -> None:
    assert verdict(np.array(a), np.array(b), 10) == word


def test_the_page_says_first_where_a_rival_wins() -> None:
    text = text_of(study(lambda cell: 95.0 if name_of(cell) == "tat" and cell.depth == 100 else 80.0))
    first = text.splitlines()[:3]
    assert first[0] == "**Where a rival wins:**"
    assert first[2].startswith("- tat: digits, 100 layers (+1")
    assert "Prefer it for: digits, 100 layers." in text


def test_and_that_none_does_where_none_does() -> None:
    ours = {rival.name for rival in OURS}
    text = text_of(study(lambda cell: 90.0 if name_of(cell) in ours else 40.0))
    assert text.startswith("**No rival is shown to win.**")
    assert text.count("Nothing here speaks for it.") == len(RIVALS)


def test_the_page_has_a_section_for_each_rival_and_says_what_was_not_run() -> None:
    text = text_of(study(flat))
    assert all(f"### {rival.name}\n" in text for rival in RIVALS)
    assert "was not run" in text
    assert "Balduzzi" in text
    assert "![Which start, at which depth" in text
    assert ">>>" not in text


def test_how_fast_a_network_learned() -> None:
    cell = cells.tuning(True)[0]
    assert epochs_to(record(cell, 80.0, tested=(1, 2, 3), test_score=(40.0, 73.0, 80.0))) == 2
    assert epochs_to(record(cell, 80.0, tested=(3,), test_score=(80.0,))) is None
    found = study(flat)
    steps = found.learned(Setting("digits", 10), "he", "steps")
    assert steps == 2 * 6  # 1,437 training rows in batches of 256
    assert found.learned(Setting("digits", 10), "no such start", "steps") is None
