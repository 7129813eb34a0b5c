"""A stack on a CPU of several cores: every thread its own networks, beside all threads sharing every product.

python benchmarks/threads.py [--write]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from _timing import machine, write_record

from stiefel_init.lab.train import concurrency, training
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Outcome
from stiefel_init.lab.train.training import train

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    parser.add_argument("--device", default="cpu", help="only cpu")
    options = parser.parse_args()
    count, tasks, rows = os.cpu_count() or 1, Problems(), []
    torch.set_num_threads(count)
    load = os.getloadavg()[0]
    for networks, depth, width in STACKS:
        cells = [Cell("digits", "he", depth, width, seed=seed, epochs=EPOCHS) for seed in range(networks)]
        torch.set_num_threads(1)
        expected = timed(cells, tasks, shared)[1]
        torch.set_num_threads(count)
        ways = {"shared": shared, "own": concurrency.spread}
        runs = [{name: timed(cells, tasks, way) for name, way in ways.items()} for _ in range(ROUNDS)]
        row: dict[str, Any] = {"networks": networks, "depth": depth, "width": width}
        for name in ways:
            row[name] = statistics.median(run[name][0] for run in runs)
            row[f"{name}, as with one thread"] = sum(a == b for a, b in zip(expected, runs[0][name][1]))
        rows.append(row)
        print(row)
    if options.write:
        write_record("threads-cpu", {"machine": machine("cpu"), "load": load, "seconds": rows})


if __name__ == "__main__":
    main()
