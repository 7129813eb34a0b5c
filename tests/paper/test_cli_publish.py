"""`python -m paper publish` and `report`: from a run to published tables, a comparison and pages; and a full disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from laboratory import ROOT, TINY, Cli, file_names, record, refused
from paper import experiment
from paper.experiment import Experiment, Trained, register
from paper.figures.signal import Signals
from paper.results import Results

from stiefel_init.lab.report.tables import Table, summary
from stiefel_init.lab.train import record as keep
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

OURS = ROOT / "results"


class Small(Trained):
    """Two schemes on digits."""

    name = "small"
    title = "A small study"
    seeds = 2
    depths: tuple[int, ...] = (2,)

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        sets = product(self.depths, ("stiefel", "he"), range(seeds))
        return [Cell("digits", s, depth, 8, seed=seed, epochs=1 if quick else 2) for depth, s, seed in sets]

    def tables(self, evidence: list[Record]) -> list[Table]:
        return [summary(evidence, "digits, by initialization")]


class First(Small):
    """Two depths."""

    name = "first"
    depths = (2, 3)


class Second(Small):
    """Two depths, of which it shares one with the first."""

    name = "second"
    depths = (3, 4)


def only(monkeypatch: pytest.MonkeyPatch, *experiments: Experiment) -> None:
    """Know these experiments and no others, for the time of a test."""
    monkeypatch.setattr(experiment, "_REGISTRY", {})
    for one in experiments:
        register(one)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment of a user's own is the only one there is."""
    only(monkeypatch, Small())


def write_run(folder: Path, one: Trained, seeds: int = 2, score: float = 50.0) -> Path:
    """A run of an experiment, its records made by hand."""
    folder.mkdir(exist_ok=True)
    keep.write(folder, [record(cell, score + cell.seed, seconds=0.5) for cell in one.cells(seeds)])
    return folder


# From a run to a page.


@pytest.mark.usefixtures("small")
def test_an_experiment_of_ones_own_from_the_run_to_the_report(stiefel_init: Cli, maintain: Cli, tmp_path: Path) -> None:
    done = stiefel_init("reproduce", "small", "--device", "cpu", "--out", "run")
    assert done.code == 0
    assert "digits, by initialization" in done.out
    done = maintain("publish", "run", "--out", "results")
    assert (done.code, done.err) == (0, "")
    assert done.out == "wrote results/small.csv\nwrote results/environment.json\n"
    assert file_names(tmp_path / "results") == ["environment.json", "small.csv"]
    run, published = Results(tmp_path / "run").records, Results(tmp_path / "results").records
    assert {cell: one.score for cell, one in published.items()} == {cell: one.score for cell, one in run.items()}
    (told,) = Results(tmp_path / "results").environments.values()
    assert told["networks"] == 4
    assert [one["engine"] for one in told["environments"]] == ["graph"]
    assert told["environments"][0]["source"] == next(iter(run.values())).environment["source"]
    done = maintain("report", "--results", "results", "--out", "docs")
    assert (done.code, done.out) == (0, "wrote docs/results.md\n")
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "## A small study" in page
    assert "**Digits, by initialization**" in page
    assert "| small | 4 | cpu" in page
    score = summary(list(run.values())).rows[0][1]
    assert f"| {score} |" in page
    refused(stiefel_init("compare", "--results", "results"), "No record matches a published number")


