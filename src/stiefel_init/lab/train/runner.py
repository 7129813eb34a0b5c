"""Run cells: group them into stacks, skip finished ones, train here or on a cluster, and write records."""

from __future__ import annotations

import gc
import math
import os
import platform
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from ...core.errors import StiefelError, unknown
from ...torch.sampling.tensors import Precision, products
from .. import files
from ..data import Dataset
from ..progress import Advance, counted, progress
from . import record as record_files
from .cell import Cell, digest, split_evenly, stack_key
from .cluster import ClusterSpec, Dispatch, Kind, NodeSettings, connected, pickle_registered, reach
from .concurrency import concurrent_stacks
from .convolutional import Blueprint, check_scheme, size_of
from .family import PERCEPTRON, DeviceName, PrecisionName
from .fused import FusedEngine
from .modules import SlotEngine
from .problem import Problem, Problems
from .record import Outcome, Record
from .stack import BINS, ROWS, Engine
from .training import ENGINES, EngineName, epochs_tested, pick_engine, train
from .watched import Watching

DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)
_MOST = {"cpu": 12, "cuda": 1056}  # networks in a stack; more are no faster, a kill would lose more
_EACH_THREAD = 6  # networks for each thread of a CPU with many
_CONCURRENT = 4  # stacks of the fused engine side by side; found by measurement on an H200
_SIDE_BY_SIDE = 5  # modules on a GPU; on a CPU one for each thread
_MEMORY_SHARE = 0.6  # of what is free, for all stacks that are trained side by side
_SHOWN = 5  # networks that are named in a sentence about what failed
_PRODUCTS: dict[PrecisionName, Precision] = {"float32": "ieee", "tf32": "tf32", "bfloat16": "tf32"}


