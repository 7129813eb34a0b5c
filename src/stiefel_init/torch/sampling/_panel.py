"""Members of Õ(m,n) of middle size on a GPU in a few launches.

In the compact WY form (`_construct.frame`) a matrix of 512 × 512 takes the card a tenth of a millisecond, and the host
up to ten times as long to ask for: some twenty steps, most of them tiny. Where all reflectors fit into one block, one
launch does the tiny ones. (Kernels for the products and the solve, too, save a fifth of the time, but their members are
four times as far from orthonormal.)

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
_TILE = 1024


def fits(out: Tensor) -> bool:
    """Whether `fill_` can fill `out`, a p × q matrix."""
    return triton is not None and out.is_cuda and out.shape[-2] <= MOST_ROWS


def fill_(out: Tensor, x: Tensor, aligned: bool) -> None:
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
