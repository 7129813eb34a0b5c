"""Models inside wrappers (parallel training, compilation, checkpoints): their own names, and one seed for all ranks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import StiefelError
from .sharded import common_mesh, shared_seed

_INNER = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside its wrappers."""
    while (inner := _INNER.get(type(model).__name__)) is not None and inner in model._modules:
        model = model._modules[inner]  # type: ignore[assignment]
    return model


def first_of(modules: list[tuple[str, nn.Module]], kind: Callable[[type], object]) -> str | None:
    """The name of the first module of such a kind, if there is one; few are asked, since a model has few kinds."""
    if not any(map(kind, {type(module) for _, module in modules})):
        return None
    return next(name or "model" for name, module in modules if kind(type(module)))


def unwrapped_names(modules: list[tuple[str, nn.Module]]) -> dict[str, str]:
    """The names of all modules, as they are without wrappers; none if there are no wrappers."""
    if first_of(modules, lambda kind: kind.__name__ in _INNER) is None:
        return {}
    by_name = dict(modules)
    names = {"": ""}
    for name in by_name:
        if name:
            above, _, leaf = name.rpartition(".")
            wrapped = _INNER.get(type(by_name[above]).__name__) == leaf
            names[name] = names[above] if wrapped else f"{names[above]}.{leaf}".removeprefix(".")
    return names


def refuse_scripted(modules: list[tuple[str, nn.Module]], act: str = "initialize") -> None:
    """Refuse TorchScript, whose modules do not show what they are."""
    if (name := first_of(modules, lambda kind: issubclass(kind, torch.jit.ScriptModule))) is not None:
        raise StiefelError(f"{name} is a TorchScript module; {act} the model before scripting it.")


def common_seed(modules: list[tuple[str, nn.Module]], tensors: Iterable[Tensor]) -> int | None:
    """A seed that all ranks share, if the model has several; from the first of them."""
    if (mesh := common_mesh(tensors)) is not None:
        return shared_seed(mesh)
    for _, module in modules:
        if type(module).__name__ == "DistributedDataParallel":
            parallel: Any = module
            device = next(parallel.parameters()).device
            seed = torch.randint(2**62, (1,)).to(device)
            torch.distributed.broadcast(seed, group=parallel.process_group, group_src=0)
            return int(seed)
    return None


def fresh_seed(device: torch.device) -> int:
    """A seed from the global generator of a device."""
    return int(torch.randint(2**62, (1,), device=device))


@contextmanager
def finish_first() -> Iterator[None]:
    """Let Ctrl-C wait until the work is done, so that no model is left half initialized."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[Any] = []
    before = signal.getsignal(signal.SIGINT)
    if before is None:  # not Python's to set
        yield
        return
    signal.signal(signal.SIGINT, lambda *given: pressed.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed and callable(before):
            before(*pressed[0])
