"""Records: whole or not there, kept over kills, verified when read, and never doubled."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stiefel_init import StiefelError
from stiefel_init.lab import pictures, records, results, runner, study
from stiefel_init.lab.cells import Cell
from stiefel_init.lab.data import Dataset
from stiefel_init.lab.page import Page
from stiefel_init.lab.runner import run

MINE = {
    "mine": Dataset(
        "mine", "classification", np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3, 3, train_rows=48
    )
}
LINUX = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


def cells(count: int, **options) -> list[Cell]:
    return [Cell("mine", depth=2, width=5, seed=seed, epochs=2, batch=16, **options) for seed in range(count)]


def go(out: Path, count: int = 4, most: int = 2, warn=None) -> list[records.Record]:
    told = {} if warn is None else {"warn": warn}
    return run(cells(count), out=out, device="cpu", datasets=MINE, most=most, **told)


def timeless(found: list[records.Record]) -> list[records.Record]:
    """The records but for how long they took, and for the commit, which may be another while one works on the code."""
    return [{**record, "seconds": None, "environment": {**record["environment"], "commit": None}} for record in found]


def no_training(*args) -> None:
    raise AssertionError("trained again")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What a record holds.


def test_a_stack_is_one_file_that_pandas_reads_in_one_line(tmp_path: Path) -> None:
    found = go(tmp_path, 4, most=2)
    assert len(files(tmp_path)) == 2
    frame = pd.concat(pd.read_json(path, lines=True) for path in sorted(tmp_path.glob("*.jsonl")))
    assert sorted(frame["seed"]) == [0, 1, 2, 3]
    for record in found:
        row = frame[frame["seed"] == record["seed"]].iloc[0]
        assert row["score"] == pytest.approx(record["score"])
        assert row["train_loss"] == pytest.approx(record["train_loss"])
        assert (row["dataset"], row["scheme"], row["depth"]) == ("mine", "stiefel", 2)


def test_every_record_tells_where_it_comes_from(tmp_path: Path) -> None:
    go(tmp_path)
    lines = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == 4
    for line in lines:
        environment = line["environment"]
        assert set(environment) == {"engine", "device", "stiefel_init", "commit", "python", "torch", "numpy"}
        assert environment["engine"] == "graph"
        assert environment["device"].startswith("cpu")
        assert line["precision"] == "float32"
        assert line["protocol"] == cells(1)[0].protocol


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    wild = [Cell("wine", "he", depth=2, width=5, epochs=3, rate=1e30, optimizer="sgd")]
    found = run(wild, out=tmp_path, device="cpu")[0]

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    line = json.loads(next(tmp_path.glob("*.jsonl")).read_text(), parse_constant=refuse)
    assert found["diverged"] == line["diverged"] == 1 + next(i for i, v in enumerate(line["train_loss"]) if v is None)
    assert records.read(tmp_path, no_training) == [found]


def test_what_is_read_is_what_was_returned(tmp_path: Path) -> None:
    odd = [replace(cell, dataset="größe\u2028\udc80.csv", width=(5, 3)) for cell in cells(2)]
    first = run(odd, out=tmp_path, device="cpu", datasets={odd[0].dataset: MINE["mine"]})
    again = run(odd, out=tmp_path, device="cpu", datasets={odd[0].dataset: MINE["mine"]})
    assert first == again
    assert first[0]["width"] == [5, 3]


# Going on.


def test_finished_cells_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = go(tmp_path)
    before = files(tmp_path)
    monkeypatch.setattr(runner, "train", no_training)
    assert go(tmp_path) == first
    assert files(tmp_path) == before


def test_only_new_cells_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(tmp_path, 3)
    trained = []
    train = runner.train
    monkeypatch.setattr(runner, "train", lambda stack, *rest: (trained.extend(stack), train(stack, *rest))[1])
    assert len(go(tmp_path, 5)) == 5
    assert [cell.seed for cell in trained] == [3, 4]


def test_results_of_two_machines_merge_by_copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [*cells(3), *cells(3, scheme="he")]
    for name, part in (("a", both[:3]), ("b", both[3:])):
        run(part, out=tmp_path / name, device="cpu", datasets=MINE)
    for path in (tmp_path / "b").glob("*.jsonl"):
        os.replace(path, tmp_path / "a" / path.name)
    monkeypatch.setattr(runner, "train", no_training)
    assert [r["scheme"] for r in run(both, out=tmp_path / "a", datasets=MINE)] == ["stiefel"] * 3 + ["he"] * 3


# Damage.


def cut(text: str) -> str:
    return text[: len(text) // 2]


def lose_a_line(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def swap_lines(text: str) -> str:
    return "".join(reversed(text.splitlines(keepends=True)))


def change_a_score(text: str) -> str:
    record = json.loads(text.splitlines()[0])
    return text.replace(f'"score": {record["score"]}', f'"score": {record["score"] + 1}', 1)


DAMAGES = {
    "cut": cut,
    "line lost": lose_a_line,
    "lines swapped": swap_lines,
    "number changed": change_a_score,
    "empty": lambda text: "",
    "no record": lambda text: '{"a": 1}\n[2]\n',
    "no text": lambda text: "\udcff\udcfe",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_set_aside_and_made_again(damage, tmp_path: Path) -> None:
    first = go(tmp_path)
    victim = sorted(tmp_path.glob("*.jsonl"))[0]
    text = victim.read_text()
    broken = damage(text).encode(errors="surrogateescape")
    assert broken != text.encode()
    victim.write_bytes(broken)
    told: list[str] = []
    again = go(tmp_path, warn=told.append)
    assert timeless(again) == timeless(first)
    assert len(told) == 1
    assert str(victim) in told[0]
    aside = victim.with_name(victim.name + ".damaged")
    assert aside.name in told[0]
    assert aside.read_bytes() == broken
    assert len(records.read(tmp_path, no_training)) == 4


def test_damage_is_told_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    go(tmp_path)
    victim = sorted(tmp_path.glob("*.jsonl"))[0]
    victim.write_text("{}")
    go(tmp_path)
    assert victim.name in capsys.readouterr().err


def test_looking_at_records_names_damage_and_moves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    go(tmp_path)
    victim = sorted(tmp_path.glob("*.jsonl"))[0]
    victim.write_text("{}")
    before = files(tmp_path)
    text = study.forecast(cells(4), "cpu", MINE, None, tmp_path, 2)
    assert text.startswith("4 networks, 2 of them finished; 2 to train")
    assert victim.name in capsys.readouterr().err
    assert len(results.load(tmp_path)) == 2
    assert victim.name in capsys.readouterr().err
    assert files(tmp_path) == before


def test_another_process_may_have_set_the_damage_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train-0.jsonl").write_text("{}")

    def gone(source: Path, target: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "replace", gone)
    told: list[str] = []
    assert records.read(tmp_path, told.append) == []
    assert "could not be set aside" in told[0]


# All or nothing.


def test_a_file_is_complete_and_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    replace_file, sync = os.replace, os.fsync

    def watch(source: Path, target: Path) -> None:
        assert len(records.read_file(source)) == 4
        assert not Path(target).exists()
        assert not Path(source).match("*.jsonl"), "no reader takes it for a record"
        events.append("rename")
        replace_file(source, target)

    monkeypatch.setattr(os, "fsync", lambda file: (events.append("sync"), sync(file))[1])
    monkeypatch.setattr(os, "replace", watch)
    go(tmp_path, most=4)
    assert events == ["sync", "rename"]
    assert len(files(tmp_path)) == 1


def test_ctrl_c_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path)
    assert files(tmp_path) == []


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files may hold 600 bytes; what goes beyond fails as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_told_in_one_sentence_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    with pytest.raises(StiefelError, match=r"could not be written \(File too large\)"):
        go(tmp_path)
    figure, axes = pictures._figure(1)
    axes[0, 0].plot([0, 1])
    with pytest.raises(StiefelError, match="could not be written"):
        pictures.save(figure, tmp_path / "picture.png")
    page = Page("A page")
    page.text("long " * 500)
    with pytest.raises(StiefelError, match="could not be written"):
        page.write(tmp_path / "index.html")
    assert files(tmp_path) == []


def test_what_was_finished_before_the_disk_was_full_is_kept(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first = go(tmp_path, 2)
    request.getfixturevalue("full_disk")
    with pytest.raises(StiefelError):
        go(tmp_path, 4)
    assert len(records.read(tmp_path, no_training)) == len(first) == 2


def test_an_output_directory_that_is_a_file_or_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(StiefelError, match="file is a file; give a directory"):
        go(file)
    with pytest.raises(StiefelError, match=r"cannot be written to \(Not a directory\)"):
        go(file / "below")
    assert file.read_text() == "mine"


@LINUX
def test_an_output_directory_that_is_not_writable() -> None:
    with pytest.raises(StiefelError, match="/proc/stiefel cannot be written to"):
        go(Path("/proc/stiefel"))


def test_a_mistake_in_the_cells_makes_no_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(StiefelError, match="nothing-known"):
        run([Cell("nothing-known")], out=out, device="cpu")
    assert not out.exists()


# Several processes, and processes that are killed.

PROCESSES = multiprocessing.get_context("forkserver")
# Each worker is a process of its own, forked from one that has imported what takes long.
PROCESSES.set_forkserver_preload(["stiefel_init.lab.reproduce", "pandas", "pytest"])
MANY = 120


def worker(out: Path, most: int, begun) -> None:
    import torch

    torch.set_num_threads(1)
    begun.wait()
    go(out, MANY, most)


def start(out: Path, most: int, begun) -> multiprocessing.Process:
    process = PROCESSES.Process(target=worker, args=(out, most, begun))
    process.start()
    return process


def lines(out: Path) -> list[str]:
    """The cells of all lines of all files, as any reader would find them."""
    found = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(Cell.from_dict(record).key for record in found)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[records.Record]:
    return timeless(go(tmp_path_factory.mktemp("uninterrupted"), MANY, 1))


def test_two_processes_may_write_at_once(tmp_path: Path, uninterrupted: list[records.Record]) -> None:
    begun = PROCESSES.Barrier(2)
    processes = [start(tmp_path, most, begun) for most in (2, 3)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    told: list[str] = []
    found = go(tmp_path, MANY, warn=told.append)
    assert told == []
    assert [r["seed"] for r in found] == list(range(MANY))
    for one, other in zip(found, uninterrupted):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)


def test_killed_twenty_times(tmp_path: Path, uninterrupted: list[records.Record]) -> None:
    moments = random.Random(0)
    begun = PROCESSES.Barrier(2)
    process = start(tmp_path / "timed", 1, begun)
    begun.wait()
    began = time.monotonic()
    process.join(120)
    whole = time.monotonic() - began
    assert process.exitcode == 0

    kept: dict[Path, list[int]] = {}  # a run that ends before its twentieth kill is followed by another
    killed = 0
    while killed < 20:
        out = tmp_path / f"after {killed} kills"
        kept[out] = [0]
        exitcode = -signal.SIGKILL
        while killed < 20 and exitcode == -signal.SIGKILL:
            process = start(out, 1, begun)
            begun.wait()
            process.join(moments.uniform(0, whole / 8))
            process.kill()
            process.join()
            exitcode = process.exitcode
            assert exitcode in (0, -signal.SIGKILL)
            killed += exitcode != 0
            kept[out].append(len(lines(out)))

    assert len({count for counts in kept.values() for count in counts}) > 3, "it was killed at work"
    told: list[str] = []
    for out, counts in kept.items():
        assert counts == sorted(counts), "what was finished stays"
        assert timeless(go(out, MANY, 1, told.append)) == uninterrupted
        assert lines(out) == sorted(cell.key for cell in cells(MANY)), "none lost, none doubled"
    assert told == []
