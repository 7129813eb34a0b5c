"""A Ray cluster: `ClusterSpec` names it, `connected` joins it, `Cluster` knows its nodes and what each can train.

Only this module and `dispatch` import Ray, and only when a study asks for it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch

from ... import __version__
from ...core.errors import StiefelError
from ...schemes import get, names, register
from ...theory import ACTIVATIONS, activations, register_activation
from ...theory.moments import Function, resolve
from ..data import Dataset
from .problem import Problems
from .source import source_hash
from .training import EngineName

ANSWER_WITHIN = 120.0
"""Seconds in which a node must say what it has; the first import of PyTorch may take a minute."""
CONNECT_WITHIN = 5.0
LOCAL = "local"
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
    gpus: float = 1.0
    """GPUs for each stack, on nodes that have any: one, or a share of one."""
    cores: int = 1
    """Cores for each stack."""

    @classmethod
    def of(cls, on: str) -> ClusterSpec | None:
        """The cluster that `on` names; None for this machine.

        Raises:
            StiefelError: if it names none.
        """
        if on == LOCAL:
            return None
        match = re.fullmatch(r"ray(?P<address>://[^:/?]+:\d+)?(\?(?P<options>.*))?", on)
        if match is None:
            raise StiefelError(f"on={on!r} is not a place to train; give 'local', 'ray' or 'ray://HOST:PORT'.")
        try:
            options = dict(part.split("=") for part in (match["options"] or "").split("&") if part)
            gpus, cores = float(options.pop("gpus", 1)), int(options.pop("cores", 1))
            sound = not options and 0 < gpus <= 1 and cores >= 1
        except ValueError:
            sound = False
        if not sound:
            raise StiefelError(f"on={on!r} asks for what no stack takes; give such as 'ray?gpus=0.5&cores=2'.")
        return cls(f"ray{match['address']}" if match["address"] else None, gpus, cores)


@dataclass(frozen=True)
class Node:
    """A node that can train, and what each of its slots takes of it: a GPU or a share of one, or some cores."""

    id: str
    """Ray's."""
    name: str
    """What people call it."""
    kind: Kind
    gpus: float
    cores: int
    memory: float
    """A slot's share of the memory of the GPU, or of the node."""
    slots: int
    """Stacks that it trains at once."""


def reach(spec: ClusterSpec) -> None:
    """Refuse at once what cannot be: no Ray here, or nothing at the address. Ray itself would try for minutes."""
    if importlib.util.find_spec("ray") is None:
        raise StiefelError("Training on a cluster needs Ray; run: pip install 'stiefel-init[ray]'.")
    address = _address(spec)
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), CONNECT_WITHIN).close()
        except OSError as error:
            raise StiefelError(_why_not(address, error)) from error


