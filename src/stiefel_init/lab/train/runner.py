"""Run cells: group them into stacks, skip finished ones, train here or on a cluster, and write records."""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from ...core.errors import StiefelError, unknown
from ...torch.sampling.tensors import Precision, products
from .. import files
from ..data import Dataset
from ..progress import Advance, counted, progress
from . import record as record_files
from .cell import Cell, PrecisionName, digest, split_evenly, stack_key
from .cluster import (
    LOCAL,
    Cluster,
    ClusterSpec,
    Kind,
    Node,
    NodeSettings,
    connected,
    pickle_registered,
    problems_on_node,
    reach,
    share_data,
)
from .concurrency import concurrent_stacks
from .dispatch import Dispatch, Queue
from .fused import FusedEngine
from .network import Architecture
from .problem import Problem, Problems
from .record import Outcome, Record
from .stack import memory_per_cell
from .training import ENGINES, EngineName, epochs_tested, pick_engine, train
from .watched import Watching

DeviceName = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)
_MOST: dict[Kind, int] = {"cpu": 12, "cuda": 1056}  # networks in a stack; more are no faster, a kill would lose more
_EACH_THREAD = 6  # networks for each thread of a CPU with many
_CONCURRENT = 4  # stacks of the fused engine side by side; found by measurement on an H200
_MEMORY_SHARE = 0.6  # of what is free, for all stacks that are trained side by side
_PRODUCTS: dict[PrecisionName, Precision] = {"float32": "ieee", "tf32": "tf32"}


