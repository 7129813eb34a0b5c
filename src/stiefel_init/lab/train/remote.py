"""What the stacks of a study share on every node of a cluster: its data sets, its options, and what was registered."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ...schemes import get, names, register
from ...theory import ACTIVATIONS, activations, register_activation
from ...theory._moments import Function, resolve
from .task import Tasks
from .training import EngineName

_PACKAGE = __name__.split(".")[0]


@dataclass(frozen=True)
class Study:
    """Sent once to every node, through the object store."""

    token: str
    engine: EngineName
    most: int | None
    """The most cells of a stack, if the user said so."""
    datasets: dict[str, Any]
    """Ray's references, by the name the cells use."""
    registered: bytes
    """The user's own schemes and activations."""


_prepared: dict[str, Tasks] = {}
"""The tasks of the study that this process works for, by the study's token."""


def prepare(study: Study, cores: int) -> None:
    """Make a process of a node ready for a study, once."""
    if study.token in _prepared:
        return
    from ray import cloudpickle

    torch.set_num_threads(cores)
    # Arrays in the object store cannot be written to, which is as it should be: nothing here does.
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
    kinds, functions = cloudpickle.loads(study.registered)
    for kind in kinds:
        if kind.name not in names():
            register(kind)
    for name, f, slope in functions:
        if name not in activations():
            register_activation(name, f, slope)
    _prepared.clear()
    _prepared[study.token] = Tasks()


def tasks(study: Study, datasets: Iterable[str]) -> Tasks:
    """The study's tasks, with these data sets in memory; arrays are those of the node's object store, not copies."""
    import ray

    made = _prepared[study.token]
    for name in datasets:
        if not made.has(name):
            made.add(name, ray.get(study.datasets[name]))
    return made


def registered() -> bytes:
    """The schemes and activations that the user registered, code and all, for processes that cannot import it."""
    from ray import cloudpickle

    kinds = [kind for name in names() if not _ours(kind := type(get(name)))]
    functions = []
    for name in activations():
        if name not in ACTIVATIONS and isinstance(function := resolve(name, {}), Function):
            functions.append((name, function.f, function.df))
    modules = {value.__module__ for value in (*kinds, *(part for _, *pair in functions for part in pair))}
    travelling = [sys.modules[name] for name in modules if name in sys.modules and name != "__main__"]
    travelling = [module for module in travelling if module.__name__.split(".")[0] != _PACKAGE]
    for module in travelling:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((kinds, functions))
    finally:
        for module in travelling:
            cloudpickle.unregister_pickle_by_value(module)


def _ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] == _PACKAGE