@contextmanager
def connected(spec: ClusterSpec) -> Iterator[Any]:
    """Ray, connected to a cluster. A connection that was there before stays; one made here ends."""
    import ray

    if ray.is_initialized() and spec.address is None:
        yield ray
        return
    address = _address(spec)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters comes as an error
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except ImportError as error:  # its client is an extra of Ray's
        raise StiefelError(f"{address} needs Ray's client; run: pip install 'stiefel-init[ray]'.") from error
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        ray.shutdown()  # it may be half connected
        raise StiefelError(_why_not(address, error)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _address(spec: ClusterSpec) -> str | None:
    return spec.address or os.environ.get("RAY_ADDRESS") or None


def _why_not(address: str | None, error: Exception) -> str:
    reason = " ".join(str(error).split()).rstrip(".")
    if "ersion mismatch" in reason or "versions" in reason:
        return f"The cluster at {address} runs another version of Ray or Python than this driver ({reason[:300]})."
    if address is None:
        return f"Ray could not start on this machine ({reason[:300]})."
    if "timeout" in reason:
        return (
            f"The Ray cluster at {address} does not answer ({reason[:300]}); if it asks for a token, set RAY_AUTH_MODE "
            "and RAY_AUTH_TOKEN."
        )
    return f"No Ray cluster answers at {address} ({reason[:300]}); start one with: ray start --head."


class Cluster:
    """The nodes of a cluster that can train, as they come and go."""

    def __init__(self, ray: Any, spec: ClusterSpec, device: str, warn: Callable[[str], None]) -> None:
        self.ray, self.spec, self.device, self.warn = ray, spec, device, warn
        self.nodes: dict[str, Node] = {}
        self.asked: dict[Any, dict[str, Any]] = {}
        """The nodes that have yet to say what they have, by Ray's reference to the answer."""
        self._seen: set[str] = set()
        self.refresh()
        if device == "cuda" and not self.asked:
            raise StiefelError("device='cuda', but no node of the cluster offers a GPU; use 'cpu' or 'auto'.")
        ready, late = ray.wait(list(self.asked), num_returns=len(self.asked), timeout=ANSWER_WITHIN)
        for reference in ready:
            self.admit(reference)
        for reference in late:
            warn(f"Node {self.asked.pop(reference)['NodeManagerHostname']} does not answer; it is left out.")
        if not self.nodes:
            raise StiefelError("No node of the cluster answers; look at it with: ray status.")

    def refresh(self) -> None:
        """Forget nodes that are gone, and ask new ones what they have."""
        alive = {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"]}
        for node in self.nodes.keys() - alive.keys():
            self.lose(node)
        for node, facts in alive.items():
            if node not in self._seen and (kind := self._kind(facts)) is not None:
                self._seen.add(node)
                self.asked[self._ask(node, kind)] = facts

    def lose(self, node: str) -> None:
        """Forget a node that is gone."""
        if (gone := self.nodes.pop(node, None)) is not None:
            self.warn(f"Node {gone.name} is gone; its networks go to the others.")

    def admit(self, reference: Any, *, late: bool = False) -> None:
        """Take in a node that has answered; one that came late and cannot train is left out with a warning."""
        facts = self.asked.pop(reference)
        name, kind, resources = facts["NodeManagerHostname"], self._kind(facts), facts["Resources"]
        if any(node.name == name for node in self.nodes.values()):
            name = f"{name}-{facts['NodeID'][:4]}"
        assert kind is not None
        try:
            self._verify(name, kind, reference)
        except StiefelError as error:
            if not late:
                raise
            self.warn(f"{error} It is left out.")
            return
        except self.ray.exceptions.RayError:  # it died before it could answer
            return
        gpus = self.spec.gpus if kind == "cuda" else 0.0
        slots = int(resources["CPU"]) // self.spec.cores
        if kind == "cuda":
            slots = min(slots, int(resources["GPU"] / gpus + 1e-9))
        node = Node(facts["NodeID"], name, kind, gpus, self.spec.cores, gpus or 1 / slots, slots)
        self.nodes[node.id] = node

    def _kind(self, facts: dict[str, Any]) -> Kind | None:
        """What a node trains on; None if nothing. A node with GPUs leaves its cores to them."""
        gpus = facts["Resources"].get("GPU", 0)
        cores = facts["Resources"].get("CPU", 0) >= self.spec.cores
        if gpus and cores and self.device != "cpu":
            return "cuda"
        return "cpu" if cores and self.device != "cuda" else None

    def _ask(self, node: str, kind: Kind) -> Any:
        def answer() -> dict[str, Any]:  # defined here, it travels by value: the node may lack the package
            import stiefel_init
            from stiefel_init.lab.train.source import source_hash

            facts: dict[str, Any] = {"version": stiefel_init.__version__, "source": source_hash()}
            import torch

            return facts | {"gpu": torch.cuda.is_available()}

        gpus = 0.01 if kind == "cuda" else 0
        on_node = {"num_cpus": 0, "num_gpus": gpus, "max_retries": 0, "scheduling_strategy": pinned(node)}
        return self.ray.remote(answer).options(**on_node).remote()

    def _verify(self, name: str, kind: Kind, reference: Any) -> None:
        ray = self.ray
        try:
            facts = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise StiefelError(
                f"Node {name} cannot import stiefel-init ({first_line(error.cause)}); "
                f"install stiefel-init[ray] {__version__} on it."
            ) from error
        if (facts["version"], facts["source"]) != (__version__, source_hash()):
            raise StiefelError(
                f"Node {name} has stiefel-init {facts['version']} (source {facts['source'][:8]}), the driver "
                f"{__version__} (source {source_hash()[:8]}); install the same on both."
            )
        if kind == "cuda" and not facts["gpu"]:
            raise StiefelError(f"Node {name} offers a GPU, but its PyTorch sees none; use device='cpu'.")


def first_line(error: BaseException) -> str:
    """What an error says, for the middle of a sentence."""
    return (str(error).splitlines() or [""])[0].rstrip(".")


def pinned(node: str) -> Any:
    """Ray's word for: on this node, or not at all."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def share_data(cluster: Cluster, datasets: Mapping[str, Dataset]) -> dict[str, Any]:
    """Each data set once in the object store, from where every node fetches it once; Ray's references by name."""
    total = sum(dataset.x.nbytes + dataset.y.nbytes for dataset in datasets.values())
    stores = {node["NodeID"]: node["Resources"].get("object_store_memory", 0.0) for node in cluster.ray.nodes()}
    store, name = min((stores.get(node.id, 0.0), node.name) for node in cluster.nodes.values())
    remedy = "start it with a larger --object-store-memory."
    if total > store:
        raise StiefelError(
            f"The data sets take {total / 1e6:,.0f} MB, but the object store of node {name} holds "
            f"{store / 1e6:,.0f} MB; {remedy}"
        )
    errors = cluster.ray.exceptions
    try:
        return {name: cluster.ray.put(dataset) for name, dataset in datasets.items()}
    except (errors.ObjectStoreFullError, errors.OutOfDiskError) as error:
        raise StiefelError(
            f"The object store of this node is full, and the data sets take {total / 1e6:,.0f} MB; {remedy}"
        ) from error


@dataclass(frozen=True)
class NodeSettings:
    """Sent once to every node, through the object store."""

    token: str
    engine: EngineName
    most: int | None
    """The most cells of a stack, if the user said so."""
    datasets: dict[str, Any]
    """Ray's references, by the name the cells use."""
    registered: bytes
    """The user's own schemes and activations."""


_prepared: dict[str, Problems] = {}
"""The problems of the study that this process works for, by the study's token."""


def problems_on_node(settings: NodeSettings, cores: int, datasets: Iterable[str]) -> Problems:
    """The study's problems in a process of a node, with these data sets: the object store's own arrays, not copies."""
    import ray
    from ray import cloudpickle

    if settings.token not in _prepared:
        torch.set_num_threads(cores)
        # Arrays in the object store cannot be written to, which is as it should be: nothing here does.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        kinds, functions = cloudpickle.loads(settings.registered)
        for kind in kinds:
            if kind.name not in names():
                register(kind)
        for name, f, slope in functions:
            if name not in activations():
                register_activation(name, f, slope)
        _prepared.clear()
        _prepared[settings.token] = Problems()
    made, fetch = _prepared[settings.token], cast(Callable[..., Dataset], ray.get)
    for name in datasets:
        made.provide(name, partial(fetch, settings.datasets[name]))
    return made


def pickle_registered() -> bytes:
    """The schemes and activations that the user registered, code and all, for processes that cannot import it."""
    from ray import cloudpickle

    kinds = [kind for name in names() if not _ours(kind := type(get(name)))]
    functions = []
    for name in activations():
        if name not in ACTIVATIONS and isinstance(function := resolve(name, {}), Function):
            functions.append((name, function.f, function.df))
    parts = [*kinds, *(part for _, *pair in functions for part in pair)]
    foreign = {part.__module__ for part in parts if not _ours(part) and part.__module__ != "__main__"}
    modules = [sys.modules[name] for name in foreign if name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((kinds, functions))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _ours(part: Any) -> bool:
    return part.__module__.split(".")[0] == __name__.split(".")[0]
