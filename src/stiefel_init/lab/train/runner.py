"""Run cells: group them into stacks, skip finished ones, train, and write records."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from ..._errors import StiefelError, unknown
from .. import files
from ..data import Dataset
from ..progress import Advance, counted, progress
from . import record as record_files
from .cell import Cell, digest, split_evenly, stack_key
from .network import Architecture
from .record import Record
from .stack import memory_per_cell
from .task import Task, Tasks
from .training import ENGINES, EngineName, pick_engine, test_epochs, train

DeviceName = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)
_MOST = {"cpu": 12, "cuda": 1056}  # networks in a stack; more are no faster, and a kill would lose more
_MEMORY_SHARE = 0.6  # of what is free


def run(
    cells: Sequence[Cell],
    *,
    out: Path | str | None = None,
    device: DeviceName = "auto",
    datasets: Mapping[str, Dataset] | None = None,
    directory: Path | None = None,
    most: int | None = None,
    engine: EngineName = "auto",
    title: str = "training",
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> list[Record]:
    """Train every cell that has no record yet, and return the records of all, in the order of `cells`.

    Args:
        cells: The networks to train.
        out: Directory of the records; rerun with the same one to resume. None writes nothing.
        device: `"auto"` uses a GPU if there is one.
        datasets: Your own data sets, by the name the cells use; within `out`, a name must keep its content.
        directory: Directory of the laboratory's data files.
        most: Networks to train at once; by default as many as fit in memory.
        engine: `"fused"` or `"graph"`; by default the fused one where possible.
        title: Title of the progress bar.
        warn: Receives a sentence for everything that goes wrong without ending the run.

    Returns:
        One record for each cell.

    Raises:
        StiefelError: for invalid data, devices, engines or directories, and for networks that do not fit in memory.

    >>> records = run([Cell("digits", depth=2, epochs=1)], device="cpu")
    >>> str(records[0].cell.scheme), records[0].metric.name, len(records[0].test_score)
    ('stiefel', 'accuracy', 1)
    """
    where = pick_device(device)
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    tasks = Tasks(datasets, directory)
    for cell in cells:
        pick_engine(engine, cell, tasks(cell), where)  # errors show before anything is written
    folder = None if out is None else files.prepare(Path(out))
    known = record_files.read(folder, warn) if folder else {}
    stacks = plan(list(dict.fromkeys(cells)), tasks, where, known, most)
    total = len(stacks)
    with progress(sum(work(cell, tasks(cell)) for stack in stacks for cell in stack), title) as advance:
        while stacks:
            stack = stacks.pop(0)
            place = f"{total - len(stacks)} of {counted(total, 'stack')}"
            keep = None if folder is None else folder / f"unfinished-{digest(stack)}.pt"
            records = _train(stack, tasks, where, engine, advance, place, keep)
            if records is None:
                _free(where)
                stacks[:0] = (halves := split_evenly(stack, (len(stack) + 1) // 2))
                total += len(halves) - 1
                warn(f"{len(stack)} networks did not fit in the memory of {where}; trying half as many at once.")
                continue
            if folder:
                record_files.write(folder, records)
                (folder / f"unfinished-{digest(stack)}.pt").unlink(missing_ok=True)
            known |= {record.cell: record for record in records}
            if where.type == "cuda":  # a collection takes longer than a small stack does on a CPU
                _free(where)
    return [known[cell] for cell in cells]


def _train(
    stack: list[Cell],
    tasks: Tasks,
    device: torch.device,
    engine: EngineName,
    advance: Advance,
    place: str,
    keep: Path | None,
) -> list[Record] | None:
    """The records of a stack; None, with its progress undone, if it does not fit in memory."""
    share = sum(work(cell, tasks(cell)) for cell in stack) / stack[0].epochs
    what = f"{place}: {counted(len(stack), 'network')} of depth {stack[0].depth} on {stack[0].dataset}"
    start, done = time.perf_counter(), 0

    def tell(epoch: int) -> None:
        nonlocal done
        advance(share * (epoch - done), what)
        done = epoch

    try:
        outcomes, used = train(stack, [tasks(cell) for cell in stack], device, tell, engine, keep)
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        if len(stack) == 1:
            raise StiefelError(
                f"One network of depth {stack[0].depth} does not fit in the memory of {device}; "
                "use a smaller batch, or fewer or narrower layers."
            ) from error
        advance(-share * done)
        return None
    seconds = (time.perf_counter() - start) / len(stack)
    made = record_files.environment(device, used)
    return [Record.of(cell, tasks(cell).metric, outcome, seconds, made) for cell, outcome in zip(stack, outcomes)]


def plan(
    cells: Sequence[Cell], tasks: Tasks, device: torch.device, done: Container[Cell], most: int | None = None
) -> list[list[Cell]]:
    """The stacks to train. Cells are grouped the same way whatever is done, so a resumed run repeats none."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        task = tasks(cell)
        shape = task.inputs, task.size, task.outputs, task.loss, task.scale
        groups.setdefault((stack_key(cell), shape), []).append(cell)
    stacks = [part for group in groups.values() for part in split_evenly(group, most or _fits(group[0], tasks, device))]
    unfinished = [[cell for cell in stack if cell not in done] for stack in stacks]
    return [stack for stack in unfinished if stack]


def _fits(cell: Cell, tasks: Tasks, device: torch.device) -> int:
    """How many networks like `cell` a stack may hold."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):  # not on every system
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    else:
        free = 4 << 30
    task = tasks(cell)
    training = pick_engine("auto", cell, task, device).memory(cell, task)
    fits = int(_MEMORY_SHARE * free / memory_per_cell(cell, task, training))
    return max(1, min(fits, _MOST[device.type]))


def work(cell: Cell, task: Task) -> float:
    """What training and testing a cell cost, in floating-point operations, the measure of progress.

    For each parameter: six for a row trained, two for a row tested, and for a step as much as sixty in the optimizer,
    which waits for memory.
    """
    steps = -(-task.size // (cell.batch or task.size)) * cell.epochs
    rows = 6.0 * task.size * cell.epochs + 2.0 * len(task.test_features) * len(test_epochs(cell))
    return Architecture.of(cell, task).parameters * (rows + 60.0 * steps)


def pick_device(name: DeviceName) -> torch.device:
    """The device of that name, if this machine has it."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise StiefelError("device='cuda', but PyTorch sees no GPU here; use 'cpu' or 'auto'.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _out_of_memory(error: Exception) -> bool:
    """On a CPU, only PyTorch's message says so."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
