"""Stacks over the slots of a cluster: `Dispatch` keeps every slot busy until all cells are trained or have failed.

The driver holds the queue and gives each slot its next stack when it is free, so stacks have the size that suits the
slot, fast nodes get more of them, and the cells of a node that dies go back to the queue.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.errors import StiefelError
from .cell import Cell
from .cluster import Cluster, Kind, Node, first_line, pinned

LOOK_EVERY = 2.0
"""Seconds between looks at which nodes are there."""
WAIT_FOR_NODES = 60.0
"""Seconds to wait for another node when none is left."""
REST = 1.0
"""Seconds that a node gets no stacks after a worker of it died: the node may be dying with it."""
TRIES = 5
"""How often a network's worker may die, its node alive, before the network is given up."""
SHORT = 0.5
"""Stacks that take fewer seconds wait in twos at each slot, so that it need not wait for the driver."""

Values = list[dict[str, Any]]
Work = Callable[[Any, list[dict[str, Any]], Node], tuple[Values, list[str]]]
"""(settings, the cells' identities, node) -> (the records' values, warnings); runs on the node."""


@dataclass
class Running:
    """A stack on its way."""

    cells: list[Cell]
    node: Node
    since: float


class Done(NamedTuple):
    """A stack that was trained."""

    cells: list[Cell]
    values: Values
    node: str
    work: float


