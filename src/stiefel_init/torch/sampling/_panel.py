"""Members of Õ(m,n) of middle size on a GPU: one launch and three library calls.

In the compact WY form (`_construct.frame`) a matrix of 512 × 512 takes the card a tenth of a millisecond, and the host
ten times as long to ask for: some twenty steps, most of them tiny. Where all reflectors fit into one block, one launch
does the tiny ones.

Note [one block]
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

MOST_ROWS = 1024
PRECISION = "tf32x3"  # of products, as Triton calls it; those of tf32 would leave the set
_TILE = 1024
_BLOCK, _DEPTH, _COLUMNS = 64, 32, 16


def fits(out: Tensor) -> bool:
    """Whether `fill_` can fill `out`, a p × q matrix."""
    return triton is not None and out.is_cuda and out.shape[-2] <= MOST_ROWS


def fill_(out: Tensor, x: Tensor, aligned: bool) -> None:
    """A member (or, not aligned, a Haar frame) from the Gaussian rows in `x`, of `out`'s shape and contiguous."""
    p, q = out.shape
    right = x.new_empty(p, p)
    rows = triton.next_power_of_2(p)
    _prepare[(p,)](x, right, out, p, q, *out.stride(), ALIGNED=aligned, ROWS=rows, TILE=_TILE, num_warps=4)
    if solves(x):
        triangle, blocks = torch.empty_like(right), triton.cdiv(p, _BLOCK)
        _products[(blocks, blocks)](x, triangle, p, q, PRECISION=PRECISION, BLOCK=_BLOCK, DEPTH=_DEPTH, num_warps=4)
        _solve[(triton.cdiv(p, _COLUMNS),)](
            triangle, right, p, blocks, PRECISION=PRECISION, BLOCK=_BLOCK, COLUMNS=_COLUMNS, num_warps=4
        )  # fmt: skip
    else:
        triangle = torch.mm(x, x.mT)
        torch.linalg.solve_triangular(triangle, right, upper=True, unitriangular=True, out=right)
    out.addmm_(right.mT, x, alpha=-1)


def solves(x: Tensor) -> bool:
    """Whether products and solves have kernels, too: where a library's solve would be launches more than work."""
    return x.dtype == torch.float32 and len(x) <= 512


