"""Small members of Õ(m,n) on a GPU in one launch.

Drawn as a chain of library calls, a 64 × 64 matrix costs some twenty launches of a few microseconds of work each.
Here each program carries a few rows of Qᵀ (Note [a member from reflectors]) through all reflections, last first: the
rows never meet, but for the sum y = Qs/√p that the fixed left reflection needs, and that is one more row, which every
program carries for itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # then the chain of library calls serves
    triton = None

ROWS = 8  # of a program, one of which is the extra one
MOST_ROWS, MOST_COLUMNS = 128, 1024


def fits(out: Tensor) -> bool:
    """Whether the kernel can fill `out`, a batch of p × q matrices."""
    p, q = out.shape[-2:]
    return triton is not None and out.is_cuda and p <= MOST_ROWS and q <= MOST_COLUMNS


def fill_(out: Tensor, x: Tensor, aligned: bool) -> None:
    """Members (or, not aligned, Haar frames) from the Gaussian rows in `x`, of `out`'s shape and contiguous."""
    p, q = out.shape[-2:]
    target = out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    columns = max(16, triton.next_power_of_2(q))
    _kernel[(out.numel() // (p * q), triton.cdiv(p, ROWS - 1))](
        x, target, p, q, ALIGNED=aligned, ROWS=ROWS, COLUMNS=columns, num_warps=1 if columns <= 256 else columns // 128,
    )  # fmt: skip
    if target is not out:
        out.copy_(target)


if triton is not None:

    @triton.jit
    def _sign(x, pointer, q, index, inside, ALIGNED: tl.constexpr):  # type: ignore[no-untyped-def]
        """The sign of the first entry of vector `index`; +1 for the ones."""
        head = tl.load(pointer + index * (q + 1), mask=inside, other=0.0)
        negative = head < 0
        if ALIGNED:
            negative = negative & (index > 0)
        return tl.where(negative, -1.0, 1.0).to(x.dtype)

    @triton.jit
    def _kernel(  # type: ignore[no-untyped-def]
        x_pointer, out_pointer, p, q, ALIGNED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    ):  # fmt: skip
        matrix = tl.program_id(0).to(tl.int64)
        x_pointer += matrix * p * q
        out_pointer += matrix * p * q
        column = tl.arange(0, COLUMNS)
        slot = tl.arange(0, ROWS)
        row = tl.program_id(1) * (ROWS - 1) + slot
        extra = slot == ROWS - 1
        zero = tl.zeros((COLUMNS,), out_pointer.dtype.element_ty)
        # Not handed in: Triton takes a Python float in single precision.
        root_p = 1 / tl.sqrt(tl.zeros((), zero.dtype) + p)
        root_q = 1 / tl.sqrt(tl.zeros((), zero.dtype) + q)
        sign = tl.where(column < p, _sign(zero, x_pointer, q, column, column < p, ALIGNED), zero)
        a = tl.where(row[:, None] == column[None, :], 1.0, 0.0).to(zero.dtype)
        a = tl.where(extra[:, None], (sign * root_p)[None, :], a)
        for i in range(p):
            j = p - 1 - i
            x = tl.load(x_pointer + j * q + column, mask=(column >= j) & (column < q), other=0.0)
            if ALIGNED:
                x = tl.where(j == 0, tl.where(column < q, 1.0, 0.0).to(zero.dtype), x)
            head = tl.sum(tl.where(column == j, x, zero))
            norm = tl.sqrt(tl.sum(x * x))
            norm = tl.where(head < 0, -norm, norm)
            pivot = head + norm
            v = tl.where(column == j, pivot, x)
            a -= (tl.sum(a * v[None, :], 1) / (norm * pivot))[:, None] * v[None, :]
        mine = _sign(zero, x_pointer, q, row, row < p, ALIGNED)
        if ALIGNED:
            y = tl.sum(tl.where(extra[:, None], a, 0.0), 0)
            w = a * mine[:, None] + ((root_q - y) * (root_p / (1 + root_p)))[None, :]
            w = tl.where(row[:, None] == 0, -y[None, :], w)
        else:
            w = -a * mine[:, None]
        real = ((row < p) & (slot < ROWS - 1))[:, None] & (column < q)[None, :]
        tl.store(out_pointer + row[:, None] * q + column[None, :], w, mask=real)