@dataclass
class Queue:
    """Cells to train, in piles that can be trained as one stack, the longest training first."""

    piles: list[deque[Cell]]
    cost: Callable[[Cell], float]
    limits: Mapping[Kind, int]
    """The most cells of a stack."""
    suspects: list[list[Cell]] = field(default_factory=list)
    """Stacks of which a worker died or a cell raised; they run as they are."""

    def __post_init__(self) -> None:
        self.piles.sort(key=lambda pile: -self.cost(pile[0]))
        self.home = {cell: pile for pile in self.piles for cell in pile}
        self.count = len(self.home)
        """Cells in the queue."""
        self.work = sum(map(self.cost, self.home))
        """Their training."""

    def next(self) -> Cell:
        """A cell of the next stack."""
        if self.suspects:
            return self.suspects[-1][0]
        return next(pile for pile in self.piles if pile)[0]

    def take(self, kind: Kind, slots: int) -> list[Cell]:
        """The next stack for a slot of that kind, of which there are so many."""
        if self.suspects:
            cells = self.suspects.pop()
        else:
            pile = self.home[self.next()]
            # On a CPU small stacks are nearly as fast for each network, and two for each slot even out the end.
            even = -(-self.count // (slots if kind == "cuda" else 2 * slots))
            cells = [pile.popleft() for _ in range(min(len(pile), self.limits[kind], even))]
        self._counted(cells, -1)
        return cells

    def put_back(self, cells: Sequence[Cell]) -> None:
        """Cells of a stack that was lost, with no fault of theirs."""
        self.home[cells[0]].extendleft(reversed(cells))
        self._counted(cells, 1)

    def try_as(self, *stacks: list[Cell]) -> None:
        """Cells of a stack that failed, to be tried next in these stacks."""
        self.suspects += stacks
        for cells in stacks:
            self._counted(cells, 1)

    def _counted(self, cells: Sequence[Cell], sign: int) -> None:
        self.count += sign * len(cells)
        self.work += sign * sum(map(self.cost, cells))


class Dispatch:
    """The state of one study on a cluster."""

    def __init__(self, cluster: Cluster, queue: Queue, work: Work, settings: Any, warn: Callable[[str], None]) -> None:
        self.cluster, self.queue, self.settings, self.warn = cluster, queue, settings, warn
        self.remote = cluster.ray.remote(work)
        self.running: dict[Any, Running] = {}
        self.failed: dict[Cell, str] = {}
        self._options: dict[Node, Any] = {}
        self._tries = Counter[Cell]()
        self._rest_until: dict[str, float] = {}
        self._looked = time.monotonic()
        self._seconds = SHORT  # of a stack, lately
        self._speed: dict[Kind, float] = {}  # work a second of a slot, lately; it says which of two kinds is slow

    def run(self) -> Iterator[Done]:
        """The stacks as they end. Ctrl-C cancels what runs, after what has ended was handed over."""
        ray = self.cluster.ray
        nobody_since = time.monotonic()
        try:
            while self.queue.count or self.running:
                if time.monotonic() - self._looked > LOOK_EVERY or not self.cluster.nodes:
                    self._looked = time.monotonic()
                    self.cluster.refresh()
                self._fill()
                if self.running or self.cluster.nodes:
                    nobody_since = time.monotonic()
                elif time.monotonic() - nobody_since > WAIT_FOR_NODES:
                    raise StiefelError(
                        f"No node of the cluster is left, and {self.queue.count} networks are not trained; "
                        "rerun the command when it is back: finished work is kept."
                    )
                waiting = [*self.running, *self.cluster.asked]
                if waiting:
                    ray.wait(waiting, num_returns=1, timeout=0.5)
                else:  # all nodes are at rest, or gone
                    time.sleep(0.1)
                yield from self._ended()
        except KeyboardInterrupt:
            yield from self._ended()
            raise
        finally:
            for reference in self.running:
                ray.cancel(reference, force=True)

    def _ended(self) -> Iterator[Done]:
        ray, waiting = self.cluster.ray, [*self.running, *self.cluster.asked]
        if not waiting:
            return
        for reference in ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]:
            if reference in self.cluster.asked:
                self.cluster.admit(reference, late=True)
            elif (done := self._settle(reference)) is not None:
                yield done

    def _settle(self, reference: Any) -> Done | None:
        """What became of a stack; None if its cells are in the queue again, or have failed."""
        stack, ray = self.running.pop(reference), self.cluster.ray
        try:
            values, told = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            name, reason = type(error.cause).__name__, first_line(error.cause)
            self._failed(stack.cells, f"{name}: {reason}" if reason else name)
        except ray.exceptions.OutOfMemoryError:
            self._failed(stack.cells, "ran out of the node's memory", died=True)
        except (ray.exceptions.TaskUnschedulableError, ray.exceptions.NodeDiedError):
            self.cluster.lose(stack.node.id)
            self.queue.put_back(stack.cells)
        except ray.exceptions.RayError:
            self.cluster.refresh()
            if stack.node.id in self.cluster.nodes:
                self._rest_until[stack.node.id] = time.monotonic() + REST
                self._failed(stack.cells, "lost its process", died=True)
            else:
                self.queue.put_back(stack.cells)
        else:
            for text in told:
                self.warn(f"{stack.node.name}: {text}")
            seconds = time.monotonic() - stack.since
            work = sum(map(self.queue.cost, stack.cells))
            self._seconds += 0.2 * (seconds - self._seconds)
            self._speed[stack.node.kind] = work / max(seconds, 1e-6)
            return Done(stack.cells, values, stack.node.name, work)
        return None

    def _failed(self, cells: list[Cell], reason: str, *, died: bool = False) -> None:
        """A stack is halved until the network that fails is alone; one whose process died is then tried a few times."""
        if len(cells) > 1:
            if died:
                self.warn(f"A stack of {len(cells)} networks {reason}; trying half as many at once.")
            half = len(cells) // 2
            self.queue.try_as(cells[half:], cells[:half])
            return
        self._tries[cells[0]] += 1
        if died and self._tries[cells[0]] < TRIES:
            self.queue.try_as(cells)
        else:
            self.failed[cells[0]] = f"it {reason}" if died else reason

    def _fill(self) -> None:
        """Give every slot that is free its next stack."""
        if not self.queue.count:
            return
        now, depth = time.monotonic(), 2 if self._seconds < SHORT else 1
        busy = Counter(stack.node.id for stack in self.running.values())
        for _ in range(depth):
            for node in self.cluster.nodes.values():
                if self._rest_until.get(node.id, 0) > now:
                    continue
                for _ in range(min(depth * node.slots - busy[node.id], node.slots)):
                    if not self.queue.count or self._too_slow(node.kind):
                        break
                    self._start(node)
                    busy[node.id] += 1

    def _too_slow(self, kind: Kind) -> bool:
        """Whether the others would be done with everything before a slot of that kind with one network."""
        if len(self._speed) < 2:
            return False
        fleet = sum(self._speed[node.kind] * node.slots for node in self.cluster.nodes.values())
        return self.queue.cost(self.queue.next()) / self._speed[kind] > self.queue.work / fleet

    def _start(self, node: Node) -> None:
        cells = self.queue.take(node.kind, sum(node.slots for node in self.cluster.nodes.values()))
        if node not in self._options:
            self._options[node] = self.remote.options(
                num_cpus=node.cores, num_gpus=node.gpus, max_retries=0, scheduling_strategy=pinned(node.id)
            )
        reference = self._options[node].remote(self.settings, [cell.identity() for cell in cells], node)
        self.running[reference] = Running(cells, node, time.monotonic())
