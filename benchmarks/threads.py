"""A stack on a CPU of several cores: every thread its own networks, beside all threads sharing every product."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch

from stiefel_init.lab.train import concurrency, training
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Outcome
from stiefel_init.lab.train.training import train

from . import timing
from .timing import Record

STACKS = ((12, 60, 64), (12, 5, 16), (2, 60, 64), (1, 60, 64), (1, 5, 1024))
"""Networks, depth, width."""
EPOCHS, ROUNDS = 1, 3


def shared(count: int, part: Any, progress: Callable[[int], None]) -> list[Any]:
    """All networks as one stack, its products shared by the threads."""
    return part(0, count, progress, lambda: None)


def timed(cells: list[Cell], tasks: Problems, way: Any) -> tuple[float, list[Outcome]]:
    with patch.object(training, "spread", way):
        start = time.perf_counter()
        found = train(cells, [tasks(cell) for cell in cells], torch.device("cpu"))[0]
        return time.perf_counter() - start, found


def measure(device: str) -> Iterator[Record]:
    count, tasks = os.cpu_count() or 1, Problems()
    torch.set_num_threads(count)
    record: Record = {"machine": timing.machine("cpu"), "load": os.getloadavg()[0], "seconds": []}
    ways = {"shared": shared, "own": concurrency.spread}
    for networks, depth, width in STACKS:
        cells = [Cell("digits", "he", depth, width, seed=seed, epochs=EPOCHS) for seed in range(networks)]
        torch.set_num_threads(1)
        expected = timed(cells, tasks, shared)[1]
        torch.set_num_threads(count)
        runs = [{name: timed(cells, tasks, way) for name, way in ways.items()} for _ in range(ROUNDS)]
        row: Record = {"networks": networks, "depth": depth, "width": width}
        for name in ways:
            row[name] = statistics.median(run[name][0] for run in runs)
            row[f"{name}, as with one thread"] = sum(a == b for a, b in zip(expected, runs[0][name][1]))
        record["seconds"].append(row)
        yield record


def tables(record: Record) -> list[str]:
    rows = [
        [
            f"{row['networks']} × {row['depth']} layers, {row['width']} wide",
            *(f"{row[way]:.2f}" for way in ("shared", "own")),
            *(f"{row[f'{way}, as with one thread']} of {row['networks']}" for way in ("shared", "own")),
        ]
        for row in record["seconds"]
    ]
    command = "`OMP_WAIT_POLICY=passive python -m benchmarks threads --write`"
    header = ["stack", "shared, s", "own, s", "shared: bits of one thread", "own: bits of one thread"]
    return [f"{command}, {timing.where(record)}, load {record['load']:.1f}:", "", *timing.markdown(header, rows)]


def part() -> list[str]:
    """The part of docs/scale.md."""
    return tables(timing.kept("threads-cpu"))[:-1]
