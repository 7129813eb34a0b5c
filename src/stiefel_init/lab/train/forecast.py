"""How long a study would take, from a few real steps of each stack."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from .. import files
from ..data import Dataset
from ..progress import counted, duration
from . import record as record_files
from .cell import Cell
from .runner import DeviceName, pick_device, plan, work
from .stack import Stack
from .task import Tasks
from .training import pick_engine


def forecast(
    cells: Sequence[Cell],
    device: DeviceName,
    datasets: Mapping[str, Dataset],
    directory: Path | None,
    out: Path,
    most: int | None = None,
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> str:
    """What running the cells would do, and about how long it would take, from a few real steps of each stack."""
    where = pick_device(device)
    files.refuse_file(out)
    tasks = Tasks(datasets, directory)
    done = record_files.read(out, warn, touch=False) if out.is_dir() else {}
    stacks = plan(cells, tasks, where, done, most)
    left = sum(map(len, stacks))
    lines = [
        f"{counted(len(cells), 'network')}, {len(cells) - left} of them finished; "
        f"{left} to train on {where}, in {counted(len(stacks), 'stack')}."
    ]
    seconds = 0.0
    timed: dict[object, float] = {}
    for stack in stacks:
        sample = [_short(cell) for cell in stack]
        kind = sample[0].hidden, sample[0].activation, len(sample)
        if kind not in timed:
            timed[kind] = _seconds_per_work(sample, tasks, where)
        seconds += timed[kind] * sum(work(cell, tasks(cell)) for cell in stack)
    if stacks:
        lines.append(f"This should take about {duration(seconds)}.")
    lines.append(f"Records would go to {out}. Nothing was run or written.")
    return "\n".join(lines)


def _short(cell: Cell) -> Cell:
    """A network whose steps cost the same per layer but that is quick to build: at most 100 layers, a simple scheme."""
    width = cell.width if isinstance(cell.width, int) else cell.width[:100]
    return replace(cell, scheme="he", depth=min(cell.depth, 100), width=width)


def _seconds_per_work(stack: Sequence[Cell], tasks: Tasks, device: torch.device) -> float:
    """Time of a unit of work, from one warm-up and two timed steps of the stack itself."""
    learned = [tasks(cell) for cell in stack]
    state = Stack(stack, learned, device)
    engine = pick_engine("auto", stack[0], learned[0], device)(state)
    try:
        engine.first_steps(1)
        start = time.perf_counter()
        engine.first_steps(2)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / 2
    finally:
        engine.close()
    per_row = sum(work(cell, tasks(cell)) / tasks(cell).size / cell.epochs for cell in stack)
    return seconds / (per_row * state.batch)
