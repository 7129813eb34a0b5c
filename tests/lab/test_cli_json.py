"""`--json` on every command that prints a table: nothing but JSON on stdout, with the numbers of the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from laboratory import TINY, Cli, csv_of, refused


@pytest.mark.parametrize(
    ("command", "column"), [(("compare", "table5"), "ours"), (("data", "list"), "name"), (("paper", "table1"), "value")]
)
def test_tables_as_json(command: tuple[str, ...], column: str, stiefel_init: Cli) -> None:
    done = stiefel_init(*command, "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    rows = found if command[0] == "paper" else found[0]["rows"]
    assert len(rows) >= 9
    assert all(any(column in key for key in row) for row in rows)


def test_a_diagnosis_of_a_users_own_file_as_json(stiefel_init: Cli, tmp_path: Path) -> None:
    csv_of(tmp_path / "customers.csv")
    words = ("diagnose", "--data", "customers.csv", "--depth", "3", "--width", "8", "--scheme", "stiefel,he")
    refused(stiefel_init(*words), "name the column to predict with --target")
    for target in ("churn", "price"):
        done = stiefel_init(*words, "--target", target, "--json")
        assert done.code == 0
        assert list(json.loads(done.out)) == ["stiefel", "he"]


@pytest.mark.usefixtures("small_images")
def test_an_experiment_as_json(stiefel_init: Cli) -> None:
    done = stiefel_init(
        "reproduce", "table3", "--quick", "--seeds", "1", "--device", "cpu", "--out", "out", "--json"
    )  # fmt: skip
    assert done.code == 0
    assert [table["title"] for table in json.loads(done.out)] == ["table3-quick, mnist", "table3-quick, fashion-mnist"]


def test_a_folder_without_studies(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("list", "nowhere"), "nowhere is not a directory")
    (tmp_path / "empty").mkdir()
    refused(stiefel_init("list", "empty"), "empty holds no studies")
    stiefel_init("train", *TINY, "--data", "wine", "--out", "study")
    (summary,) = (tmp_path / "study").glob("*/summary.json")
    summary.write_text(summary.read_text()[:-40])
    refused(stiefel_init("list", "study"), "summary.json is damaged")
