"""Results: published tables and records of runs, loaded with the identity of every network, each network once."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import one_sentence
from laboratory import ROOT, record, trained
from paper import results
from paper.experiment import Experiment, Trained
from paper.figures.figure1 import Figure1
from paper.figures.signal import Signals
from paper.results import Results, publish
from paper.tables.images import Table3

from stiefel_init import StiefelError
from stiefel_init.lab.train import record as keep
from stiefel_init.lab.train.cell import OPTIMIZERS, PRECISIONS, Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import forget
from stiefel_init.theory import ACTIVATIONS

OURS = ROOT / "results"
EXPERIMENTS = list(trained())
YOUNGER: dict[str, Any] = {"decay": float, "dropout": float, "schedule": str, "ends": float}
"""Fields that only some tables have."""
TABLES = sorted(path for path in OURS.glob("*.csv") if path.read_text().startswith("dataset,scheme,depth,width,"))


@pytest.fixture(scope="module")
def ours() -> Results:
    """All that we have published, read once."""
    return Results(OURS)


@pytest.fixture(scope="module")
def records(ours: Results) -> Mapping[Cell, Record]:
    """Its networks."""
    return ours.records


@pytest.fixture(scope="module")
def keys(records: Mapping[Cell, Record]) -> set[str]:
    """What stands for each of them in files."""
    return {cell.key for cell in records}


# Every network is found by its identity.


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_every_network_of_an_experiment_is_published(experiment: Trained, ours: Results, keys: set[str]) -> None:
    records = ours.records_of(experiment.label(quick=False))
    own = experiment.cells(experiment.seeds, records=records)
    assert [cell for cell in own if cell not in records] == []
    assert {cell.key for cell in own} <= keys
    assert {one.cell for one in experiment.select(records)} >= set(own)


def test_every_line_is_one_network_and_none_has_two(ours: Results) -> None:
    assert len(TABLES) == 11
    outcomes: dict[Cell, dict[str, float]] = {}
    for path in TABLES:
        records = ours.records_of(path.stem)
        with open(path, newline="") as file:
            row: dict[str, Any]
            for row in csv.DictReader(file):
                cell = Cell(
                    row["dataset"], row["scheme"], int(row["depth"]), int(row["width"]), row["activation"],
                    int(row["seed"]), int(row["epochs"]), int(row["batch"]) if row["batch"] else None,
                    float(row["rate"]), row["optimizer"], int(row["shots"]) if row["shots"] else None,
                    float(row["alpha"]) if row["alpha"] else None, row["precision"], int(row["protocol"]),
                    **{name: kind(row[name]) for name, kind in YOUNGER.items() if row.get(name)},
                )  # fmt: skip
                found = records[cell]
                assert path.stem not in outcomes.setdefault(cell, {})
                outcomes[cell][path.stem] = found.score
                assert (
                    found.metric.name
                    == row["metric"]
                    == ("rmse" if row["dataset"].startswith("diabetes") else "accuracy")
                )
                assert found.score == (float(row["score"]) if row["score"] else found.metric.worst)
                assert found.diverged == (int(row["diverged"]) if row["diverged"] else None)
    assert [scores for scores in outcomes.values() if len(scores) > 1] == []
    assert len(outcomes) == len(ours.records)


def test_every_published_network_belongs_to_an_experiment(ours: Results) -> None:
    own: set[Cell] = set()
    for experiment in EXPERIMENTS:
        mine = ours.records_of(experiment.name)
        own |= {one.cell for quick in (False, True) for one in experiment.select(mine, quick=quick)}
    assert own == set(ours.records)


def test_what_was_run_is_told_for_every_line(ours: Results) -> None:
    environments = ours.environments
    for path in TABLES:
        lines = len(path.read_text().splitlines()) - 1
        told = environments[path.stem]
        assert told["networks"] == sum(one["networks"] for one in told["environments"])
        assert told["networks"] >= lines, "some were trained for two experiments and are published with one"


# Publishing and loading are inverse.


def published(records: list[Record], out: Path) -> Results:
    """The results of a run with these records, published as `mine`, and loaded."""
    out.mkdir()
    publish(Results(out), {"mine": records}, [], out)
    return Results(out)


def odd_records() -> list[Record]:
    """Networks that differ in every field, with numbers that have no short form."""
    rng = np.random.default_rng(0)
    schemes = ("stiefel", "lee direct", "rotation 0.03", "orthogonal 1.4142135623730951", "random 0.3", "permutation")
    found = []
    for place in range(60):
        depth = 2 + place % 3
        cell = Cell(
            ("wine", "diabetes", 'a "user\'s", own|.csv@1a2b')[place % 3],
            schemes[place % 6], depth, 2 + place if place % 2 else tuple(range(2, 2 + depth)),
            ACTIVATIONS[place % 5],
            place * 10**6, 1 + place, None if place % 4 else 17, float(rng.uniform(1e-9, 10)),
            OPTIMIZERS[place % 2], None if place % 5 else 3,
            None if place % 3 else float(rng.normal()) if place % 2 else 0.0,
            PRECISIONS[place % 2],
        )  # fmt: skip
        score = None if place % 7 == 0 else float(rng.uniform(0, 200))
        found.append(record(cell, score, diverged=3 if score is None else None))
    return found


def test_floats_widths_and_what_is_left_out_survive(tmp_path: Path) -> None:
    written = odd_records()
    assert len({one.cell for one in written}) == 60
    loaded = published(written, tmp_path / "out").records
    assert len(loaded) == 60
    for one in written:
        again = loaded[one.cell]
        assert again.cell.key == one.cell.key
        assert (again.metric, again.score, again.diverged) == (one.metric, one.score, one.diverged)
        assert type(again.cell.width) is type(one.cell.width)
    assert {one.score for one in loaded.values() if one.diverged} == {0.0, math.inf}


def test_tables_name_decay_dropout_and_schedule_where_a_network_has_them(tmp_path: Path) -> None:
    plain = Cell("wine", depth=2)
    cells = [plain, replace(plain, decay=1 / 3), replace(plain, dropout=0.1), replace(plain, schedule="cosine")]
    for name, chosen, more in (("old", cells[:1], ""), ("some", cells[:2], ",decay"), ("all", cells, None)):
        found = published([record(cell, 50.0) for cell in chosen], tmp_path / name)
        header = (found.place / "mine.csv").read_text().splitlines()[0]
        assert header == HEADER + (",decay,dropout,schedule" if more is None else more)
        assert {cell.key for cell in found.records} == {cell.key for cell in chosen}


def test_tables_have_what_was_measured_besides_accuracy(tmp_path: Path) -> None:
    cells = [Cell("wine", depth=2, seed=seed) for seed in range(2)]
    records = [record(cells[0], 50.0, log_loss=1 / 3, calibration=2.5, noisy=40.0), record(cells[1], None)]
    found = published(records, tmp_path / "out")
    assert (found.place / "mine.csv").read_text().splitlines()[0] == f"{HEADER},log_loss,calibration,noisy"
    for cell, expected in zip(cells, ((1 / 3, 2.5, 40.0), (None, None, None))):
        one = found.records[cell]
        assert (one.log_loss, one.calibration, one.noisy) == expected


def test_loading_what_was_published_and_publishing_it_again_changes_no_byte(tmp_path: Path) -> None:
    first = published(odd_records(), tmp_path / "first")
    second = published(list(reversed(first.records.values())), tmp_path / "second")
    assert (first.place / "mine.csv").read_bytes() == (second.place / "mine.csv").read_bytes()


def test_a_network_that_two_experiments_share_is_published_with_the_first(tmp_path: Path) -> None:
    one, both, other = (record(Cell("wine", seed=seed), 50.0) for seed in range(3))
    publish(Results(tmp_path), {"first": [one, both], "second": [both, other], "third": [both]}, [], tmp_path)
    assert len((tmp_path / "first.csv").read_text().splitlines()) == 3
    assert len((tmp_path / "second.csv").read_text().splitlines()) == 2
    assert not (tmp_path / "third.csv").exists()
    assert Results(tmp_path).records.keys() == {one.cell, both.cell, other.cell}
    assert {name: told["networks"] for name, told in Results(tmp_path).environments.items()} == {
        "first": 2,
        "second": 1,
    }


def test_environments_are_counted(tmp_path: Path) -> None:
    made = [{"device": "a", "engine": "x"}, {"device": "b", "engine": "x"}, {"engine": "x", "device": "a"}]
    rows = [record(Cell("wine", seed=i), 50.0, environment=one, seconds=0.25) for i, one in enumerate(made)]
    assert published(rows, tmp_path / "out").environments == {
        "mine": {
            "networks": 3,
            "seconds": 0.8,
            "environments": [
                {"device": "a", "engine": "x", "networks": 2},
                {"device": "b", "engine": "x", "networks": 1},
            ],
        }
    }


# A network is counted once, however often it is there.


def test_networks_that_are_published_and_trained_again_count_once(
    tmp_path: Path, records: Mapping[Cell, Record]
) -> None:
    shutil.copy(OURS / "table3.csv", tmp_path)
    some = [cell for cell in Table3().cells(50) if (cell.dataset, cell.depth) == ("mnist", 10)]
    again = [replace(records[cell], train_loss=(0.5,), seconds=1.0) for cell in some]
    keep.write(tmp_path, again[:200])
    keep.write(tmp_path, again[100:])  # some of them in two files of a run, too
    (tmp_path / "table3-quick.csv").write_bytes((OURS / "table3.csv").read_bytes())
    loaded = Results(tmp_path).records
    assert len(loaded) == len(Table3().select(records)) == 7200
    table = Table3().comparison(Table3().select(loaded))
    assert table == Table3().comparison(Table3().select(records))
    assert {len(one.scores) for one in Table3().compare(list(loaded.values()))} == {50}
    assert loaded[some[0]].train_loss == (0.5,), "the record of a run tells more than the table does"


# Directories that hold something else.


def test_a_directory_that_is_none_or_holds_no_records(tmp_path: Path) -> None:
    for place, words in (
        (tmp_path / "nowhere", "is not a directory"),
        (OURS / "table1.csv", "is not a directory"),
        (tmp_path, "holds no records"),
    ):
        with pytest.raises(StiefelError) as error:
            _ = Results(place).records
        assert f"{place} {words}" in one_sentence(error)


def test_a_users_own_tables_beside_the_records_are_passed_over(tmp_path: Path) -> None:
    shutil.copy(OURS / "table2.csv", tmp_path)
    (tmp_path / "customers.csv").write_text("age,churn\n41,yes\n")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    assert len(Results(tmp_path).records) == 500


def test_without_a_directory_the_published_results_are_meant() -> None:
    assert Results().place == results.folder() == OURS


EVIDENCE: dict[str, Callable[[Path], Any]] = {
    "table1": lambda folder: Results(folder).records,
    "figure1": lambda folder: Figure1().evidence(Results(folder)),
    "signal": lambda folder: Signals().evidence(Results(folder)),
    "members-curves": lambda folder: Results(folder).table("members-curves"),
}


@pytest.mark.parametrize("name", EVIDENCE)
@pytest.mark.parametrize("damage", ["cut", "header", "empty"])
def test_a_damaged_file_of_results_is_named(name: str, damage: str, tmp_path: Path) -> None:
    whole = (OURS / f"{name}.csv").read_bytes()
    path = tmp_path / f"{name}.csv"
    header = whole[: whole.index(b"\n") + 1]
    path.write_bytes(whole[:3000] + b"garbage,\n" if damage == "cut" else header if damage == "header" else b"")
    line = f"line {whole[:3000].count(bytes([10])) + 1}" if damage == "cut" else "has no lines"
    with pytest.raises(StiefelError, match=f"{name}.csv,? {line}"):
        EVIDENCE[name](tmp_path)


HEADER = ",".join(results.COLUMNS)
LINE = "mnist,he,10,64,relu,0,100,256,0.0003,adam,,,float32,1,accuracy,97.66,"
NONSENSE = {
    "a word for a number": LINE.replace("10", "ten"),
    "no metric": LINE.replace("accuracy", "f1"),
    "no data set": LINE.replace("mnist", ""),
    "no rate": LINE.replace("0.0003", ""),
    "not a number": LINE.replace("0.0003", "nan"),
    "a negative seed": LINE.replace("relu,0", "relu,-1"),
    "too short": LINE[:-2],
    "too long": LINE + ",",
    "widths of other layers": LINE.replace(",64,", ",64 64,"),
    "a field without end": LINE.replace("he", "x" * 200_000),
    "no text": LINE.replace("he", "\x00"),
}


@pytest.mark.parametrize("line", NONSENSE.values(), ids=NONSENSE)
def test_a_line_that_is_no_network_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"{HEADER}\n{LINE}\n{line}\n")
    with pytest.raises(StiefelError) as error:
        _ = Results(tmp_path).records
    assert re.search(r"mine\.csv, line [23], is damaged", one_sentence(error))


def test_published_networks_of_an_unknown_scheme_are_left_out(
    tmp_path: Path, own_scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of a run are: they may be sound where the scheme is registered."""
    rows = [record(Cell("wine", f"{own_scheme} 0.5", seed=seed), 50.0) for seed in range(3)]
    shutil.copy(OURS / "table2.csv", tmp_path)
    publish(Results(tmp_path), {"mine": rows}, [], tmp_path)
    assert len(Results(tmp_path).records) == 503
    forget(own_scheme)
    assert len(Results(tmp_path).records) == 500
    err = capsys.readouterr().err
    assert str(tmp_path / "mine.csv") in err
    assert f"scheme='{own_scheme} 0.5' is not known" in err


