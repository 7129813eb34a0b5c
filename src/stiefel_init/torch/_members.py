"""The members by name of `stiefel_init._members`, with PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .. import _construct, _members
from ._stream import normals

Orders = Callable[[int, int], Tensor]  # (matrices, columns) -> a permutation of the columns for each matrix
Inner = Callable[[int, int], Tensor]  # (matrices, size) -> float64 Gaussian matrices


def fill_(wide: Tensor, member: str, spread: float, orders: Orders, inner: Inner) -> None:
    """Fill the p × q matrices of `wide`, p ≤ q, where p divides q, with members that are not uniform."""
    p, q = wide.shape[-2:]
    k = q // p
    if member == "rotation":
        a = inner(math.prod(wide.shape[:-2]), p - 1) * (spread / math.sqrt(2 * p))
        turned = torch.eye(p, dtype=torch.float64, device=wide.device).repeat(len(a), 1, 1)
        if p > 1:
            v = torch.linalg.matrix_exp(a - a.mT)
            # matrix_exp leaves 1e-12 of what should be orthogonal; a Newton step towards the polar factor squares that.
            turned[:, 1:, 1:] = 1.5 * v - 0.5 * v @ (v.mT @ v)
        h = torch.tensor(_construct.left_reflection(p, "float64"), device=wide.device)
        turned = h @ turned @ h / math.sqrt(k)
        wide.copy_(turned.repeat_interleave(k, dim=-1).view(wide.shape))
        return
    wide.zero_()
    rows = torch.arange(q, device=wide.device) // k
    value = torch.tensor(1 / math.sqrt(k), dtype=wide.dtype, device=wide.device)
    if member == "identity":
        wide[..., rows, torch.arange(q, device=wide.device)] = value
        return
    flat = wide.unsqueeze(0) if wide.ndim == 2 else wide.flatten(0, -3)
    columns = orders(len(flat), q)
    flat[torch.arange(len(flat), device=wide.device).unsqueeze(1), rows, columns] = value
    if flat.data_ptr() != wide.data_ptr():  # the batch does not lie in order, so it was flattened into a copy
        wide.copy_(flat.view(wide.shape))


def from_generator(device: torch.device, generator: torch.Generator | None) -> tuple[Orders, Inner]:
    """Permutations and Gaussian numbers from torch's own generator."""

    def orders(count: int, columns: int) -> Tensor:
        if count == 1:
            return torch.randperm(columns, device=device, generator=generator).unsqueeze(0)
        return torch.empty(count, columns, dtype=torch.int64, device=device).random_(generator=generator).argsort(-1)

    def inner(count: int, size: int) -> Tensor:
        return torch.empty(count, size, size, dtype=torch.float64, device=device).normal_(generator=generator)

    return orders, inner


def from_stream(device: torch.device, keys: np.ndarray) -> tuple[Orders, Inner]:
    """Those that belong to the streams' keys, of shape (matrices, 2)."""

    def orders(count: int, columns: int) -> Tensor:
        return torch.from_numpy(np.stack([_members.order(key, columns) for key in keys])).to(device)

    def inner(count: int, size: int) -> Tensor:
        return normals(keys, (0, size), (0, size), torch.float64, device)

    return orders, inner
