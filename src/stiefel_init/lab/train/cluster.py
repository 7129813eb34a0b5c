"""A study on a Ray cluster: `ClusterSpec` names it, `connected` joins it, `Dispatch` sends stacks to its nodes.

Ray decides where a stack runs. The driver keeps a few stacks waiting, sends those of a lost node again, and halves
those that fail until the network at fault is alone. Only this module imports Ray, and only when a study asks for it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import platform
import re
import socket
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import torch

from ... import __version__
from ...core.errors import StiefelError
from ...schemes import get, names, register
from ...theory import ACTIVATIONS, activations, register_activation
from ...theory.moments import Function, resolve
from ..plugins import first_line
from ..progress import counted
from .cell import Cell
from .convolutional import OWN
from .problem import Problems
from .record import Record
from .source import source_hash
from .training import EngineName

CONNECT_WITHIN = 5.0
LOOK_EVERY = 2.0  # seconds between looks at which nodes are there
AHEAD = 3  # stacks that are sent for each that the nodes can train at once, so that none waits for the driver
WAIT_FOR_NODES = 60.0  # seconds, when none is left
TRIES = 5  # a network's process may die so often before it is given up: its node may have died with it
REST = 1.0  # seconds before it is tried again
Kind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class ClusterSpec:
    """Where to train: a cluster, and what a stack takes of it.

    >>> ClusterSpec.of("ray?gpus=0.5")
    ClusterSpec(address=None, gpus=0.5, cores=1)
    >>> ClusterSpec.of("ray://head:10001").address
    'ray://head:10001'
    """

    address: str | None
    """As in `ray://HOST:PORT`; None for the one in RAY_ADDRESS, the one on this machine, or one started here."""
    gpus: float = 1.0  # for each stack, on nodes that have any: one, or a share of one
    cores: int = 1

    @classmethod
    def of(cls, on: str) -> ClusterSpec | None:
        """The cluster that `on` names; None for this machine."""
        if on == "local":
            return None
        match = re.fullmatch(r"ray(?P<address>://[^:/?]+:\d+)?(\?(?P<options>.*))?", on)
        if match is None:
            raise StiefelError(f"on={on!r} is not a place to train; give 'local', 'ray' or 'ray://HOST:PORT'.")
        try:
            options = dict(part.split("=") for part in (match["options"] or "").split("&") if part)
            gpus, cores = float(options.pop("gpus", 1)), int(options.pop("cores", 1))
            if options or not 0 < gpus <= 1 or cores < 1:
                raise ValueError
        except ValueError:
            raise StiefelError(
                f"on={on!r} asks for what no stack takes; give such as 'ray?gpus=0.5&cores=2'."
            ) from None
        return cls(f"ray{match['address']}" if match["address"] else None, gpus, cores)

    @property
    def place(self) -> str | None:
        return self.address or os.environ.get("RAY_ADDRESS") or None


def reach(spec: ClusterSpec) -> None:
    """Refuse at once what cannot be: no Ray here, or nothing at the address. Ray itself would try for minutes."""
    if importlib.util.find_spec("ray") is None:
        raise StiefelError("Training on a cluster needs Ray; run: pip install 'stiefel-init[ray]'.")
    host, _, port = (spec.place or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), CONNECT_WITHIN).close()
        except OSError as error:
            raise StiefelError(_why_not(spec.place, error)) from error


@contextmanager
def connected(spec: ClusterSpec) -> Iterator[Any]:
    """Ray, connected to a cluster. A connection that was there before stays; one made here ends."""
    import ray

    if ray.is_initialized() and spec.address is None:
        yield ray
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters comes as an error
            ray.init(spec.place, log_to_driver=False, logging_level=logging.ERROR)
    except ImportError as error:  # its client is an extra of Ray's
        raise StiefelError(f"{spec.place} needs Ray's client; run: pip install 'stiefel-init[ray]'.") from error
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        ray.shutdown()  # it may be half connected
        raise StiefelError(_why_not(spec.place, error)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _why_not(address: str | None, error: Exception) -> str:
    reason = " ".join(str(error).split()).rstrip(".")[:300]
    if "ersion mismatch" in reason or "versions" in reason:
        return f"The cluster at {address} runs another version of Ray or Python than this driver ({reason})."
    if address is None:
        return f"Ray could not start on this machine ({reason})."
    if "timeout" in reason:
        return f"The Ray cluster at {address} does not answer ({reason}); a token goes into RAY_AUTH_TOKEN."
    return f"No Ray cluster answers at {address} ({reason}); start one with: ray start --head."


@dataclass(frozen=True)
class NodeSettings:
    """A study, as a node needs it; sent once to every node, through the object store."""

    token: str
    engine: EngineName
    most: int | None  # the most cells of a stack, if the user said so
    share: float  # of a node's memory or a GPU's, what a stack may take; 0 for as much as its cores are of all
    datasets: dict[str, Any]  # Ray's references, by the name the cells use
    registered: bytes  # the user's own schemes, activations and networks

    def problems(self, cores: int, datasets: set[str]) -> Problems:
        """The study's problems in this process, with these data sets: the object store's own arrays, not copies."""
        import ray

        problems = _prepared(self.token, cores, self.registered)
        for name in datasets:
            fetch: Any = partial(ray.get, self.datasets[name])
            problems.provide(name, fetch)
        return problems


@lru_cache(maxsize=1)
def _prepared(token: str, cores: int, registered: bytes) -> Problems:
    """The problems of the study that this process works for."""
    torch.set_num_threads(cores)
    # Arrays in the object store cannot be written to, which is as it should be: nothing here does.
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
    _register(registered)
    return Problems()


Work = Callable[[NodeSettings, list[dict[str, Any]], Kind, int], tuple[list[dict[str, Any]], list[str]]]
"""(settings, the cells' identities, kind, cores) -> (the records' values, warnings); runs on the node."""


class Dispatch:
    """One study on a cluster: `run` yields its stacks as they end; `failed` then names what could not be trained."""

    def __init__(self, ray: Any, spec: ClusterSpec, device: str, work: Work, warn: Callable[[str], None]) -> None:
        self.ray, self.spec, self.work, self.warn = ray, spec, work, warn
        gpus = device != "cpu" and any(node["Alive"] and node["Resources"].get("GPU") for node in ray.nodes())
        self.kind: Kind = "cuda" if gpus else "cpu"
        self.failed: dict[Cell, str] = {}
        self._running: dict[Any, list[Cell]] = {}
        self._tries = Counter[Cell]()
        if device == "cuda" and not gpus:
            raise StiefelError("device='cuda', but no node of the cluster offers a GPU; use 'cpu' or 'auto'.")
        self.slots = self._count_slots()
        if not self.slots:
            raise StiefelError(f"No node of the cluster has {spec.cores} cores; look at it with: ray status.")

    def _count_slots(self) -> int:
        """How many stacks the nodes that are there can train at once."""
        slots = 0
        for has in (node["Resources"] for node in self.ray.nodes() if node["Alive"]):
            rooms = [int(has.get("CPU", 0)) // self.spec.cores]
            rooms += [int(has.get("GPU", 0) / self.spec.gpus + 1e-9)] if self.kind == "cuda" else []
            slots += min(rooms)
        return slots

    def run(self, stacks: Sequence[list[Cell]], settings: NodeSettings) -> Iterator[list[Record]]:
        """The records of each stack as it ends. Ctrl-C cancels what runs, after what has ended was handed over."""
        left, kept = deque(stacks), self.ray.put((self.work, settings))
        takes = {"num_cpus": self.spec.cores, "num_gpus": self.spec.gpus if self.kind == "cuda" else 0}
        task = self.ray.remote(_on_node())
        looked = seen = time.monotonic()
        try:
            while left or self._running:
                if (now := time.monotonic()) - looked > LOOK_EVERY:
                    self.slots, looked = self._count_slots(), now
                if self.slots:
                    seen = now
                elif now - seen > WAIT_FOR_NODES:
                    count = sum(map(len, [*left, *self._running.values()]))
                    raise StiefelError(
                        f"No node of the cluster is left, and {count} networks are not trained; rerun the command when "
                        "it is back: finished work is kept."
                    )
                while left and len(self._running) < AHEAD * max(self.slots, 1):
                    cells = left.popleft()
                    identities = [cell.identity() for cell in cells]
                    sent = task.options(**takes, max_retries=0)
                    given = __version__, source_hash(), self.kind, self.spec.cores, [kept], identities
                    self._running[sent.remote(*given)] = cells
                self.ray.wait(list(self._running), num_returns=1, timeout=0.5)
                yield from self._ended(left)
        except KeyboardInterrupt:
            yield from self._ended(left)
            raise
        finally:
            for reference in self._running:
                self.ray.cancel(reference, force=True)

    def _ended(self, left: deque[list[Cell]]) -> Iterator[list[Record]]:
        errors, sent = self.ray.exceptions, list(self._running)
        for reference in self.ray.wait(sent, num_returns=len(sent), timeout=0)[0] if sent else ():
            cells = self._running.pop(reference)
            try:
                answer = self.ray.get(reference)
            except errors.RayTaskError as error:
                name, reason = type(error.cause).__name__, first_line(error.cause)
                self._again(cells, left, f"{name}: {reason}" if reason else name)
            except errors.NodeDiedError:
                self.warn(f"A node is gone; its stack of {counted(len(cells), 'network')} goes to the others.")
                left.appendleft(cells)
            except errors.RayError as error:
                full = isinstance(error, errors.OutOfMemoryError)
                self._again(cells, left, "ran out of the node's memory" if full else "lost its process", died=True)
            else:
                if isinstance(answer, str):
                    raise StiefelError(f"{answer} Finished work is kept.")
                values, told = answer
                for text in told:
                    self.warn(text)
                yield [Record.from_dict(each) for each in values]

    def _again(self, cells: list[Cell], left: deque[list[Cell]], reason: str, *, died: bool = False) -> None:
        """A stack is halved until the network that fails is alone; one whose process died is then tried a few times."""
        if len(cells) > 1:
            if died:
                self.warn(f"A stack of {len(cells)} networks {reason}; trying half as many at once.")
            half = len(cells) // 2
            left.extendleft([cells[half:], cells[:half]])
            return
        self._tries[cells[0]] += 1
        if died and self._tries[cells[0]] < TRIES:
            time.sleep(REST)
            left.append(cells)
        else:
            self.failed[cells[0]] = f"it {reason}" if died else reason


def _on_node() -> Callable[..., Any]:
    """What a node does. As a function within a function it travels by value: the node may lack the package."""

    def on_node(
        version: str, source: str, kind: str, cores: int, settings: list[Any], identities: list[dict[str, Any]]
    ) -> Any:
        node = f"Node {platform.node()}"
        try:
            import stiefel_init
            from stiefel_init.lab.train.source import source_hash

            has = stiefel_init.__version__, source_hash()
        except Exception as error:
            why = (str(error).splitlines() or [""])[0].rstrip(".")
            return f"{node} cannot import stiefel-init ({why}); install stiefel-init[ray] {version} on it."
        if has != (version, source):
            mine, theirs = f"{has[0]} (source {has[1][:8]})", f"{version} (source {source[:8]})"
            return f"{node} has stiefel-init {mine}, the driver {theirs}; install the same on both."
        import ray
        import torch

        if kind == "cuda" and not torch.cuda.is_available():
            return f"{node} offers a GPU, but its PyTorch sees none; use device='cpu'."
        work, study = ray.get(settings[0])
        return work(study, identities, kind, cores)

    return on_node


def pickle_registered() -> bytes:
    """The schemes, activations and networks of the user's own, code and all, for processes that cannot import it."""
    from ray import cloudpickle

    kinds = [kind for name in names() if not _ours(kind := type(get(name)))]
    functions = []
    for name in activations():
        if name not in ACTIVATIONS and isinstance(function := resolve(name, {}), Function):
            functions.append((name, function.f, function.df))
    parts = [*kinds, *(part for _, *pair in functions for part in pair), *OWN.values()]
    foreign = {part.__module__ for part in parts if not _ours(part) and part.__module__ != "__main__"}
    modules = [sys.modules[name] for name in foreign if name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((kinds, functions, OWN))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _register(pickled: bytes) -> None:
    from ray import cloudpickle

    kinds, functions, networks = cloudpickle.loads(pickled)
    OWN.update(networks)
    for kind in kinds:
        if kind.name not in names():
            register(kind)
    for name, f, slope in functions:
        if name not in activations():
            register_activation(name, f, slope)


def _ours(part: Any) -> bool:
    return part.__module__.split(".")[0] == __name__.split(".")[0]