if triton is not None:

    @triton.jit
    def _prepare(  # type: ignore[no-untyped-def]
        x_pointer, right_pointer, out_pointer, p, q, out_down, out_along,
        ALIGNED: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    ):  # fmt: skip
        """Row j of V, in place of `x`, of V₁ Mᵀ and of [M 0]."""
        j = tl.program_id(0)
        dtype = x_pointer.dtype.element_ty
        zero = tl.zeros((), dtype)
        x_row = x_pointer + j.to(tl.int64) * q
        out_row = out_pointer + j.to(tl.int64) * out_down
        column = tl.arange(0, ROWS)
        inside = column < p
        tile = tl.arange(0, TILE)

        # Other programs may have put v_kk in the place of x_kk by now; it has the same sign.
        heads = tl.load(x_pointer + column.to(tl.int64) * (q + 1), mask=inside, other=0.0)
        if ALIGNED:
            heads = tl.where(column == 0, 1.0, heads)
        sign = tl.where(heads < 0, -1.0, 1.0).to(dtype)

        first = tl.load(x_row + column, mask=inside & (column >= j), other=0.0)
        squares = tl.zeros((TILE,), dtype)
        for start in range(p, q, TILE):
            rest = tl.load(x_row + start + tile, mask=start + tile < q, other=0.0)
            squares += rest * rest
        square = tl.sum(first * first) + tl.sum(squares)
        head = tl.sum(tl.where(column == j, first, 0.0))
        if ALIGNED:  # the first vector is the ones
            first = tl.where((j == 0) & inside, 1.0, first).to(dtype)
            square = tl.where(j == 0, zero + q, square)
            head = tl.where(j == 0, zero + 1, head)
        norm = tl.sqrt(square.to(tl.float64))  # whose roots and quotients are exact, unlike those of float32
        scale = (1 / tl.sqrt(norm * (norm + tl.abs(head)))).to(dtype)
        pivot = (head + tl.where(head < 0, -norm, norm)).to(dtype)
        v = tl.where(column == j, pivot, first) * scale
        tl.store(x_row + column, v, mask=inside)
        for start in range(p, q, TILE):
            beyond = start + tile < q
            rest = tl.load(x_row + start + tile, mask=beyond, other=0.0)
            if ALIGNED:
                rest = tl.where(j == 0, 1.0, rest).to(dtype)
            tl.store(x_row + start + tile, rest * scale, mask=beyond)
            tl.store(out_row + (start + tile).to(tl.int64) * out_along, tl.zeros((TILE,), dtype), mask=beyond)

        signed = sign * v
        mine = tl.sum(tl.where(column == j, sign, 0.0))
        own = tl.where(column == j, mine, zero)
        if ALIGNED:
            root = 1 / tl.sqrt(zero + p)
            u = tl.where(inside, tl.where(column == 0, 1 + root, root), zero)
            mine_u = tl.where(j == 0, 1 + root, root)
            right = signed - u * (tl.sum(u * signed) / (1 + root))
            start_row = own - (mine_u / (1 + root)) * (u * sign)
        else:
            right = -signed
            start_row = -own
        tl.store(right_pointer + j.to(tl.int64) * p + column, right, mask=inside)
        tl.store(out_row + column.to(tl.int64) * out_along, start_row, mask=inside)

    @triton.jit
    def _products(  # type: ignore[no-untyped-def]
        v_pointer, triangle_pointer, p, q,
        PRECISION: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    ):  # fmt: skip
        """Block (i, k) of the upper triangle of VVᵀ; of those on the diagonal, its inverse."""
        i, k = tl.program_id(0), tl.program_id(1)
        if i > k:
            return
        place = tl.arange(0, BLOCK)
        row, other = i * BLOCK + place, k * BLOCK + place
        dtype = v_pointer.dtype.element_ty
        found = tl.zeros((BLOCK, BLOCK), dtype)
        for start in range(k * BLOCK, q, DEPTH):  # before these columns the rows of block k are zero
            column = start + tl.arange(0, DEPTH)
            left = tl.load(
                v_pointer + row.to(tl.int64)[:, None] * q + column[None, :],
                mask=(row < p)[:, None] & (column < q)[None, :], other=0.0,
            )  # fmt: skip
            right = tl.load(
                v_pointer + other.to(tl.int64)[None, :] * q + column[:, None],
                mask=(other < p)[None, :] & (column < q)[:, None], other=0.0,
            )  # fmt: skip
            found = tl.dot(left, right, found, input_precision=PRECISION, out_dtype=dtype)
        if i == k:
            above = tl.where(place[:, None] < place[None, :], found, 0.0).to(dtype)
            found = tl.where(place[:, None] == place[None, :], 1.0, 0.0).to(dtype)
            for step in range(BLOCK - 1):
                last = BLOCK - 1 - step
                known = tl.sum(tl.where(place[:, None] == last, found, 0.0), 0)
                weight = tl.sum(tl.where(place[None, :] == last, above, 0.0), 1)
                found -= weight[:, None] * known[None, :]
        inside = (row < p)[:, None] & (other < p)[None, :]
        tl.store(triangle_pointer + row[:, None] * p + other[None, :], found, mask=inside)

    @triton.jit
    def _solve(  # type: ignore[no-untyped-def]
        triangle_pointer, right_pointer, p, blocks,
        PRECISION: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
    ):  # fmt: skip
        """Some columns of C in place of those of V₁ Mᵀ, block after block of rows, from the last."""
        place = tl.arange(0, BLOCK)
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        dtype = right_pointer.dtype.element_ty
        for step in range(blocks):
            i = blocks - 1 - step
            row = i * BLOCK + place
            at = right_pointer + row[:, None] * p + column[None, :]
            inside = (row < p)[:, None] & (column < p)[None, :]
            rest = tl.load(at, mask=inside, other=0.0)
            for k in range(i + 1, blocks):
                other = k * BLOCK + place
                weight = tl.load(
                    triangle_pointer + row[:, None] * p + other[None, :],
                    mask=(row < p)[:, None] & (other < p)[None, :], other=0.0,
                )  # fmt: skip
                known = tl.load(
                    right_pointer + other[:, None] * p + column[None, :],
                    mask=(other < p)[:, None] & (column < p)[None, :], other=0.0,
                )  # fmt: skip
                rest = tl.dot(-weight, known, rest, input_precision=PRECISION, out_dtype=dtype)
            inverse = tl.load(
                triangle_pointer + row[:, None] * p + row[None, :],
                mask=(row < p)[:, None] & (row < p)[None, :], other=0.0,
            )  # fmt: skip
            tl.store(at, tl.dot(inverse, rest, input_precision=PRECISION, out_dtype=dtype), mask=inside)
            tl.debug_barrier()  # the next block reads what other threads of this program have stored
