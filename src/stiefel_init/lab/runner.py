"""Run cells: group them into stacks, skip what is finished, train, and keep the records."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from .._errors import StiefelError, unknown
from . import records as keep
from .cells import Cell, split_evenly, stack_key
from .data import Dataset
from .engine import ENGINES, Outcome, Task, memory_per_cell, train
from .networks import Architecture
from .progress import progress
from .tasks import Tasks

DEVICES = ("auto", "cpu", "cuda")
_MOST = {"cpu": 12, "cuda": 1056}  # networks in a stack; more gain nothing there and would cost more to lose
_MEMORY_SHARE = 0.6  # of what is free


def run(
    cells: Sequence[Cell],
    *,
    out: Path | str | None = None,
    device: str = "auto",
    datasets: Mapping[str, Dataset] | None = None,
    directory: Path | None = None,
    most: int | None = None,
    engine: str = "auto",
    title: str = "training",
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> list[keep.Record]:
    """Train every cell that has no record yet, and return the records of all, in the order of `cells`.

    Args:
        out: directory of the records; a run that was cut off goes on from what it holds. None keeps nothing.
        device: `"auto"` takes a GPU where there is one.
        datasets: data sets of your own, by the name the cells use; in `out`, a name stands for one content.
        directory: where the laboratory's data sets lie.
        most: networks to train at once; by default as many as memory allows.
        engine: `"fused"` or `"graph"`; by default the fused one wherever it can.

    >>> records = run([Cell("digits", depth=2, epochs=1)], device="cpu")
    >>> records[0]["scheme"], len(records[0]["test_score"])
    ('stiefel', 1)
    """
    where = pick_device(device)
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    tasks = Tasks(datasets, directory)
    for cell in cells:
        tasks(cell)  # what is wrong with the data shows before anything is written
    folder = None if out is None else keep.prepare(Path(out))
    known = {Cell.from_dict(r).key: r for r in keep.read(folder, warn)} if folder else {}
    stacks = plan(list(dict.fromkeys(cells)), tasks, where, set(known), most)
    with progress(sum(work(cell, tasks(cell)) for stack in stacks for cell in stack), title) as advance:
        while stacks:
            stack = stacks.pop(0)
            share = sum(work(cell, tasks(cell)) for cell in stack) / stack[0].epochs
            what = f"{len(stack)} of {stack[0].dataset}, depth {stack[0].depth}"
            done = 0
            outcomes: list[Outcome] | None
            start = time.perf_counter()

            def tell(epoch: int, share: float = share, what: str = what) -> None:
                nonlocal done
                done = epoch
                advance(share, what)

            try:
                outcomes, used = train(stack, [tasks(cell) for cell in stack], where, tell, engine)
            except (MemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    raise
                if len(stack) == 1:
                    raise StiefelError(
                        f"One network of depth {stack[0].depth} does not fit the memory of {where}; "
                        "take a smaller batch, or fewer or narrower layers."
                    ) from error
                outcomes = None
            if outcomes is None:  # past the handler, where the failed stack's memory can be had again
                _free(where)
                advance(-share * done)
                stacks[:0] = split_evenly(stack, (len(stack) + 1) // 2)
                warn(f"{len(stack)} networks did not fit the memory of {where}; trying half as many at once.")
                continue
            seconds = (time.perf_counter() - start) / len(stack)
            made = keep.environment(where, used)
            fresh = [keep.record_of(cell, outcome, seconds, made) for cell, outcome in zip(stack, outcomes)]
            if folder:
                keep.write(folder, fresh)
            known |= {Cell.from_dict(record).key: record for record in fresh}
            if where.type == "cuda":  # a collection takes longer than a small stack does on a CPU
                _free(where)
    return [known[cell.key] for cell in cells]


def plan(
    cells: Sequence[Cell], tasks: Tasks, device: torch.device, done: set[str], most: int | None = None
) -> list[list[Cell]]:
    """The stacks to train. Which cells go together does not depend on what is done, so a resumed run repeats none."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        task = tasks(cell)
        shape = task.features.shape[1], task.size, task.outputs, task.loss, task.scale
        groups.setdefault((stack_key(cell), shape), []).append(cell)
    stacks = [part for group in groups.values() for part in split_evenly(group, most or _fits(group[0], tasks, device))]
    unfinished = [[cell for cell in stack if cell.key not in done] for stack in stacks]
    return [stack for stack in unfinished if stack]


def _fits(cell: Cell, tasks: Tasks, device: torch.device) -> int:
    """How many networks like `cell` a stack may hold."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):  # not on every system
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    else:
        free = 4 << 30
    fits = int(_MEMORY_SHARE * free / memory_per_cell(cell, tasks(cell), device))
    return max(1, min(fits, _MOST[device.type]))


def work(cell: Cell, task: Task) -> float:
    """Multiplications and additions of a cell's training, the measure of progress and of time."""
    net = Architecture((task.features.shape[1], *cell.hidden, task.outputs), cell.activation)
    return 6.0 * net.parameters * task.size * cell.epochs


def pick_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise StiefelError("device='cuda', but PyTorch sees no GPU here; use 'cpu' or 'auto'.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _out_of_memory(error: Exception) -> bool:
    """On a CPU, PyTorch says so in words alone."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
