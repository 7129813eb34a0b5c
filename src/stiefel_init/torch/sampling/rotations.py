"""Rotations near the identity, in place where that can be, a part of a batch after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core import construct
from .tensors import Precision, full_precision

_BYTES = {"cpu": 1 << 20}  # of a part, so that what is computed stays in the caches
_BYTES_OTHER = 1 << 26
_STRIPS, _STRIPED_ROWS = 8, 512  # of a product on a CPU of which half is known, and from which size on


class Arrays(construct.Arrays):
    """`construct.Arrays` with PyTorch."""

    xp: Any = torch

    def bordered_skew(self, a: Tensor) -> Tensor:
        size = a.shape[-1] + 1
        out = a.new_zeros(len(a), size, size)
        torch.subtract(a, a.mT, out=out[:, 1:, 1:])
        return out

    def gram(self, a: Tensor) -> Tensor:
        size = a.shape[-1]
        if size < _STRIPED_ROWS or a.device.type != "cpu":
            return a @ a.mT
        out = torch.empty_like(a)
        for start in range(0, size, step := -(-size // _STRIPS)):
            stop = min(start + step, size)
            for one, whole in zip(out, a):
                torch.mm(whole[start:stop], whole[:stop].mT, out=one[start:stop, :stop])
            out[:, :start, start:stop] = out[:, start:stop, :start].mT
        return out

    def plus(self, a: Tensor, b: Tensor, factor: float) -> Tensor:
        return torch.add(a, b, alpha=factor)

    def add(self, a: Tensor, b: Tensor, factor: float) -> Tensor:
        return a.add_(b, alpha=factor)

    def add_product(self, a: Tensor, b: Tensor, c: Tensor, keep: float, factor: float) -> Tensor:
        return a.baddbmm_(b, c, beta=keep, alpha=factor)

    def add_identity(self, a: Tensor) -> Tensor:
        a.diagonal(dim1=-2, dim2=-1).add_(1)
        return a


def small(numbers: Tensor, u: Tensor, spread: float, precision: Precision = "ieee") -> Tensor:
    """`construct.small_rotations` by products of that precision."""
    count, size = len(numbers), len(u)
    part = max(1, _BYTES.get(u.device.type, _BYTES_OTHER) // (size * size * u.element_size()))
    eps = torch.finfo(u.dtype).eps
    with full_precision(u.device.type, precision):
        parts = [construct.small_rotations(Arrays(), some, u, spread, eps) for some in numbers.split(part)]
    return parts[0] if count <= part else torch.cat(parts)
