"""The plan is applied: what is on the meta device gets memory, and every parameter its values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import StiefelError, said
from ...recipe.layers import Constant
from ...recipe.rules import Draw
from .draw import Batch, fill
from .parameters import TorchRef
from .sharded import fill_sharded, is_sharded, local

Planned = list[tuple[TorchRef, Draw]]


def apply_plan(planned: Planned, seed: int | None) -> None:
    """Draw all that is planned; the parameters are looked up anew, since those on meta have been replaced.

    What is assigned to a parametrization comes first, since the user's code for that may fail.
    """
    assigned = {ref.key: ref for ref, _ in planned if ref.parametrization is not None}
    if assigned:
        values = {key: torch.empty_like(ref.tensor) for key, ref in assigned.items()}
        fill_all([(ref, draw) for ref, draw in planned if ref.key in values], seed, values)
        _assign([(ref, values[key]) for key, ref in assigned.items()])
    fill_all([(ref, draw) for ref, draw in planned if ref.key not in assigned], seed)


def fill_all(planned: Planned, seed: int | None, values: Mapping[Hashable, Tensor] | None = None) -> None:
    """Fill the parameters; or, instead of each, the tensor that `values` has for its key."""
    alike: dict[Hashable, tuple[Draw, list[TorchRef]]] = {}
    for ref, draw in planned:
        alike.setdefault((draw.what, id(draw.scheme), draw.source, draw.first), (draw, []))[1].append(ref)
    whole: list[Batch] = []
    sharded: list[Batch] = []
    for draw, refs in alike.values():
        held: dict[Hashable, Any] = {
            ref.key: ref.module._parameters[ref.leaf] if values is None else values[ref.key] for ref in refs
        }
        split = [ref for ref in refs if is_sharded(held[ref.key])]
        what = draw.what
        if isinstance(what, Constant):
            held |= {ref.key: local(held[ref.key]) for ref in split}
            torch._foreach_zero_(list(held.values()))
            if what.value:
                torch._foreach_add_(list(held.values()), what.value)
        elif what.m * what.n:
            sharded += [Batch([draw.source or ref.stream], [held.pop(ref.key)], draw) for ref in split]
            if held:
                names = [draw.source or ref.stream for ref in refs if ref.key in held]
                whole.append(Batch(names, list(held.values()), draw))
    fill(whole, seed)
    if sharded:
        assert seed is not None
        fill_sharded(sharded, seed)


def _assign(values: list[tuple[TorchRef, Tensor]]) -> None:
    """Assign to parametrizations, to all or to none."""
    before = [
        (tensor, tensor.clone())
        for ref, _ in values
        if ref.parametrization is not None
        for tensor in (*ref.parametrization.parameters(), *ref.parametrization.buffers())
    ]
    for ref, value in values:
        try:
            setattr(ref.module, ref.leaf, value)
        except Exception as error:  # whatever the user's right_inverse raises
            for tensor, old in before:
                tensor.copy_(old)
            raise StiefelError(
                f"{ref.name} could not be assigned to its parametrization ({said(error)}); the model is unchanged. "
                f"Initialize it before it is parametrized, or pass skip={ref.name!r}."
            ) from None


def memory_device(
    modules: list[tuple[str, nn.Module]], tensors: list[Tensor], device: torch.device | str | None
) -> torch.device | None:
    """The device on which what a model has on meta gets its memory; None when it has nothing there.

    `modules` are those of the model, with their names, and `tensors` its parameters.
    """
    devices = {tensor.device for tensor in tensors}
    real = {each for each in devices if each.type != "meta"}
    if len(real) > 1:
        names = " and ".join(sorted(map(str, real)))
        raise StiefelError(
            f"model is on several devices, {names}; move it to one with model.to(...), initialize it there and move "
            "its parts back: with a seed the values do not depend on the device."
        )
    buffers = [
        (f"{prefix}.{name}".removeprefix("."), name, module)
        for prefix, module in modules
        if module._buffers
        for name, buffer in module._buffers.items()
        if buffer is not None and buffer.is_meta
    ]
    if len(devices) == len(real) and not buffers:
        if device is not None and real - {_canonical(device)}:
            raise StiefelError(
                f"device={str(device)!r} is for a model on the meta device, and this one is on {real.pop()}; move it "
                "with model.to(...)."
            )
        return None
    running = ("running_mean", "running_var", "num_batches_tracked")
    for full, name, module in buffers:
        if not (isinstance(module, nn.modules.batchnorm._NormBase) and name in running):
            raise StiefelError(
                f"{full} is a buffer of {type(module).__name__} on the meta device and has no values; give it some on "
                "a real device first."
            )
    meshes = (tensor.device_mesh.device_type for tensor in tensors if is_sharded(tensor))  # type: ignore[attr-defined]
    return _canonical(device or next(iter(real), None) or next(meshes, None) or torch.get_default_device())


def _canonical(device: torch.device | str) -> torch.device:
    """The device as its tensors name it."""
    try:
        named = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise StiefelError(f"device={str(device)!r} cannot be used ({said(error)}); name one that is there.") from None
    if named.type == "meta":
        raise StiefelError("the meta device holds no values; name a real one to initialize on, as in device='cpu'.")
    return named


def materialize_(model: nn.Module, device: torch.device) -> None:
    """Give memory to what is on meta and keep what is not; tied parameters stay tied, running statistics start anew."""
    holders: dict[int, list[tuple[nn.Module, str]]] = {}
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and any(b.is_meta for b in module.buffers(recurse=False))
    ]
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            holders.setdefault(id(parameter), []).append((module, name))

    def memory(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device)

    model._apply(memory)
    for (first, name), *others in holders.values():
        for module, other in others:
            setattr(module, other, getattr(first, name))
    for norm in norms:
        norm.reset_running_stats()
