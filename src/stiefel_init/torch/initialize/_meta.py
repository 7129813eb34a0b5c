"""Models on the meta device: where they get their memory, and how."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...core.errors import StiefelError
from .sharded import is_sharded

_RUNNING = ("running_mean", "running_var", "num_batches_tracked")


def memory_device(
    modules: list[tuple[str, nn.Module]], tensors: list[Tensor], device: torch.device | str | None
) -> torch.device | None:
    """The device on which what a model has on meta gets its memory; None when it has nothing there.

    `modules` are those of the model, with their names, and `tensors` its parameters.
    """
    devices = {tensor.device for tensor in tensors}
    real = {one for one in devices if one.type != "meta"}
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
    for full, name, module in buffers:
        if not (isinstance(module, nn.modules.batchnorm._NormBase) and name in _RUNNING):
            raise StiefelError(
                f"{full} is a buffer of {type(module).__name__} on the meta device and has no values; give it some on "
                "a real device first."
            )
    meshes = (tensor.device_mesh.device_type for tensor in tensors if is_sharded(tensor))  # type: ignore[attr-defined]
    return _canonical(device or next(iter(real), None) or next(meshes, None) or torch.get_default_device())


def _canonical(device: torch.device | str) -> torch.device:
    """The device as its tensors name it."""
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise StiefelError(f"device={str(device)!r} cannot be used ({why}); name one that is there.") from None
    if found.type == "meta":
        raise StiefelError("the meta device holds no values; name a real one to initialize on, as in device='cpu'.")
    return found


def materialize_(model: nn.Module, device: torch.device) -> None:
    """Give memory to what is on meta and keep what is not; tied parameters stay tied, running statistics start anew."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and any(b.is_meta for b in module.buffers(recurse=False))
    ]
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            places.setdefault(id(parameter), []).append((module, name))

    def memory(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device)

    model._apply(memory)
    for (first, name), *others in places.values():
        for module, other in others:
            setattr(module, other, getattr(first, name))
    for norm in norms:
        norm.reset_running_stats()
