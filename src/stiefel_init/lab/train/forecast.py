"""How long a study would take: building, training and testing, measured on a few steps of each kind of stack."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from ...core.errors import StiefelError
from .. import files
from ..data import Dataset
from ..progress import counted, duration
from . import record as record_files
from .cell import Cell, stack_key
from .concurrency import spread
from .evaluation import evaluate
from .network import Architecture
from .problem import Problem, Problems
from .record import Record
from .runner import DeviceName, pick_device, plan
from .stack import ROWS, Stack
from .training import epochs_tested, pick_engine

MOST_LAYERS = 100
"""Of a deeper network so many are measured, and the rest is reckoned."""
MOMENT = 0.3
"""Seconds that a measurement takes, at least."""


class Forecast(NamedTuple):
    """What running some cells would do."""

    cells: int
    left: int
    """Those without a record."""
    stacks: int
    device: str
    seconds: float
    """About how long it would take; the time to start is counted even if nothing is left."""


def forecast(
    cells: Sequence[Cell],
    device: DeviceName,
    datasets: Mapping[str, Dataset],
    directory: Path | None,
    out: Path,
    most: int | None = None,
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    known: Mapping[Cell, Record] | None = None,
) -> Forecast:
    """What running the cells would do, from a few steps and a test of each kind of stack; `known` as in `run`."""
    where = pick_device(device)
    files.refuse_file(out)
    problems = Problems(datasets, directory)
    if known is None:
        known = record_files.read(out, warn, touch=False) if out.is_dir() else {}
    stacks = plan(cells, problems, where, known, most)
    seconds = time.process_time()  # starting up takes as long again
    costs: dict[object, Cost] = {}
    for stack in stacks:
        cell, problem = stack[0], problems(stack[0])
        kind = stack_key(replace(cell, epochs=1)), problem.inputs, len(problem.test_features), len(stack)
        if kind not in costs:
            costs[kind] = _measure(stack, problems, where)
        seconds += costs[kind].of(cell, problem)
    return Forecast(len(cells), sum(map(len, stacks)), len(stacks), where.type, seconds)


def show(networks: Forecast | None, others: Mapping[str, float | None], out: Path, *, as_json: bool = False) -> None:
    """Print a forecast of networks, if there are any, and the seconds of what else would be run, where known."""
    known = [seconds for seconds in others.values() if seconds is not None]
    if networks is not None and networks.left:
        known.append(networks.seconds)
    if as_json:
        counts = None if networks is None else networks._asdict()
        print(json.dumps({"seconds": sum(known), "networks": counts, "others": others, "out": str(out)}, indent=1))
        return
    if networks is not None:
        print(
            f"{counted(networks.cells, 'network')}, {networks.cells - networks.left} of them finished; "
            f"{networks.left} to train on {networks.device}, in {counted(networks.stacks, 'stack')}."
        )
    for name in others:
        print(f"{name} keeps no trained networks; it would be computed from scratch.")
    if known:
        unknown = [name for name, seconds in others.items() if seconds is None]
        rest = f", {' and '.join(unknown)} not counted," if unknown else ""
        print(f"This should take about {duration(sum(known))}{rest} if the machine stays as busy as it is.")
    print(f"Records would go to {out}. Nothing was run or written.")


class Cost(NamedTuple):
    """Seconds of a stack's parts."""

    start: float
    epoch: float
    """What an epoch takes besides its steps."""
    step: float
    test: float
    more: float = 0.0
    """What the last test takes besides: it asks for more than the others."""

    def of(self, cell: Cell, problem: Problem) -> float:
        """Seconds of the whole stack of a cell."""
        epochs = cell.epochs * (self.epoch + problem.steps(cell.batch) * self.step)
        return self.start + epochs + len(epochs_tested(cell)) * self.test + self.more


def _measure(stack: Sequence[Cell], problems: Problems, device: torch.device) -> Cost:
    """The cost of a stack, measured as it trains: on a CPU, each thread its own networks, and the slowest counts."""
    if device.type != "cpu":
        return _measure_part(stack, problems, device)

    def part(first: int, last: int, tell: object, check: object) -> list[Cost]:
        return [_measure_part(stack[first:last], problems, device)]

    return Cost(*map(max, zip(*spread(len(stack), part, lambda epoch: None))))


def _measure_part(stack: Sequence[Cell], problems: Problems, device: torch.device) -> Cost:
    """From some steps of it and a test of some rows; of networks too deep to wait for, a part."""
    cell = stack[0]
    depth = min(cell.depth, MOST_LAYERS)
    width = cell.width if isinstance(cell.width, int) else cell.width[:depth]
    whole = [problems(each) for each in stack]
    # One array for all problems that share it: networks that are tested on the same rows are tested together.
    parts = {id(problem.test_features): problem.test_features[:ROWS] for problem in whole}
    learned = [replace(t, test_features=parts[id(t.test_features)], test_targets=t.test_targets[:ROWS]) for t in whole]
    start = _now(device)
    state = Stack([replace(each, depth=depth, width=width) for each in stack], learned, device)
    engine = pick_engine("auto", cell, learned[0], device)(state)
    begun = _now(device) - start
    try:
        engine.first_steps(1)
        step = timed(lambda: engine.first_steps(1), device)
        epoch = timed(lambda: state.shuffle(0), device)
        rows = len(whole[0].test_features) / len(learned[0].test_features)
        test = timed(lambda: evaluate(state), device)
        more = max(timed(lambda: evaluate(state, last=True), device) - test, 0.0)
    finally:
        engine.close()
    deeper = Architecture.of(cell, whole[0]).parameters / state.net.parameters
    noisy = min(more, test)  # the rows that are tested with noise are as many, whatever the size of the test part
    return Cost(begun * deeper, epoch, step * deeper, rows * test * deeper, (noisy + rows * (more - noisy)) * deeper)


def timed(act: Callable[[], object], device: torch.device) -> float:
    """Seconds of an act: the median of as many as fit into a moment, so that a hiccup of the machine does not count.

    At most a hundred: an act of no time, over and over, would keep Python's lock from other threads that measure.
    """
    times: list[float] = []
    while not times or (len(times) < 100 and sum(times) < MOMENT):
        start = _now(device)
        act()
        times.append(_now(device) - start)
    return statistics.median(times)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measured_here(on: str) -> None:
    """Refuse to forecast for another machine than this one."""
    if on != "local":
        raise StiefelError(f"--dry-run measures this machine, not --on {on}; leave one of them out.")