OTHERWISE: dict[str, Callable[[list[str]], list[str]]] = {
    "other columns": lambda lines: ["a,b", "1,2"],
    "words for numbers": lambda lines: [lines[0], ",".join("x" for _ in lines[0].split(","))],
    "few lines": lambda lines: lines[:50],
}


@pytest.mark.parametrize("change", OTHERWISE.values(), ids=OTHERWISE)
@pytest.mark.parametrize("experiment", [Figure1(), Signals()], ids=lambda each: each.name)
def test_a_table_that_is_not_what_its_name_says_is_named(
    experiment: Experiment, change: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    path = tmp_path / f"{experiment.name}.csv"
    path.write_text("\n".join(change((OURS / path.name).read_text().splitlines())) + "\n")
    if experiment.name == "figure1" and change is OTHERWISE["few lines"]:
        return  # fewer matrices are a smaller figure
    with pytest.raises(StiefelError) as error:
        experiment.claims(experiment.evidence(Results(tmp_path)))
    assert path.name in one_sentence(error)


# What was run with what.

BROKEN = {
    "cut": '{"table1": {',
    "a list": "[]",
    "a deep nest": "[" * 100_000,
    "no text": "\udcff",
    "a number for an experiment": '{"table1": 1}',
    "no networks": '{"table1": {"environments": []}}',
    "a word for a number": '{"table1": {"networks": "x", "seconds": 1, "environments": []}}',
    "no device": '{"table1": {"networks": 1, "seconds": 1, "environments": [{"networks": 1}]}}',
    "no time": '{"table1": {"networks": 1, "seconds": null, "environments": []}}',
    "environments that are none": '{"table1": {"networks": 1, "seconds": 1, "environments": [7]}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_damage_to_what_was_run_is_told_in_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(StiefelError) as error:
        _ = Results(tmp_path).environments
    assert f"{tmp_path / 'environment.json'} is damaged" in one_sentence(error)


def test_what_another_experiment_was_run_with_stays(tmp_path: Path) -> None:
    note = {"networks": 7, "seconds": 2.5, "environments": [{"device": "a", "engine": "x", "networks": 7}]}
    (tmp_path / "environment.json").write_text(json.dumps({"figure1": {**note, "note": "by hand"}}))
    results.note_environment(tmp_path, "signal", {"device": "b", "engine": "y"}, 1.26, 12)
    found = Results(tmp_path).environments
    assert found["figure1"] == {**note, "note": "by hand"}
    assert found["signal"] == {
        "networks": 12, "seconds": 1.3, "environments": [{"device": "b", "engine": "y", "networks": 12}]
    }  # fmt: skip