def test_a_run_that_kept_tables_and_no_networks_is_published_and_reported(
    maintain: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As figure 1 and the signal do."""
    only(monkeypatch, Small(), Signals())
    (tmp_path / "run").mkdir()
    shutil.copy(OURS / "signal.csv", tmp_path / "run")
    note = {"networks": 120, "seconds": 3.5, "environments": [{"device": "a", "engine": "stacked", "networks": 120}]}
    (tmp_path / "run" / "environment.json").write_text(json.dumps({"signal": note}))
    done = maintain("publish", "run", "--out", "results")
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "results" / "signal.csv").read_bytes() == (OURS / "signal.csv").read_bytes()
    assert Results(tmp_path / "results").environments == {"signal": note}
    assert maintain("report", "--results", "results", "--out", "docs").code == 0
    assert "## Signal and gradient at initialization" in (tmp_path / "docs" / "results.md").read_text()


# What is published stays.


def test_publishing_our_own_results_again_changes_no_table(maintain: Cli, tmp_path: Path) -> None:
    done = maintain("publish", OURS, "--out", "again")
    assert (done.code, done.err) == (0, "")
    assert "left out" not in done.out
    assert file_names(tmp_path / "again") == file_names(OURS)
    for path in OURS.glob("*.csv"):
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_tables_that_are_published_again_keep_what_they_were_run_with(
    maintain: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of scores does not say where its networks were trained; environment.json does."""
    only(monkeypatch, First(), Second())
    write_run(tmp_path / "run", First())
    assert maintain("publish", "run", "--out", "results").code == 0
    before = (tmp_path / "results" / "environment.json").read_bytes()
    for out in ("results", "again"):
        assert maintain("publish", "results", "--out", out).code == 0
        assert (tmp_path / out / "environment.json").read_bytes() == before
        assert maintain("report", "--results", out, "--out", "docs").code == 0
    assert "| first | 8 | none | by hand | 4 s |" in (tmp_path / "docs" / "results.md").read_text()


def test_a_run_leaves_alone_what_it_has_only_by_products_of(
    maintain: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps its own outcome of a network that both trained: rates were chosen by it."""
    only(monkeypatch, First(), Second())
    write_run(tmp_path / "first", First(), score=40.0)
    write_run(tmp_path / "second", Second(), score=60.0)
    assert maintain("publish", "first", "--out", "results").code == 0
    assert file_names(tmp_path / "results") == ["environment.json", "first.csv"], "and of the second nothing is made"
    for run in ("second", "second"):
        done = maintain("publish", run, "--out", "results")
        assert (done.code, done.out) == (0, "wrote results/second.csv\nwrote results/environment.json\n")
    results = Results(tmp_path / "results")
    for one, score in ((First(), 40.0), (Second(), 60.0)):
        found = one.evidence(results)
        assert found is not None
        assert sorted({each.score for each in found}) == [score, score + 1]
        assert len(found) == results.environments[one.name]["networks"] == 8


# Directories that are none, and a disk that is full.


@pytest.mark.usefixtures("small")
def test_what_cannot_be_published_or_reported(stiefel_init: Cli, maintain: Cli, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", Small())
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    for words in (("publish",), ("report", "--results")):
        refused(maintain(*words, "nowhere"), "nowhere is not a directory")
        refused(maintain(*words, "file"), "file is not a directory")
        refused(maintain(*words, "empty"), "empty holds no records")
        refused(maintain(*words, run, "--out", "file"), "file is a file")
    refused(maintain("publish", run, "--out", "file/below"), "file/below")
    stiefel_init("train", *TINY, "--data", "wine", "--out", "study")
    refused(maintain("report", "--results", "study"), "study holds no results of the paper")
    told = maintain("publish", "study", "--out", "study").out
    assert "8 networks of study belong to no experiment and were left out." in told
    (tmp_path / "empty" / "networks-0.jsonl").write_text("{")
    done = maintain("publish", "empty")
    assert done.code == 2
    assert "networks-0.jsonl is damaged" in done.err
    assert "empty holds no records" in done.err
    assert file_names(tmp_path) == ["empty", "file", "run", "study"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("words", [("report", "--results"), ("publish",)], ids=" ".join)
def test_a_full_disk_is_told_in_one_sentence(
    words: tuple[str, ...], maintain: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = write_run(tmp_path / "run", Small()), tmp_path / "out"

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        done = maintain(*words, run, "--out", out)
    refused(done, "could not be written (No space left on device)", str(out))
    assert file_names(out) == []
    assert maintain(*words, run, "--out", out).code == 0
