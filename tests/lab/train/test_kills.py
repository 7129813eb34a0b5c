"""Several processes at once, and processes that are killed: none lost, none doubled."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from laboratory import small_cells, timeless, train_small

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

PROCESSES = multiprocessing.get_context("forkserver")
# Each worker is a process of its own, forked from one that has imported what takes long.
PROCESSES.set_forkserver_preload(["paper.registry", "pandas", "pytest"])
MANY = 120


def worker(out: Path, most: int, begun: Any) -> None:
    import torch

    torch.set_num_threads(1)
    begun.wait()
    train_small(out, MANY, most)


def start(out: Path, most: int, begun: Any) -> BaseProcess:
    process = PROCESSES.Process(target=worker, args=(out, most, begun))
    process.start()
    return process


def lines(out: Path) -> list[str]:
    """The cells of all lines of all files, as any reader would find them."""
    found = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(Cell.from_dict(record).key for record in found)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return timeless(train_small(tmp_path_factory.mktemp("uninterrupted"), MANY, 1))


def test_two_processes_may_write_at_once(tmp_path: Path, uninterrupted: list[Record]) -> None:
    begun = PROCESSES.Barrier(2)
    processes = [start(tmp_path, most, begun) for most in (2, 3)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    told: list[str] = []
    found = train_small(tmp_path, MANY, warn=told.append)
    assert told == []
    assert [record.cell.seed for record in found] == list(range(MANY))
    for one, other in zip(found, uninterrupted):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)


def test_killed_twenty_times(tmp_path: Path, uninterrupted: list[Record]) -> None:
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
        exitcode: int | None = -signal.SIGKILL
        while killed < 20 and exitcode == -signal.SIGKILL:
            process = start(out, 1, begun)
            begun.wait()
            process.join(moments.uniform(0, whole / 3))
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
        assert timeless(train_small(out, MANY, 1, told.append)) == uninterrupted
        assert lines(out) == sorted(cell.key for cell in small_cells(MANY)), "none lost, none doubled"
    assert told == []
