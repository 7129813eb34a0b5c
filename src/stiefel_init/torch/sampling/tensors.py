"""Checks of tensors that are to be filled, and a weight viewed as the matrices it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ...core import validate
from ...core.errors import StiefelError

WORKING = (torch.float64, torch.float32)  # what matrices are computed in
Precision = Literal["ieee", "tf32"]
DTYPES = (*WORKING, torch.bfloat16, torch.float16)
_NAMES = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)


def flaw(tensor: Tensor) -> str | None:
    """Why a tensor cannot be filled and what to do about it, as the rest of a sentence about it; None if it can."""
    if tensor.dtype not in DTYPES:
        return f"has dtype {tensor.dtype}, not one of {_NAMES}; initialize it in one of these"
    if tensor.layout != torch.strided:
        return f"has layout {tensor.layout}; make it dense"
    if not tensor.is_contiguous() and _overlaps(tensor):
        return f"has strides {tensor.stride()}, so that several of its entries share memory; replace it with its clone"
    return None


def check(tensor: Tensor, generator: torch.Generator | None = None) -> None:
    """Refuse a tensor that is not a weight that can be filled."""
    if not isinstance(tensor, Tensor):
        raise StiefelError(f"tensor is a {type(tensor).__name__}; give a torch.Tensor.")
    if (trouble := flaw(tensor)) is not None:
        raise StiefelError(f"tensor {trouble}.")
    if tensor.ndim < 2:
        raise StiefelError(f"tensor has shape {tuple(tensor.shape)}; a weight needs two or more dimensions.")
    check_generator(generator, tensor)


def check_dtype(tensor: Tensor, what: str) -> None:
    """Refuse a tensor of a dtype that no initializer here can fill."""
    if tensor.dtype not in DTYPES:
        raise StiefelError(f"{what}={tensor.dtype} is not supported; use one of {_NAMES}.")


def check_generator(generator: torch.Generator | None, tensor: Tensor) -> None:
    """Refuse a generator on another device than the tensor."""
    if generator is not None and generator.device.type != tensor.device.type and not tensor.is_meta:
        kind = tensor.device.type
        raise StiefelError(
            f"generator is on {generator.device.type}, the tensor on {kind}; make it with torch.Generator({kind!r})."
        )


def on_device(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make the tensor's GPU the current one, which is where Triton launches its kernels."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _overlaps(tensor: Tensor) -> bool:
    """Whether two entries may share memory: some stride does not step over all that smaller strides reach."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride <= reach:
            return tensor.numel() > 0
        reach += stride * (size - 1)
    return False


def matrices(tensor: Tensor, batch_dims: int) -> Tensor:
    """The m × n matrices of `tensor`, detached: its own memory where that lies in order, else new memory."""
    batch_dims = validate.size("batch_dims", batch_dims)
    if batch_dims > tensor.ndim - 2:
        raise StiefelError(
            f"batch_dims={batch_dims} leaves fewer than two of the dimensions {tuple(tensor.shape)} for a matrix; "
            f"give at most {tensor.ndim - 2}."
        )
    if tensor.is_contiguous() and tensor.ndim == batch_dims + 2:
        return tensor.detach()
    shape = *tensor.shape[: batch_dims + 1], math.prod(tensor.shape[batch_dims + 1 :])
    if tensor.is_contiguous():
        return tensor.detach().view(shape)
    return tensor.detach().new_empty(shape, dtype=tensor.dtype if tensor.dtype in WORKING else torch.float32)


def write(tensor: Tensor, matrix: Tensor) -> Tensor:
    """Copy `matrix`, of `matrices`, into `tensor`, unless it is the tensor's own memory."""
    if not tensor.is_contiguous() and not tensor.is_meta:
        tensor.detach().copy_(matrix.reshape(tensor.shape))
    return tensor


@contextmanager
def products(device: str, precision: Precision) -> Iterator[None]:
    """Products of float32 matrices on a kind of device, in float32 itself or in tf32; afterwards as before.

    PyTorch before 2.9 has one setting for all devices.
    """
    backend: Any = {"cuda": torch.backends.cuda, "cpu": torch.backends.mkldnn}.get(device)
    if backend is None:
        yield
        return
    change: Callable[[str], object]
    if hasattr(backend, "matmul") and hasattr(backend.matmul, "fp32_precision"):
        before, change = backend.matmul.fp32_precision, partial(setattr, backend.matmul, "fp32_precision")
        change(precision)
    else:
        before, change = torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision
        change("highest" if precision == "ieee" else "high")
    try:
        yield
    finally:
        change(before)


@contextmanager
def full_precision(device: str, precision: Precision = "ieee") -> Iterator[None]:
    """Full float32 products, or those of tf32, whatever tf32, bf16 or autocast settings the caller has."""
    autocast = torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
    with autocast, products(device, precision):
        yield


def precision_for(target: Tensor) -> Precision:
    """Of products that make its matrices: tf32 on a GPU where rounding to bfloat16 takes more digits off than that."""
    return "tf32" if target.dtype == torch.bfloat16 and target.is_cuda else "ieee"