def run(
    cells: Sequence[Cell],
    *,
    out: Path | str | None = None,
    device: DeviceName = "auto",
    datasets: Mapping[str, Dataset] | None = None,
    directory: Path | None = None,
    most: int | None = None,
    engine: EngineName = "auto",
    on: str = LOCAL,
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
        engine: `"fused"` or `"graph"`; by default the fused one where possible.
        on: `"local"` trains on this machine, `"ray"` or `"ray://HOST:PORT"` on a Ray cluster, one task per stack.
        title: Title of the progress bar.
        watching: Which networks to watch while they train, and where their histories go; not on a cluster.
        known: The records of `out`, if you read them before; by default they are read.
        warn: Receives a sentence for everything that goes wrong without ending the run.

    Returns:
        One record for each cell.

    Raises:
        StiefelError: for invalid data, devices, engines, directories or clusters, and for networks that do not fit in
            memory or, on a cluster, could not be trained.

    >>> records = run([Cell("digits", depth=2, epochs=1)], device="cpu")
    >>> str(records[0].cell.scheme), records[0].metric.name, len(records[0].test_score)
    ('stiefel', 'accuracy', 1)
    """
    spec = ClusterSpec.of(on)
    where = pick_device(device) if spec is None else torch.device("cpu")
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if spec is not None and watching is not None:
        raise StiefelError(f'on="{on}" trains on other machines, which cannot be watched from here; use on="local".')
    if watching is not None:
        files.prepare(watching.folder)
    if spec is not None:
        reach(spec)
    problems = Problems(datasets, directory)
    check(cells, problems, where if spec is None else None, engine)  # errors show before anything is written
    with ExitStack() as stack:
        cluster = None if spec is None else Cluster(stack.enter_context(connected(spec)), spec, device, warn)
        folder = None if out is None else files.prepare(Path(out))
        if known is None:
            known = record_files.read(folder, warn) if folder else {}
        done = dict(known)
        each = list(dict.fromkeys(cells))
        left = [cell for cell in each if cell not in done]
        advance = stack.enter_context(progress(sum(work(cell, problems(cell)) for cell in left), title))
        if cluster is None:
            trainer = LocalTrainer(problems, where, engine, warn, advance, folder, watching)
            finished = trainer.run(plan(each, problems, where, done, most))
        else:
            finished = _on_cluster(cluster, left, problems, most, engine, advance, warn)
        for records in finished:
            if folder:
                record_files.write(folder, records)
            done |= {record.cell: record for record in records}
    return [done[cell] for cell in cells]


def check(cells: Sequence[Cell], problems: Problems, device: torch.device | None, engine: EngineName = "auto") -> None:
    """Refuse cells that cannot be trained: by their data, by the engine, or for want of memory on a known device."""
    for cell in cells:
        problem = problems(cell)
        kind = pick_engine(engine, cell, problem, device or torch.device("cpu"))
        if device is not None and memory_per_cell(cell, problem, kind.memory(cell, problem)) > _memory(device)[1]:
            raise _too_large(cell, device)


@dataclass
class LocalTrainer:
    """Trains stacks on this machine, which may be a node of a cluster. What does not fit in memory is halved."""

    problems: Problems
    device: torch.device
    engine: EngineName
    warn: Callable[[str], None]
    advance: Advance = lambda work, what="": None
    folder: Path | None = None
    """Where a stack that was killed finds what it needs to go on."""
    watching: Watching | None = None

    def run(self, stacks: Sequence[list[Cell]]) -> Iterator[list[Record]]:
        """The records of each stack as it ends."""
        self._lock, self._begun, self._total = threading.Lock(), 0, len(stacks)
        cuda = self.device.type == "cuda"
        for (precision, count), group in self._groups(stacks).items():
            left = deque(group)
            with products(self.device.type, _PRODUCTS[precision]):  # for all: each would end it for the others
                for stack, trained, seconds in concurrent_stacks(left, self._train, count, self.device):
                    if trained is None:
                        self._halve(stack, left)
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
                    if cuda and count == 1:  # of concurrent ones, the others take up what the last stack left
                        _free(self.device)
            if cuda:
                _free(self.device)

    def _groups(self, stacks: Sequence[list[Cell]]) -> dict[tuple[PrecisionName, int], list[list[Cell]]]:
        """The stacks by their precision and how many may be trained at once, in their order."""
        groups: dict[tuple[PrecisionName, int], list[list[Cell]]] = {}
        for stack in stacks:
            groups.setdefault((stack[0].precision, self._concurrent(stack[0])), []).append(stack)
        for (_, count), group in groups.items():
            if count > 1:  # the longest first, so that none is left alone at the end
                group.sort(key=lambda stack: -self._sequential(stack[0]))
        return groups

    def _concurrent(self, cell: Cell) -> int:
        """How many stacks like that of a cell are trained at once.

        The graph engine captures graphs, and while it does, nothing else may take memory: its stacks are trained alone.
        """
        if self.watching is not None or self.device.type != "cuda":
            return 1
        fused = pick_engine(self.engine, cell, self.problems(cell), self.device) is FusedEngine
        return _CONCURRENT if fused else 1

    def _sequential(self, cell: Cell) -> int:
        """Layers that are taken one after the other, over all steps."""
        return self.problems(cell).steps(cell.batch) * cell.epochs * cell.depth

    def _checkpoints(self, stack: Sequence[Cell]) -> Path | None:
        """Where a stack that is not finished is kept."""
        return None if self.folder is None else self.folder / f"unfinished-{digest(stack)}"

    def _halve(self, stack: list[Cell], left: deque[list[Cell]]) -> None:
        _free(self.device)
        halves = split_evenly(stack, (len(stack) + 1) // 2)
        left.extendleft(reversed(halves))
        self._total += len(halves)
        self.warn(f"{len(stack)} networks did not fit in the memory of {self.device}; trying half as many at once.")

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
    cluster: Cluster,
    cells: Sequence[Cell],
    problems: Problems,
    most: int | None,
    engine: EngineName,
    advance: Advance,
    warn: Callable[[str], None],
) -> Iterator[list[Record]]:
    """Train on a cluster; the records of each stack as it ends.

    Raises:
        StiefelError: at the end, with the names of networks that could not be trained.
    """
    if not cells:
        return
    datasets = sorted({cell.dataset for cell in cells})
    shared = share_data(cluster, {name: problems.dataset(name) for name in datasets})
    settings = cluster.ray.put(NodeSettings(os.urandom(8).hex(), engine, most, shared, pickle_registered()))
    limits: dict[Kind, int] = {kind: most or limit for kind, limit in _MOST.items()}
    queue = Queue([deque(group) for group in grouped(cells, problems)], lambda cell: work(cell, problems(cell)), limits)
    dispatch = Dispatch(cluster, queue, train_on_node, settings, warn)
    trained = Counter[str]()
    for stack in dispatch.run():
        trained[stack.node] += len(stack.cells)
        advance(stack.work, _by_node(trained))
        yield [Record.from_dict(values) for values in stack.values]
    if dispatch.failed:
        raise StiefelError(_failures(dispatch.failed))


def train_on_node(
    settings: NodeSettings, identities: list[dict[str, Any]], node: Node
) -> tuple[list[dict[str, Any]], list[str]]:
    """What a node does for a study: train a stack, in parts if its memory is small; the records and the warnings."""
    # Before any cell is made, for cells may be of schemes that the user registered.
    problems = problems_on_node(settings, node.cores, {values["dataset"] for values in identities})
    cells, told = [Cell.from_dict(values) for values in identities], list[str]()
    trainer = LocalTrainer(problems, torch.device(node.kind), settings.engine, told.append)
    stacks = split_evenly(cells, settings.most or _fits(cells[0], problems, trainer.device, node.memory))
    return [record.to_dict() for records in trainer.run(stacks) for record in records], told


def _by_node(trained: Counter[str], shown: int = 4) -> str:
    """Networks trained by each node: `a 120, b 96`."""
    text = ", ".join(f"{name} {count}" for name, count in trained.most_common(shown))
    return text if len(trained) <= shown else f"{text} and {len(trained) - shown} more nodes"


def _failures(failed: Mapping[Cell, str], shown: int = 5) -> str:
    names = [
        f"{cell.dataset} {cell.scheme} depth {cell.depth} seed {cell.seed} ({reason})"
        for cell, reason in failed.items()
    ]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{counted(len(names), 'network')} could not be trained: {'; '.join(names[:shown])}{more}; the rest is kept."


def plan(
    cells: Sequence[Cell], problems: Problems, device: torch.device, done: Container[Cell], most: int | None = None
) -> list[list[Cell]]:
    """The stacks to train. Cells are grouped the same way whatever is done, so a resumed run repeats none."""
    stacks = [
        part
        for group in grouped(cells, problems)
        for part in split_evenly(group, most or _fits(group[0], problems, device))
    ]
    unfinished = [[cell for cell in stack if cell not in done] for stack in stacks]
    return [stack for stack in unfinished if stack]


def grouped(cells: Sequence[Cell], problems: Problems) -> list[list[Cell]]:
    """Cells that can be trained as one stack, together."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        problem = problems(cell)
        shape = problem.inputs, problem.size, problem.outputs, problem.loss, problem.scale
        groups.setdefault((stack_key(cell), shape), []).append(cell)
    return list(groups.values())


def _fits(cell: Cell, problems: Problems, device: torch.device, share: float = 1.0) -> int:
    """How many networks like `cell` a stack may hold, in that share of the memory that is free."""
    free = _memory(device)[0]
    problem = problems(cell)
    engine = pick_engine("auto", cell, problem, device)
    concurrent = _CONCURRENT if engine is FusedEngine else 1
    fits = int(share * _MEMORY_SHARE / concurrent * free / memory_per_cell(cell, problem, engine.memory(cell, problem)))
    most = _MOST["cuda"] if device.type == "cuda" else max(_MOST["cpu"], _EACH_THREAD * torch.get_num_threads())
    return max(1, min(fits, most))


def _memory(device: torch.device) -> tuple[float, float]:
    """Bytes of a device that are free, and all of them."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
    if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):  # not on every system
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
    return 4 << 30, math.inf


def _too_large(cell: Cell, device: torch.device) -> StiefelError:
    return StiefelError(
        f"One network of depth {cell.depth} does not fit in the memory of {device}; use a smaller batch, or fewer or "
        "narrower layers."
    )


def work(cell: Cell, problem: Problem) -> float:
    """What training and testing a cell cost, in floating-point operations, the measure of progress.

    For each parameter: six for a row trained, two for a row tested, and for a step as much as sixty in the optimizer,
    which waits for memory.
    """
    steps = problem.steps(cell.batch) * cell.epochs
    rows = 6.0 * problem.size * cell.epochs + 2.0 * len(problem.test_features) * len(epochs_tested(cell))
    return Architecture.of(cell, problem).parameters * (rows + 60.0 * steps)


def pick_device(name: DeviceName) -> torch.device:
    """The device of that name, if this machine has it."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise StiefelError("device='cuda', but PyTorch sees no GPU here; use 'cpu' or 'auto'.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
