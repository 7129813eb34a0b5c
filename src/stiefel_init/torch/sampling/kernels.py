"""Members of Õ(m,n) on a GPU: small ones in one launch, those of middle size in one block of reflections.

Note [one launch]
    Drawn as a chain of library calls, a 64 × 64 matrix costs some twenty launches of a few microseconds of work each.
    Here each program carries a few rows of Qᵀ (Note [a member from reflectors]) through all reflections, last first:
    the rows never meet, but for the sum y = Qs/√p that the fixed left reflection needs, and that is one more row, which
    every program carries for itself.

Note [one block]
    In the compact WY form (`construct.frame`) a matrix of 512 × 512 takes the card a tenth of a millisecond, and the
    host up to ten times as long to ask for: some twenty steps, most of them tiny. Where all reflectors fit into one
    block, one launch does the tiny ones. (Kernels for the products and the solve, too, save a fifth of the time, but
    their members are four times as far from orthonormal.)

    Scale the reflected vectors to v_j with H_j = I - v_j v_jᵀ. With these as the rows of V, T⁻¹ is the upper triangle
    of VVᵀ, its diagonal one, and Qᵀ = [I 0] - V₁ᵀ Tᵀ V, V₁ being V's first p columns. So the closing product with
    M = (I - 2uuᵀ/uᵀu) S of Note [a member from reflectors] can come first:

        W = [M 0] - Cᵀ V,  where C solves T⁻¹ C = V₁ Mᵀ.

    Row j of V, of [M 0] and of V₁ Mᵀ needs vector j and the signs of all: a program of its own.
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
LAUNCH_ROWS, LAUNCH_COLUMNS, BLOCK_ROWS = 128, 1024, 1024  # the largest matrices of either way
_TILE = 1024


def fits_one_launch(out: Tensor) -> bool:
    """Whether the kernel can fill `out`, a batch of p × q matrices."""
    p, q = out.shape[-2:]
    return triton is not None and out.is_cuda and p <= LAUNCH_ROWS and q <= LAUNCH_COLUMNS


def fill_in_one_launch_(out: Tensor, x: Tensor, aligned: bool) -> None:
    """Members (or, not aligned, Haar frames) from the Gaussian rows in `x`, of `out`'s shape and contiguous."""
    p, q = out.shape[-2:]
    target = out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    columns = max(16, triton.next_power_of_2(q))
    _reflect[(out.numel() // (p * q), triton.cdiv(p, ROWS - 1))](
        x, target, p, q, ALIGNED=aligned, ROWS=ROWS, COLUMNS=columns, num_warps=1 if columns <= 256 else columns // 128,
    )  # fmt: skip
    if target is not out:
        out.copy_(target)


def fits_one_block(out: Tensor) -> bool:
    """Whether `fill_in_one_block_` can fill `out`, a p × q matrix."""
    return triton is not None and out.is_cuda and out.shape[-2] <= BLOCK_ROWS


def fill_in_one_block_(out: Tensor, x: Tensor, aligned: bool) -> None:
    """A member (or, not aligned, a Haar frame) from the Gaussian rows in `x`, of `out`'s shape and contiguous.

    `x` is used up.
    """
    p, q = out.shape
    right = x.new_empty(p, p).mT  # by columns a library solves it more exactly
    _prepare[(p,)](
        x, right, out, p, q, *right.stride(), *out.stride(),
        ALIGNED=aligned, ROWS=triton.next_power_of_2(p), TILE=_TILE, num_warps=4,
    )  # fmt: skip
    triangle = torch.mm(x, x.mT)
    torch.linalg.solve_triangular(triangle, right, upper=True, unitriangular=True, out=right)
    out.addmm_(right.mT, x, alpha=-1)


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
    def _reflect(  # type: ignore[no-untyped-def]
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

    @triton.jit
    def _prepare(  # type: ignore[no-untyped-def]
        x_pointer, right_pointer, out_pointer, p, q, right_down, right_along, out_down, out_along,
        ALIGNED: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    ):  # fmt: skip
        """Row j of V, in place of `x`, of V₁ Mᵀ and of [M 0].

        All in float64: what H_j lacks in orthogonality is the rounding of v_j alone.
        """
        j = tl.program_id(0)
        x_row = x_pointer + j.to(tl.int64) * q
        out_row = out_pointer + j.to(tl.int64) * out_down
        column, tile = tl.arange(0, ROWS), tl.arange(0, TILE)
        inside, mine = column < p, column == j

        # Other programs may have put v_kk in the place of x_kk by now; it has the same sign.
        heads = tl.load(x_pointer + column.to(tl.int64) * (q + 1), mask=inside, other=0.0).to(tl.float64)
        x = tl.load(x_row + column, mask=inside & (column >= j), other=0.0).to(tl.float64)
        squares = tl.zeros((TILE,), tl.float64)
        for start in range(p, q, TILE):
            rest = tl.load(x_row + start + tile, mask=start + tile < q, other=0.0).to(tl.float64)
            squares += rest * rest
        square = tl.sum(x * x) + tl.sum(squares)
        if ALIGNED:  # the first vector is the ones
            heads = tl.where(column == 0, 1.0, heads)
            x = tl.where((j == 0) & inside, 1.0, x)
            square = tl.where(j == 0, q, square)
        sign = tl.where(heads < 0, -1.0, 1.0)
        norm = tl.sqrt(square)
        head = tl.sum(tl.where(mine, x, 0.0))
        scale = 1 / tl.sqrt(norm * (norm + tl.abs(head)))
        v = scale * (x + tl.where(mine, sign * norm, 0.0))
        tl.store(x_row + column, v, mask=inside)
        for start in range(p, q, TILE):
            beyond = start + tile < q
            rest = tl.load(x_row + start + tile, mask=beyond, other=0.0).to(tl.float64)
            if ALIGNED:
                rest = tl.where(j == 0, 1.0, rest)
            tl.store(x_row + start + tile, scale * rest, mask=beyond)
            tl.store(out_row + (start + tile).to(tl.int64) * out_along, tl.zeros_like(rest), mask=beyond)

        right, closing = sign * v, tl.where(mine, sign, 0.0)
        if ALIGNED:
            root = 1 / tl.sqrt(tl.zeros((), tl.float64) + p)
            u = tl.where(inside, root + tl.where(column == 0, 1.0, 0.0), 0.0)
            u_j = root + tl.where(j == 0, 1.0, 0.0)
            right -= u * (tl.sum(u * right) / (1 + root))
            closing -= u * sign * (u_j / (1 + root))
        else:
            right, closing = -right, -closing
        tl.store(right_pointer + j * right_down + column * right_along, right, mask=inside)
        tl.store(out_row + column.to(tl.int64) * out_along, closing, mask=inside)
