"""Each scheme at its best learning rate: chosen on a validation part, by networks that are no part of the result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from laboratory import Cli, csv_of
from laboratory import record as by_hand

from stiefel_init.lab.data import from_arrays, load, split
from stiefel_init.lab.study.plan import AUTO, FIRST_SEED, Rates, at, choose, parts
from stiefel_init.lab.train.cell import Cell


def peak(best: float, luck: float = 0.0) -> object:
    """Trains nothing: the score of a network falls with the distance of its rate from `best`; at 4, seeds differ."""

    def score(cell: Cell) -> float:
        lucky = luck * (-1) ** cell.seed if cell.lr_multiplier == 4.0 else 0.0
        return float(100 - 10 * abs(np.log2(cell.lr_multiplier / best)) + lucky)

    return lambda cells: [by_hand(cell, score(cell)) for cell in cells]


@pytest.mark.parametrize(
    ("auto", "best", "found", "edge"),
    [
        *((False, 1.0, 1.0, False), (False, 2.2, 2.0, False), (False, 100.0, 4.0, True)),
        *((True, 1.0, 1.0, False), (True, 8.0, 8.0, False), (True, 1 / 16, 1 / 16, False), (True, 1e6, 32.0, True)),
    ],
)
def test_the_best_of_a_list_or_beyond_its_edge(auto: bool, best: float, found: float, edge: bool) -> None:
    setting, luck = Cell("digits", "he", 4), peak(best, luck=90.0)
    choice = choose([setting], "digits#validation", Rates(AUTO, auto), 2, luck)  # type: ignore[arg-type]
    assert choice.best[setting] == found
    assert choice.at_edge(setting) == edge
    assert {record.cell.seed for record in choice.records} == {FIRST_SEED, FIRST_SEED + 1}
    assert {record.cell.dataset for record in choice.records} == {"digits#validation"}


def test_a_rate_is_counted_in_units_of_the_default() -> None:
    cell = Cell("digits", depth=9)
    assert at(cell, 1.0) == cell
    assert at(cell, 2.0).rate == pytest.approx(2e-3 / 3)
    assert [at(cell, value).lr_multiplier for value in (1 / 32, 0.3, 7.0)] == [1 / 32, 0.3, 7.0]


def test_the_networks_that_choose_see_nothing_of_the_test_part() -> None:
    x = np.arange(100.0)[:, None]
    final, choosing, data = parts("mine", from_arrays(x, x[:, 0] / 3))
    tests = [set(split(data[final], seed).y_test) for seed in range(3)]
    assert tests[0] == tests[1] == tests[2]
    for seed in range(1000, 1003):
        cut = split(data[choosing], seed)
        assert not {*cut.y_train, *cut.y_test} & tests[0]
    final, _, data = parts("digits", load("digits"))
    assert final == "digits", "its own test part serves every seed already"


def test_a_search_from_the_command_line(stiefel_init: Cli, tmp_path: Path) -> None:
    csv_of(tmp_path / "customers.csv", rows=80)
    words = ("--scheme", "stiefel,he", "--depth", "2", "--width", "8", "--seeds", "2", "--epochs", "2", "--batch", "16")
    command = ("train", "--data", "customers.csv", "--target", "price", *words, "--lr", "0.5,1,4", "--out", "study")
    assert stiefel_init(*command).code == 0
    (folder,) = [path for path in (tmp_path / "study").iterdir() if path.is_dir()]
    summary, rows = json.loads((folder / "summary.json").read_text()), pd.read_csv(folder / "results.csv")
    assert rows.groupby("part").size().to_dict() == {"test": 4, "validation": 2 * 3 * 2}
    assert set(rows["metric"]) == {"rmse"}
    mean = rows.groupby(["part", "scheme", "times_default_rate"])["score"].mean()
    for entry in summary["results"]:
        assert entry["times_default_rate"] == mean["validation", entry["scheme"]].idxmin()
        assert entry["mean"] == pytest.approx(mean["test", entry["scheme"]].item())
    assert [reading["column"] for reading in summary["data"]["columns"]] == ["age", "height", "town", "churn", "price"]
    page = (folder / "index.html").read_text()
    assert "chosen on a validation part of the training data" in page
    assert page.count('<figure class="chart"') == 2
    assert json.loads(stiefel_init(*command, "--json").out) == summary
    assert stiefel_init(*command, "--depth", "3").code == 0
    listed = json.loads(stiefel_init("list", "study", "--json").out)[0]["rows"]
    assert [row["metric"] for row in listed] == ["rmse"] * 2
    assert all((tmp_path / row["page"]).is_file() for row in listed)
