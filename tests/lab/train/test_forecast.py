"""Forecasts: what is counted, so that testing, starting and deep networks have their part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stiefel_init.lab.train import forecast
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.forecast import Cost
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.runner import work
from stiefel_init.lab.train.training import epochs_tested, train

PROBLEMS = Problems()
DIGITS = Cell("digits", depth=3, width=8, epochs=40)


@pytest.mark.parametrize(
    ("options", "tested"),
    [
        ({"epochs": 7}, [*range(1, 8)]),
        ({"epochs": 40}, [*range(2, 41, 2)]),
        ({"epochs": 45}, [*range(2, 46, 2), 45]),
        ({"shots": 2, "batch": None}, [40]),
    ],
)
def test_the_tests_that_are_counted_are_those_that_are_made(options: dict[str, Any], tested: list[int]) -> None:
    cell, told = replace(DIGITS, **options), list[int]()
    outcome = train([cell], [PROBLEMS(cell)], torch.device("cpu"), told.append)[0][0]
    assert told == list(range(1, cell.epochs + 1))
    assert outcome.tested == tested == sorted(epochs_tested(cell))
    assert len(outcome.test_score) == len(tested)
    assert len(outcome.train_loss) == len(outcome.train_score) == (cell.epochs if cell.shots is None else 1)


def test_a_forecast_adds_up_start_epochs_steps_and_tests() -> None:
    problem = PROBLEMS(DIGITS)
    steps = -(-problem.size // 256)
    assert steps == 6
    assert Cost(5.0, 0.1, 0.01, 2.0).of(DIGITS, problem) == pytest.approx(5 + 40 * (0.1 + 6 * 0.01) + 20 * 2)
    few = replace(DIGITS, shots=1, batch=None)
    assert Cost(0.0, 0.0, 0.01, 2.0).of(few, PROBLEMS(few)) == pytest.approx(40 * 0.01 + 2)


def test_a_forecast_measures_networks_as_they_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread its own, in products of one thread; products that threads share wait for other programs."""
    seen: list[tuple[int, int]] = []

    def measured(stack: Sequence[Cell], *_: object) -> Cost:
        seen.append((len(stack), torch.get_num_threads()))
        return Cost(1.0, 1.0, float(len(stack)), 1.0)

    monkeypatch.setattr(forecast, "_measure_part", measured)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cost = forecast._measure([replace(DIGITS, seed=seed) for seed in range(5)], PROBLEMS, torch.device("cpu"))
    finally:
        torch.set_num_threads(before)
    assert sorted(seen) == [(2, 1), (3, 1)]
    assert cost == Cost(1.0, 1.0, 3.0, 1.0), "the slowest thread counts"


def test_progress_counts_testing() -> None:
    few = replace(DIGITS, shots=1, batch=None)
    problem = PROBLEMS(few)
    without = replace(problem, test_features=problem.test_features[:1], test_targets=problem.test_targets[:1])
    assert work(few, problem) > work(few, without)
    assert work(replace(few, epochs=80), problem) < 2 * work(few, problem), "the one test stays one"


def test_networks_that_follow_from_others_are_counted(tmp_path: Path) -> None:
    """A study that chooses rates and then compares trains both; a forecast knows before any is trained."""
    from paper.experiment import Options
    from paper.registry import chosen, networks
    from paper.studies.baselines import Baselines

    cells, _ = networks(chosen("baselines"), Options(tmp_path, seeds=2, quick=True))
    first = [cell for search in Baselines().searches(True) for cell in search.tuning]
    assert set(first) < set(cells)
    settings = {(cell.dataset, cell.depth, cell.shots, cell.scheme, cell.ends) for cell in first}
    assert len(cells) == len(first) + 2 * len(settings)
