"""Rotations near the identity, a part of a batch after the other, in memory that is used again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core import construct
from .tensors import Precision, full_precision

_BYTES = {"cpu": 1 << 18}  # of a part, so that what is computed stays in the caches
_BYTES_OTHER = 1 << 26


class Memory:
    """Memory on a CPU that is used again, for which the system takes as long as for many a product of matrices."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, use: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for that use; what was taken for it before is overwritten."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device)
        size, held = math.prod(shape), self._held.get(use)
        if held is None or held.numel() < size or held.dtype != dtype:
            held = self._held[use] = torch.empty(size, dtype=dtype)
        return held[:size].view(shape)


class Arrays(construct.Arrays):
    """`construct.Arrays` with PyTorch."""

    xp: Any = torch

    def __init__(self, memory: Memory | None = None) -> None:
        self.held = Memory() if memory is None else memory

    def memory(self, use: str, like: Tensor) -> Tensor:
        return self.held.take(use, tuple(like.shape), like.dtype, like.device)

    def bordered_skew(self, a: Tensor) -> Tensor:
        size = a.shape[-1] + 1
        out = self.held.take("skew", (len(a), size, size), a.dtype, a.device)
        out[:, 0], out[:, :, 0] = 0, 0
        torch.subtract(a, a.mT, out=out[:, 1:, 1:])
        return out

    def add(self, a: Tensor, b: Tensor, factor: float) -> Tensor:
        return a.add_(b, alpha=factor)

    def add_identity(self, a: Tensor, factor: float = 1.0) -> Tensor:
        a.diagonal(dim1=-2, dim2=-1).add_(factor)
        return a

    def mirrored(self, a: Tensor, b: Tensor, use: str, sign: int = 1) -> Tensor:
        return super().mirrored(a, b, use, sign) if a.device.type == "cpu" else a @ b


def small_(
    out: Tensor,
    numbers: Callable[[slice], Tensor],
    u: Tensor,
    spread: float,
    precision: Precision,
    memory: Memory,
) -> None:
    """`construct.small_rotations` by products of that precision, of the numbers for each part of the batch."""
    part = max(1, _BYTES.get(u.device.type, _BYTES_OTHER) // (len(u) ** 2 * u.element_size()))
    eps, arrays = torch.finfo(u.dtype).eps, Arrays(memory)
    with full_precision(u.device.type, precision):
        for start in range(0, len(out), part):
            some = slice(start, start + part)
            out[some] = construct.small_rotations(arrays, numbers(some), u, spread, eps)
