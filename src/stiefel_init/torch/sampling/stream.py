"""The random stream of `stiefel_init.core.stream` as tensors: with NumPy on a CPU, with Triton kernels on a GPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...core import stream

try:
    import triton
    import triton.language as tl
except ImportError:  # then every device gets its numbers from NumPy
    triton = None

_BLOCK = 1024
_NUMPY = {torch.float64: np.float64, torch.float32: np.float32}


def normals(
    keys: np.ndarray, rows: tuple[int, int], columns: tuple[int, int], dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """The block [rows, columns] of the Gaussian matrix of each key of `keys`, of shape (…, 2), on `device`.

    On a GPU keys may be unfolded, of shape (…, 4).
    """
    if not on_gpu(device):
        return torch.from_numpy(stream.normals(keys, rows, columns, _NUMPY[dtype])).to(device)
    out = torch.empty(*keys.shape[:-1], rows[1] - rows[0], columns[1] - columns[0], dtype=dtype, device=device)
    first = columns[0] // 2
    _launch(out, keys, rows, first, (columns[1] + 1) // 2 - first, columns[0] % 2, True)
    return out


def words(keys: np.ndarray, rows: tuple[int, int], count: int, device: torch.device | str) -> Tensor:
    """The first `count` uniform 32-bit words of the given rows of each key, as int32."""
    if not on_gpu(device):
        out = stream.words(keys, rows, (0, (count + 1) // 2))
        flat = out.reshape(*out.shape[:-2], -1)[..., :count]
        return torch.from_numpy(np.ascontiguousarray(flat).view(np.int32)).to(device)
    result = torch.empty(*keys.shape[:-1], rows[1] - rows[0], count, dtype=torch.int32, device=device)
    _launch(result, keys, rows, 0, (count + 1) // 2, 0, False)
    return result


def on_gpu(device: torch.device | str) -> bool:
    """Whether the kernels make the numbers."""
    return triton is not None and torch.device(device).type == "cuda"


def _launch(
    out: Tensor, keys: np.ndarray, rows: tuple[int, int], first: int, pairs: int, odd: int, normal: bool
) -> None:
    height, width = out.shape[-2:]
    total = out.numel() // max(width, 1) * pairs
    if total == 0:
        return
    held = torch.from_numpy(np.ascontiguousarray(keys).view(np.int32)).to(out.device)
    _kernel[(triton.cdiv(total, _BLOCK),)](
        held, out, rows[0], height, first, pairs, width, odd, total,
        NORMAL=normal, WORDS=keys.shape[-1], BLOCK=_BLOCK,
    )  # fmt: skip


if triton is not None:

    @triton.jit
    def _mix(x0, x1, R: tl.constexpr):  # type: ignore[no-untyped-def]
        x0 = x0 + x1
        return x0, ((x1 << R) | (x1 >> (32 - R))) ^ x0

    @triton.jit
    def _four(x0, x1, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
        x0, x1 = _mix(x0, x1, A)
        x0, x1 = _mix(x0, x1, B)
        x0, x1 = _mix(x0, x1, C)
        return _mix(x0, x1, D)

    @triton.jit
    def threefry2x32(k0, k1, x0, x1):  # type: ignore[no-untyped-def]
        """`stiefel_init.core.stream.threefry2x32`, on uint32 blocks."""
        k2 = k0 ^ k1 ^ 0x1BD11BDA
        x0, x1 = _four(x0 + k0, x1 + k1, 13, 15, 26, 6)
        x0, x1 = _four(x0 + k1, x1 + k2 + 1, 17, 29, 16, 24)
        x0, x1 = _four(x0 + k2, x1 + k0 + 2, 13, 15, 26, 6)
        x0, x1 = _four(x0 + k0, x1 + k1 + 3, 17, 29, 16, 24)
        x0, x1 = _four(x0 + k1, x1 + k2 + 4, 13, 15, 26, 6)
        return x0 + k2, x1 + k0 + 5

    @triton.jit
    def _kernel(  # type: ignore[no-untyped-def]
        keys, out, row, height, first, pairs, width, odd, total,
        NORMAL: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < total
        line, pair = place // pairs, place % pairs
        owner = line // height
        k0 = tl.load(keys + WORDS * owner, mask=inside, other=0).to(tl.uint32, bitcast=True)
        k1 = tl.load(keys + WORDS * owner + 1, mask=inside, other=0).to(tl.uint32, bitcast=True)
        if WORDS == 4:
            low = tl.load(keys + WORDS * owner + 2, mask=inside, other=0).to(tl.uint32, bitcast=True)
            high = tl.load(keys + WORDS * owner + 3, mask=inside, other=0).to(tl.uint32, bitcast=True)
            k0, k1 = threefry2x32(k0, k1, low, high)
        w0, w1 = threefry2x32(k0, k1, (first + pair).to(tl.uint32), (row + line % height).to(tl.uint32))
        if NORMAL:
            # In float64, where no rounding of u to 1 needs a way around.
            radius = tl.sqrt(-2.0 * tl.log((w0.to(tl.float64) + 0.5) * 2.3283064365386962890625e-10))
            angle = w1.to(tl.int32, bitcast=True).to(tl.float64) * 1.4629180792671596e-09
            left, right = radius * tl.cos(angle), radius * tl.sin(angle)
        else:
            left, right = w0.to(tl.int32, bitcast=True), w1.to(tl.int32, bitcast=True)
        column = 2 * pair - odd
        at = out + line * width + column
        tl.store(at, left.to(out.dtype.element_ty), mask=inside & (column >= 0) & (column < width))
        tl.store(at + 1, right.to(out.dtype.element_ty), mask=inside & (column + 1 < width))
