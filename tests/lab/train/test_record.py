"""Records: what they hold, kept over runs, and verified when read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from laboratory import MINE, file_names, small_cells, timeless, train_small
from paper.results import Results

from stiefel_init.lab.train import record as keep
from stiefel_init.lab.train import runner
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import ACCURACY, RMSE
from stiefel_init.lab.train.record import Outcome, Record
from stiefel_init.lab.train.runner import foresee, run
from stiefel_init.lab.train.training import train
from stiefel_init.schemes import forget


def no_training(*args: Any) -> None:
    raise AssertionError("trained again")


# What a record holds.


def test_a_stack_is_one_file_that_pandas_reads_in_one_line(tmp_path: Path) -> None:
    found = train_small(tmp_path, 4, most=2)
    assert [re.fullmatch(r"networks-\w+\.jsonl", name) is not None for name in file_names(tmp_path)] == [True] * 2
    frame = pd.concat(pd.read_json(path, lines=True) for path in sorted(tmp_path.glob("*.jsonl"))).set_index("seed")
    names = {"engine", "device", "stiefel_init", "commit", "source", "python", "torch", "numpy"}
    for record in found:
        row = frame.loc[record.cell.seed]
        assert (row["score"], row["train_loss"]) == (pytest.approx(record.score), pytest.approx(record.train_loss))
        assert (row["dataset"], row["scheme"], row["depth"], row["metric"]) == ("mine", "stiefel", 2, "accuracy")
        assert set(row["environment"]) == names, "where it comes from"
        assert row["environment"]["engine"] == "graph"
        assert len(row["environment"]["source"]) == 40


def test_a_network_that_diverged_has_the_worst_score_and_null_for_what_is_not_finite(tmp_path: Path) -> None:
    wild = [Cell("wine", "he", depth=2, width=5, epochs=3, rate=1e30, optimizer="sgd")]
    found = run(wild, out=tmp_path, device="cpu")[0]

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    line = json.loads(next(tmp_path.glob("*.jsonl")).read_text(), parse_constant=refuse)
    assert found.diverged == line["diverged"] == 1 + next(i for i, v in enumerate(line["train_loss"]) if v is None)
    assert str(keep.read(tmp_path, no_training)) == str({wild[0]: found}), "by its text, since nan is not itself"
    lost = Outcome(math.nan, [math.nan], [math.nan], [1], [math.nan], 1)
    for metric, worst in ((ACCURACY, 0.0), (RMSE, math.inf)):
        record = Record.of(wild[0], metric, lost, 1.0, {})
        assert (record.score, record.diverged) == (metric.worst, 1) == (worst, 1)
        assert record.to_dict()["score"] == (None if metric is RMSE else 0.0)
        assert Record.from_dict(json.loads(json.dumps(record.to_dict()))).score == worst
    assert RMSE.better(3.0) > RMSE.better(4.0)
    assert ACCURACY.better(4.0) > ACCURACY.better(3.0)


def test_a_record_is_what_its_file_says() -> None:
    cell = Cell("wine", "rotation 0.03", 3, (8, 4, 2), batch=None, rate=1 / 3, alpha=2.0)
    outcome = Outcome(2 / 3, [1 / 3, math.inf], [0.1, 1e-9 / 7], [1, 2], [0.0, 2 / 3], 2)
    record = Record.of(cell, RMSE, outcome, 1 / 7, {"device": "here"})
    again = Record.from_dict(json.loads(json.dumps(record.to_dict())))
    assert (str(again), again.cell) == (str(record), cell), "the rate has all its digits"
    assert (again.score, again.train_score, again.seconds) == (0.6666667, (0.1, 1.428571e-10), 0.1428571)
    assert again.train_loss[0] == 0.3333333
    assert math.isnan(again.train_loss[1])


def test_what_is_read_is_what_was_returned(tmp_path: Path) -> None:
    odd = [replace(cell, dataset="größe\u2028\udc80.csv", width=(5, 3)) for cell in small_cells(2)]
    first = run(odd, out=tmp_path, device="cpu", datasets={odd[0].dataset: MINE["mine"]})
    again = run(odd, out=tmp_path, device="cpu", datasets={odd[0].dataset: MINE["mine"]})
    assert first == again
    assert first[0].cell.width == (5, 3)


# Going on.


def test_only_new_cells_are_trained_each_once_and_records_come_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_small(tmp_path, 3)
    trained: list[Cell] = []

    def watch(stack: Sequence[Cell], *rest: Any) -> tuple[list[Outcome], str]:
        trained.extend(stack)
        return train(stack, *rest)

    monkeypatch.setattr(runner, "train", watch)
    cells = [*small_cells(2, scheme="he"), *small_cells(5), small_cells(1)[0]]
    found = run(cells, out=tmp_path, device="cpu", datasets=MINE)
    assert [record.cell for record in found] == cells
    assert trained == [*cells[:2], *cells[5:7]]
    before = file_names(tmp_path)
    monkeypatch.setattr(runner, "train", no_training)
    assert run(cells, out=tmp_path, device="cpu", datasets=MINE) == found
    assert file_names(tmp_path) == before


# Damage.


def change_a_score(text: str) -> str:
    record = json.loads(text.splitlines()[0])
    return text.replace(f'"score": {record["score"]}', f'"score": {record["score"] + 1}', 1)


DAMAGES: dict[str, Callable[[str], str]] = {
    "cut": lambda text: text[: len(text) // 2],
    "lines swapped": lambda text: "".join(reversed(text.splitlines(keepends=True))),
    "number changed": change_a_score,
    "no record": lambda text: '{"a": 1}\n[2]\n',
    "no text": lambda text: "\udcff\udcfe",
    "a deep nest": lambda text: "[" * 100_000 + "]" * 100_000 + "\n",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_set_aside_and_made_again(damage: Callable[[str], str], tmp_path: Path) -> None:
    first = train_small(tmp_path)
    victim = sorted(tmp_path.glob("*.jsonl"))[0]
    text = victim.read_text()
    broken = damage(text).encode(errors="surrogateescape")
    assert broken != text.encode()
    victim.write_bytes(broken)
    told: list[str] = []
    again = train_small(tmp_path, warn=told.append)
    assert timeless(again) == timeless(first)
    assert len(told) == 1
    assert str(victim) in told[0]
    aside = victim.with_name(victim.name + ".damaged")
    assert aside.name in told[0]
    assert aside.read_bytes() == broken
    assert len(keep.read(tmp_path, no_training)) == 4


def test_looking_at_records_names_damage_and_moves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_small(tmp_path)
    victim = sorted(tmp_path.glob("*.jsonl"))[0]
    victim.write_text("{}")
    before = file_names(tmp_path)
    found = foresee(small_cells(4), tmp_path, "cpu", MINE, most=2)
    assert (found["cells"], found["left"]) == (4, 2)
    assert victim.name in capsys.readouterr().err
    assert len(Results(tmp_path).records) == 2
    assert victim.name in capsys.readouterr().err
    assert file_names(tmp_path) == before
    train_small(tmp_path)
    assert victim.name in capsys.readouterr().err
    assert file_names(tmp_path) != before, "training makes it again"


# Networks that are not known here.


def test_networks_of_an_unknown_scheme_are_left_out_and_left_in_place(tmp_path: Path, own_scheme: str) -> None:
    known = train_small(tmp_path)
    cells = [replace(cell, scheme=f"{own_scheme} 0.5") for cell in small_cells(2)]
    own = run(cells, out=tmp_path, device="cpu", datasets=MINE)
    before = file_names(tmp_path)
    assert keep.read(tmp_path, no_training) == {record.cell: record for record in [*known, *own]}
    forget(own_scheme)
    told: list[str] = []
    assert list(keep.read(tmp_path, told.append).values()) == known
    assert file_names(tmp_path) == before, "it may be sound where the scheme is registered"
    (sentence,) = told
    path = re.escape(str(tmp_path))
    assert re.fullmatch(rf".*{path}/networks-.*scheme='{own_scheme} 0.5' is not known.*[.]", sentence), "one line"
