"""Results: published tables and records of runs, loaded with the identity of every network, each network once."""

from __future__ import annotations

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
from paper.figures.algorithms import Algorithms
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
TABLES = sorted(path for path in OURS.glob("*.csv") if path.read_text().startswith("dataset,scheme,depth,width,"))


@pytest.fixture(scope="module")
def ours() -> Results:
    """All that we have published, read once."""
    return Results(OURS)


@pytest.fixture(scope="module")
def records(ours: Results) -> Mapping[Cell, Record]:
    """Its networks."""
    return ours.records


# Every network is found by its identity.


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_every_network_of_an_experiment_is_published(experiment: Trained, ours: Results) -> None:
    records = ours.records_of(experiment.label(quick=False))
    own = experiment.cells(experiment.seeds, records=records)
    if experiment.name == "cifar":  # its page says what is not measured yet
        own = [cell for cell in own if cell in records]
    assert [cell for cell in own if cell not in records] == []
    assert {one.cell for one in experiment.select(records)} >= set(own)


def test_what_was_run_is_told_for_every_line(ours: Results) -> None:
    lines = {path.stem: len(path.read_text().splitlines()) - 1 for path in TABLES}
    assert sum(lines.values()) == len(ours.records), "each is one network, and none has two"
    for name, count in lines.items():
        told = ours.environments[name]
        assert told["networks"] == sum(one["networks"] for one in told["environments"])
        assert told["networks"] >= count, "some were trained for two experiments and are published with one"


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
    first = published(written, tmp_path / "out")
    loaded = first.records
    assert len(loaded) == 60
    for one in written:
        again = loaded[one.cell]
        assert again.cell.key == one.cell.key
        assert (again.metric, again.score, again.diverged) == (one.metric, one.score, one.diverged)
        assert type(again.cell.width) is type(one.cell.width)
    assert {one.score for one in loaded.values() if one.diverged} == {0.0, math.inf}
    second = published(list(reversed(loaded.values())), tmp_path / "second")
    assert (first.place / "mine.csv").read_bytes() == (second.place / "mine.csv").read_bytes()


def test_tables_name_decay_dropout_and_schedule_where_a_network_has_them(tmp_path: Path) -> None:
    plain = Cell("wine", depth=2)
    cells = [plain, replace(plain, decay=1 / 3), replace(plain, dropout=0.1), replace(plain, schedule="cosine")]
    for name, chosen, more in (("old", cells[:1], ""), ("some", cells[:2], ",decay"), ("all", cells, None)):
        found = published([record(cell, 50.0) for cell in chosen], tmp_path / name)
        header = (found.place / "mine.csv").read_text().splitlines()[0]
        assert header == HEADER + (",decay,dropout,schedule" if more is None else more)
        assert {cell.key for cell in found.records} == {cell.key for cell in chosen}


def test_environments_are_counted(tmp_path: Path) -> None:
    made = [{"device": "a", "engine": "x"}, {"device": "b", "engine": "x"}, {"engine": "x", "device": "a"}]
    rows = [record(Cell("wine", seed=i), 50.0, environment=one, seconds=0.25) for i, one in enumerate(made)]
    assert published(rows, tmp_path / "out").environments == {
        "mine": {
            "networks": 3,
            "seconds": 0.8,
            "environments": [
                {"device": device, "engine": "x", "networks": count} for device, count in (("a", 2), ("b", 1))
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
    assert Table3().tables(Table3().select(loaded)) == Table3().tables(Table3().select(records))
    assert {len(one.scores) for one in Table3().compare(list(loaded.values()))} == {50}
    assert loaded[some[0]].train_loss == (0.5,), "the record of a run tells more than the table does"


# Directories that hold something else.


EVIDENCE: dict[str, Callable[[Path], Any]] = {
    "table1": lambda folder: Results(folder).records,
    "figure1": lambda folder: Figure1().evidence(Results(folder)),
    "signal": lambda folder: Signals().evidence(Results(folder)),
    "algorithms": lambda folder: Algorithms().evidence(Results(folder)),
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
LINE = f"mnist,he,10,64,relu,0,100,256,0.0003,adam,,,float32,{Cell('mnist').protocol},accuracy,97.66,"
NONSENSE = {
    "a word for a number": LINE.replace("10", "ten"),
    "no metric": LINE.replace("accuracy", "f1"),
    "no rate": LINE.replace("0.0003", ""),
    "a negative seed": LINE.replace("relu,0", "relu,-1"),
    "too short": LINE[:-2],
    "widths of other layers": LINE.replace(",64,", ",64 64,"),
    "a field without end": LINE.replace("he", "x" * 200_000),
}


@pytest.mark.parametrize("line", NONSENSE.values(), ids=NONSENSE)
def test_a_line_that_is_no_network_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"{HEADER}\n{LINE}\n{line}\n")
    with pytest.raises(StiefelError) as error:
        _ = Results(tmp_path).records
    place = 2 if len(line) > 100_000 else 3  # a field without end stops the reader before its line is counted
    assert re.search(rf"mine\.csv, line {place}, is damaged", one_sentence(error))


def test_published_networks_of_an_unknown_scheme_are_left_out(
    tmp_path: Path, own_scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of a run are: they may be sound where the scheme is registered."""
    rows = [record(Cell("wine", f"{own_scheme} 0.5", seed=seed), 50.0) for seed in range(3)]
    shutil.copy(OURS / "table2.csv", tmp_path)
    (tmp_path / "customers.csv").write_text("age,churn\n41,yes\n")  # a user's own table is passed over
    publish(Results(tmp_path), {"mine": rows}, [], tmp_path)
    assert len(Results(tmp_path).records) == 503
    forget(own_scheme)
    assert len(Results(tmp_path).records) == 500
    err = capsys.readouterr().err
    assert str(tmp_path / "mine.csv") in err
    assert f"scheme='{own_scheme} 0.5' is not known" in err


@pytest.mark.parametrize("experiment", [Figure1(), Signals(), Algorithms()], ids=lambda each: each.name)
def test_a_table_that_is_not_what_its_name_says_is_named(experiment: Experiment, tmp_path: Path) -> None:
    path = tmp_path / f"{experiment.name}.csv"
    header = (OURS / path.name).read_text().splitlines()[0]
    for text in ("a,b\n1,2\n", f"{header}\n{','.join('x' for _ in header.split(','))}\n"):
        path.write_text(text)
        with pytest.raises(StiefelError) as error:
            experiment.evidence(Results(tmp_path))
        assert path.name in one_sentence(error)


# What was run with what.

BROKEN = {
    "cut": '{"table1": {',
    "a deep nest": "[" * 100_000,
    "no device": '{"table1": {"networks": 1, "seconds": 1, "environments": [{"networks": 1}]}}',
    "environments that are none": '{"table1": {"networks": 1, "seconds": 1, "environments": [7]}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_damage_to_what_was_run_is_told_in_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(StiefelError) as error:
        _ = Results(tmp_path).environments
    assert f"{tmp_path / 'environment.json'} is damaged" in one_sentence(error)