def run(
    cells: Sequence[Cell],
    *,
    out: Path | str | None = None,
    device: DeviceName = "auto",
    datasets: Mapping[str, Dataset] | None = None,
    directory: Path | None = None,
    most: int | None = None,
    engine: EngineName = "auto",
    on: str = "local",
    title: str = "training",
    watching: Watching | None = None,
    known: Mapping[Cell, Record] | None = None,
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
        engine: `"fused"` or `"graph"`; by default the fused one where possible. Of networks that are no perceptrons,
            `"slots"`.
        on: `"local"` trains on this machine, `"ray"` or `"ray://HOST:PORT"` on a Ray cluster, one task per stack.
        title: Title of the progress bar.
        watching: Which networks to watch while they train, and where their histories go; not on a cluster.
        known: The records of `out`, if you read them before; by default they are read.
        warn: Receives a sentence for everything that goes wrong without ending the run.

    Raises:
        StiefelError: for invalid data, devices, engines, directories or clusters, and for networks that do not fit in
            memory or, on a cluster, could not be trained.

    >>> records = run([Cell("digits", depth=2, epochs=1)], device="cpu")
    >>> str(records[0].cell.scheme), records[0].metric.name, len(records[0].test_score)
    ('stiefel', 'accuracy', 1)
    """
    spec = ClusterSpec.of(on)
    where = pick_device(device) if spec is None else None
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if watching is not None:
        if spec is not None:
            raise StiefelError(
                f'on="{on}" trains on other machines, which cannot be watched from here; use on="local".'
            )
        files.prepare(watching.folder)
    if spec is not None:
        reach(spec)
    problems = Problems(datasets, directory)
    check(cells, problems, where, engine)  # errors show before anything is written
    with ExitStack() as stack:
        dispatch = (
            None if spec is None else Dispatch(stack.enter_context(connected(spec)), spec, device, train_on_node, warn)
        )
        folder = None if out is None else files.prepare(Path(out))
        done = dict(known if known is not None else record_files.read(folder, warn) if folder else {})
        each = list(dict.fromkeys(cells))
        left = [cell for cell in each if cell not in done]
        advance = stack.enter_context(progress(sum(work(cell, problems(cell)) for cell in left), title))
        if where is not None:
            trainer = LocalTrainer(problems, where, engine, warn, advance, folder, watching)
            finished = trainer.run(plan(each, problems, where, done, most))
        else:
            assert dispatch is not None
            finished = _on_cluster(dispatch, left, problems, most, engine, advance)
        for records in stack.enter_context(closing(finished)):  # which ends before the connection does
            if folder:
                record_files.write(folder, records)
            done |= {record.cell: record for record in records}
    return [done[cell] for cell in cells]


def foresee(
    cells: Sequence[Cell],
    out: Path,
    device: DeviceName = "auto",
    datasets: Mapping[str, Dataset] | None = None,
    directory: Path | None = None,
    most: int | None = None,
    known: Mapping[Cell, Record] | None = None,
) -> dict[str, Any]:
    """What `run` would do, in numbers, for `--dry-run`; nothing is written."""
    where = pick_device(device)
    if known is None:
        known = record_files.read(out, lambda text: print(text, file=sys.stderr), touch=False) if out.is_dir() else {}
    stacks = plan(cells, Problems(datasets, directory), where, known, most)
    return {"cells": len(cells), "left": sum(map(len, stacks)), "stacks": len(stacks), "device": where.type}


def check(cells: Sequence[Cell], problems: Problems, device: torch.device | None, engine: EngineName = "auto") -> None:
    """Refuse cells that cannot be trained: by their data, by the engine, or for want of memory on a known device."""
    for cell in cells:
        problem = problems(cell)
        kind = pick_engine(engine, cell, problem, device or torch.device("cpu"))
        if kind is SlotEngine:
            check_scheme(Blueprint.of(cell, problem), cell.scheme)
        if device is not None and _memory_per_cell(cell, problem, kind) > _memory(device)[1]:
            raise _too_large(cell, device)


@dataclass
class LocalTrainer:
    """Trains stacks on this machine, which may be a node of a cluster. What does not fit in memory is halved."""

    problems: Problems
    device: torch.device
    engine: EngineName
    warn: Callable[[str], None]
    advance: Advance = lambda work, what="": None
    folder: Path | None = None  # where a stack that was killed finds what it needs to go on
    watching: Watching | None = None

    def run(self, stacks: Sequence[list[Cell]]) -> Generator[list[Record], None, None]:
        """The records of each stack as it ends."""
        self._lock, self._begun, self._total = threading.Lock(), 0, len(stacks)
        groups: dict[tuple[PrecisionName, int], deque[list[Cell]]] = {}
        # Side by side the longest first, so that none is left alone at the end.
        for stack in sorted(stacks, key=self._sequential) if self.device.type == "cuda" else stacks:
            groups.setdefault((stack[0].precision, self._concurrent(stack[0])), deque()).append(stack)
        for (precision, count), left in groups.items():
            with products(self.device.type, _PRODUCTS[precision]):  # for all: each would end it for the others
                begun = time.perf_counter()
                for stack, trained in concurrent_stacks(left, self._train, count, self.device):
                    seconds, begun = time.perf_counter() - begun, time.perf_counter()
                    if trained is None:
                        _free(self.device)
                        halves = split_evenly(stack, (len(stack) + 1) // 2)
                        left.extendleft(reversed(halves))
                        self._total += len(halves)
                        self.warn(
                            f"{len(stack)} networks did not fit in the memory of {self.device}; trying half as many at "
                            "once."
                        )
                        continue
                    outcomes, engine = trained
                    made, share = record_files.environment(self.device, engine), seconds / len(stack)
                    yield [
                        Record.of(cell, self.problems(cell).metric, outcome, share, made)
                        for cell, outcome in zip(stack, outcomes)
                    ]
                    if (kept := self._checkpoints(stack)) is not None:  # by now the records are written
                        for file in kept.parent.glob(f"{kept.name}-*.pt"):
                            file.unlink(missing_ok=True)
                    if count == 1:  # of concurrent ones, the others take up what the last stack left
                        _free(self.device)
            _free(self.device)

    def _concurrent(self, cell: Cell) -> int:
        """How many stacks like that of a cell are trained at once.

        The graph engine captures graphs, and while it does, nothing else may take memory: its stacks are trained alone.
        """
        alone = self.watching is not None or self.device.type != "cuda"
        fused = not alone and pick_engine(self.engine, cell, self.problems(cell), self.device) is FusedEngine
        return _CONCURRENT if fused else 1

    def _sequential(self, stack: Sequence[Cell]) -> int:
        """Layers that are taken one after the other, over all steps, as a key that puts the most first.

        Modules are trained in the order in which they were asked for.
        """
        if stack[0].network != PERCEPTRON:
            return 0
        return -self.problems(stack[0]).steps(stack[0].batch) * stack[0].epochs * stack[0].depth

    def _checkpoints(self, stack: Sequence[Cell]) -> Path | None:
        """Where a stack that is not finished is kept."""
        return None if self.folder is None else self.folder / f"unfinished-{digest(stack)}"

    def _train(self, stack: list[Cell], check: Callable[[], None]) -> tuple[list[Outcome], str] | None:
        """The outcomes of a stack and its engine; None, with its progress undone, if it does not fit in memory."""
        with self._lock:
            self._begun += 1
            place = f"{self._begun} of {counted(self._total, 'stack')}"
        what = f"{place}: {counted(len(stack), 'network')} of depth {stack[0].depth} on {stack[0].dataset}"
        problems = [self.problems(cell) for cell in stack]
        share, done = sum(map(work, stack, problems)) / stack[0].epochs, 0

        def tell(epoch: int) -> None:
            nonlocal done
            check()
            with self._lock:
                self.advance(share * (epoch - done), what)
            done = epoch

        try:
            return train(stack, problems, self.device, tell, self.engine, self._checkpoints(stack), self.watching)
        except (MemoryError, RuntimeError) as error:
            # On a CPU, only PyTorch's message says so.
            full = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
            if not full:
                raise
            if len(stack) == 1:
                raise _too_large(stack[0], self.device) from error
            with self._lock:
                self.advance(-share * done)
            return None


def _on_cluster(
    dispatch: Dispatch, cells: Sequence[Cell], problems: Problems, most: int | None, engine: EngineName,
    advance: Advance,
) -> Generator[list[Record], None, None]:  # fmt: skip
    """Train on a cluster, the longest first; the records of each stack as it ends. At last what failed is named."""
    if not cells:
        return
    even = -(-len(cells) // (2 * max(dispatch.slots, 1)))  # two for each slot even out the end
    size = most or min(even, _MOST[dispatch.kind])
    stacks = [part for group in grouped(cells, problems) for part in split_evenly(group, size)]
    stacks.sort(key=lambda stack: -work(stack[0], problems(stack[0])))
    # Each data set once in the object store, from where every node fetches it once.
    datasets = {name: dispatch.ray.put(problems.dataset(name)) for name in sorted({cell.dataset for cell in cells})}
    share = dispatch.spec.gpus if dispatch.kind == "cuda" else 0.0
    settings = NodeSettings(os.urandom(8).hex(), engine, most, share, datasets, pickle_registered())
    for records in dispatch.run(stacks, settings):
        advance(sum(work(record.cell, problems(record.cell)) for record in records))
        yield records
    if dispatch.failed:
        named = [
            f"{cell.dataset} {cell.scheme} depth {cell.depth} seed {cell.seed} ({reason})"
            for cell, reason in dispatch.failed.items()
        ]
        more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
        what = f"{counted(len(named), 'network')} could not be trained: {'; '.join(named[:_SHOWN])}{more}"
        raise StiefelError(f"{what}; the rest is kept.")


def train_on_node(
    settings: NodeSettings, identities: list[dict[str, Any]], kind: Kind, cores: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """What a node does for a study: train a stack, in parts if memory is small; the records and the warnings."""
    # Before any cell is made, for cells may be of schemes that the user registered.
    problems, told = settings.problems(cores, {values["dataset"] for values in identities}), list[str]()
    cells = [Cell.from_dict(values) for values in identities]
    trainer = LocalTrainer(problems, torch.device(kind), settings.engine, told.append)
    share = settings.share or cores / max(os.cpu_count() or 1, cores)
    stacks = split_evenly(cells, settings.most or fits(cells[0], problems, trainer.device, share))
    values = [record.to_dict() for records in trainer.run(stacks) for record in records]
    return values, [f"{platform.node()}: {text}" for text in told]


def plan(
    cells: Sequence[Cell], problems: Problems, device: torch.device, done: Container[Cell], most: int | None = None
) -> list[list[Cell]]:
    """The stacks to train. Cells are grouped the same way whatever is done, so a resumed run repeats none."""
    stacks = list[list[Cell]]()
    for group in grouped(cells, problems):
        for part in split_evenly(group, most or fits(group[0], problems, device)):
            stacks.append([cell for cell in part if cell not in done])
    return list(filter(None, stacks))


def grouped(cells: Sequence[Cell], problems: Problems) -> list[list[Cell]]:
    """Cells that can be trained as one stack, together."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        problem = problems(cell)
        rows = problem.size, len(problem.test_features)
        shape = problem.inputs, *rows, problem.outputs, problem.loss, problem.scale, problem.image
        groups.setdefault((stack_key(cell), shape), []).append(cell)
    return list(groups.values())


def fits(cell: Cell, problems: Problems, device: torch.device, share: float = 1.0) -> int:
    """How many networks like `cell` a stack may hold, in that share of the memory that is free."""
    free = _memory(device)[0]
    problem = problems(cell)
    engine = pick_engine("auto", cell, problem, device)
    concurrent = _CONCURRENT if engine is FusedEngine else 1
    fits = int(share * _MEMORY_SHARE / concurrent * free / _memory_per_cell(cell, problem, engine))
    most = _MOST["cuda"] if device.type == "cuda" else max(_MOST["cpu"], _EACH_THREAD * torch.get_num_threads())
    if engine is SlotEngine:
        most = _SIDE_BY_SIDE if device.type == "cuda" else torch.get_num_threads()
    return max(1, min(fits, most))


def _memory_per_cell(cell: Cell, problem: Problem, engine: type[Engine]) -> int:
    """Bytes one cell takes: parameters, gradients and moments, its order, and what training or testing needs."""
    size = size_of(cell, problem)
    evaluation = 4 * ROWS * (3 * size.largest + 2 * BINS)
    return 12 * size.parameters + max(engine.memory(cell, problem), evaluation) + 32 * problem.size


def _memory(device: torch.device) -> tuple[float, float]:
    """Bytes of a device that are free, and all of them."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
    if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):  # not on every system
        page, free, whole = map(os.sysconf, ("SC_PAGE_SIZE", "SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
        return page * free, page * whole
    return 4 << 30, math.inf


def _too_large(cell: Cell, device: torch.device) -> StiefelError:
    return StiefelError(
        f"One network of depth {cell.depth} does not fit in the memory of {device}; use a smaller batch, or fewer or "
        "narrower layers."
    )


def work(cell: Cell, problem: Problem) -> float:
    """What training and testing a cell cost, the measure of progress, in floating-point operations."""
    # For each product: six for a row trained, two for one tested; for each parameter sixty for a step, which waits.
    size, steps = size_of(cell, problem), problem.steps(cell.batch) * cell.epochs
    rows = 6.0 * problem.size * cell.epochs + 2.0 * len(problem.test_features) * len(epochs_tested(cell))
    return size.products * rows + size.parameters * 60.0 * steps


def pick_device(name: DeviceName) -> torch.device:
    """The device of that name, if this machine has it."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise StiefelError("device='cuda', but PyTorch sees no GPU here; use 'cpu' or 'auto'.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _free(device: torch.device) -> None:
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
