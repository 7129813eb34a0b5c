"""Semi-orthogonal matrices from random reflections, by whatever is fastest on the device: `fill_`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import construct
from . import kernels
from .tensors import WORKING, Precision, full_precision

_KINDS = {torch.float64: "float64", torch.float32: "float32"}

# Which way is fastest where, as benchmarks/sampler.py measured it. On a CPU one matrix of up to 256
# rows goes to LAPACK in one call; on a GPU up to 128 rows go to a kernel of their own, up to 1,024 to one
# that leaves large products; more rows, and on a CPU batches of small matrices, go to the compact WY form.
_LAPACK_ROWS = 256
_BATCHED_ROWS = 256
_BLOCK = {"cpu": 128}
_BLOCK_OTHER = 1024
_BATCHED_BLOCK = {"cpu": 32}
_BATCHED_BLOCK_OTHER = 256
_BATCHED_BYTES = {"cpu": 1 << 22}  # of a batch at once, so that the temporaries stay in the caches
_BATCHED_BYTES_OTHER = 1 << 28


# Gaussian numbers for rows start…stop-1 from column start on, of every matrix of the tensor: (like, start, stop)
Numbers = Callable[[Tensor, int, int], Tensor]


def fill_(out: Tensor, numbers: Callable[[slice], Numbers], *, aligned: bool, precision: Precision = "ieee") -> None:
    """Fill the matrices of `out`, of shape (…, m, n) and detached: uniform on Õ(m,n), or Haar if not `aligned`.

    `numbers` gives the Gaussian numbers of a part of the batch, counted in the order of its flattened dimensions;
    large matrices are made by products of the given `precision`.
    """
    wide = out if out.shape[-2] <= out.shape[-1] else out.mT
    if wide.ndim == 2:
        _matrix(wide, _squeezed(numbers(slice(0, 1))), aligned, precision)
    else:
        _batch(wide, numbers, aligned, precision)


def _matrix(out: Tensor, numbers: Numbers, aligned: bool, precision: Precision) -> None:
    p, q = out.shape
    if out.dtype not in WORKING:
        single = torch.empty(p, q, dtype=torch.float32, device=out.device)
        _matrix(single, numbers, aligned, precision)
        out.copy_(single)
    elif p <= _LAPACK_ROWS and out.device.type == "cpu":
        _lapack(out, numbers, aligned)
    elif kernels.fits_one_launch(out):
        kernels.fill_in_one_launch_(out, numbers(out, 0, p), aligned)
    elif kernels.fits_one_block(out):
        with full_precision(out.device.type):
            kernels.fill_in_one_block_(out, numbers(out, 0, p), aligned)
    else:
        _compact_wy(out, _BLOCK.get(out.device.type, _BLOCK_OTHER), numbers, aligned, precision)


def _batch(out: Tensor, numbers: Callable[[slice], Numbers], aligned: bool, precision: Precision) -> None:
    """`numbers` gives the source of a part of the batch, counted in the order of its flattened dimensions."""
    *batch, p, q = out.shape
    kind = out.device.type
    if p > _BATCHED_ROWS:
        for index, place in enumerate(np.ndindex(*batch)):
            _matrix(out[place], _squeezed(numbers(slice(index, index + 1))), aligned, precision)
        return
    dtype = out.dtype if out.dtype in WORKING else torch.float32
    direct = out.dtype == dtype and out.is_contiguous()
    members = (out if direct else torch.empty(out.shape, dtype=dtype, device=out.device)).view(-1, p, q)
    block = min(_BATCHED_BLOCK.get(kind, _BATCHED_BLOCK_OTHER), max(16, p // 4))
    chunk = max(1, _BATCHED_BYTES.get(kind, _BATCHED_BYTES_OTHER) // (p * q * members.element_size()))
    for start in range(0, len(members), chunk):
        part = slice(start, start + chunk)
        if kernels.fits_one_launch(members):
            kernels.fill_in_one_launch_(members[part], numbers(part)(members[part], 0, p), aligned)
        else:
            _compact_wy(members[part], block, numbers(part), aligned)
    if not direct:
        out.copy_(members.view(out.shape))


def _squeezed(numbers: Numbers) -> Numbers:
    """The source of one matrix from that of a batch of one."""
    return lambda like, start, stop: numbers(like, start, stop).view(stop - start, -1)


def _trapezoid(x: Tensor, first_ones: bool) -> Tensor:
    square = x[..., : x.shape[-2]]
    if x.ndim > 2 and x.device.type == "cpu":  # where triu_ takes a batch matrix by matrix
        square.mul_(torch.ones(square.shape[-2:], dtype=x.dtype).triu_())
    else:
        square.triu_()
    if first_ones:
        x.select(-2, 0).fill_(1)
    return x


def _lapack(out: Tensor, numbers: Numbers, aligned: bool) -> None:
    """Note [a member from reflectors], the product of the reflections applied by LAPACK's ormqr."""
    p, q = out.shape
    x = _trapezoid(numbers(out, 0, p), aligned)
    norm = construct.signed_norm(torch, x, torch.linalg.vector_norm(x, dim=1))
    pivot = x.diagonal() + norm
    x /= pivot.unsqueeze(1)  # LAPACK wants v_j = 1, and takes it as said
    start = out if q == p else out.zero_()[:, :p]
    if aligned:
        torch.mul(torch.from_numpy(construct.left_reflection(p, _KINDS[out.dtype])), norm.sign(), out=start)
    else:  # the frame itself is Haar, with the signs of the note
        start.zero_().diagonal().copy_(norm.sign().neg_())
    tau = pivot.div_(norm)
    if out.stride(0) == 1:  # a tall matrix, transposed: in LAPACK's order of columns as it lies
        torch.ormqr(x.mT, tau, out, left=False, transpose=True, out=out)
    else:
        torch.ormqr(x.mT, tau, out.mT, out=out.mT)


class _Ops:
    """`construct.Ops` in place on `out`, a matrix or a batch of them."""

    xp: Any = torch

    def __init__(self, out: Tensor) -> None:
        self.out = out

    def eye(self, p: int, q: int) -> Tensor:
        self.out.zero_().diagonal(dim1=-2, dim2=-1).fill_(1)
        return self.out

    def row_norms(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x, dim=-1)

    def add_diagonal(self, x: Tensor, value: Tensor) -> Tensor:
        x.diagonal(dim1=-2, dim2=-1).add_(value)
        return x

    def set_diagonal(self, x: Tensor, value: Tensor) -> Tensor:
        x.diagonal(dim1=-2, dim2=-1).copy_(value)
        return x

    def solve_right(self, lower: Tensor, b: Tensor) -> Tensor:
        if b.ndim == 2 or b.shape[-2] == b.shape[-1] or b.is_cuda:
            return torch.linalg.solve_triangular(lower, b, upper=False, left=False)
        # On a CPU a batch is solved matrix by matrix, but multiplied all at once.
        eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
        return b @ torch.linalg.solve_triangular(lower, eye, upper=False, left=False)

    def subtract_product(self, qt: Tensor, start: int, b: Tensor, v: Tensor) -> Tensor:
        target = qt[..., start:, start:]
        if target.ndim == 2:
            target.addmm_(b, v, alpha=-1)
        elif start == 0:
            target.baddbmm_(b, v, alpha=-1)
        else:
            target -= b @ v
        return qt


def _compact_wy(out: Tensor, block: int, numbers: Numbers, aligned: bool, precision: Precision = "ieee") -> None:
    """Note [a member from reflectors] for `out`, a matrix or a batch, in place where its memory is in order."""
    p, q = out.shape[-2:]
    if not out.is_contiguous():
        ordered = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        _compact_wy(ordered, block, numbers, aligned, precision)
        out.copy_(ordered)
        return

    def draw(start: int, stop: int) -> Tensor:
        return _trapezoid(numbers(out, start, stop), aligned and start == 0)

    with full_precision(out.device.type, precision):
        qt, signs = construct.frame(_Ops(out), draw, p, q, block)
        if not aligned:
            out.mul_(-signs.unsqueeze(-1))
            return
        y = signs.unsqueeze(-2) @ qt
    # (I - 2uuᵀ/uᵀu) S Qᵀ in one pass: every row but the first gets the same multiple of uᵀ S Qᵀ added,
    # in which the first row of S Qᵀ is known to be -ξ_q.
    root = 1 / math.sqrt(p)
    weight = root / (1 + root)
    torch.addcmul(torch.rsub(y, weight / math.sqrt(q), alpha=weight * root), qt, signs.unsqueeze(-1), out=out)
    torch.mul(y.squeeze(-2), -root, out=out.select(-2, 0))


def is_traced(out: Tensor) -> bool:
    """Whether `out` is inside `torch.compile` or `torch.func`, which do not follow writes into parts of it."""
    return torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(out)


def without_writing(out: Tensor, dtype: torch.dtype, generator: torch.Generator | None, *, aligned: bool) -> Tensor:
    """Matrices of the shape of `out`, of the same distribution as `fill_` gives, from library calls alone.

    S, a Haar matrix, is the signed Q of a Gaussian one. With H_k the reflection that swaps e_1 and -ξ_k, a member is
    H_q diag(1, S) H_p.
    """
    *batch, m, n = out.shape
    p, q, less = min(m, n), max(m, n), int(aligned)
    gaussian = out.new_empty((*batch, q - less, p - less), dtype=dtype).normal_(generator=generator)
    frame, triangle = torch.linalg.qr(gaussian)
    tall = frame * triangle.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
    if aligned:
        tall = torch.nn.functional.pad(tall, (1, 0, 1, 0))
        corner = torch.zeros(q, p, dtype=dtype, device=out.device)
        corner[0, 0] = 1
        tall = _reflected(_reflected(tall + corner).mT).mT
    return tall if m >= n else tall.mT


def _reflected(matrices: Tensor) -> Tensor:
    """H_k times matrices of k rows."""
    k = matrices.shape[-2]
    u = torch.full((k, 1), 1 / math.sqrt(k), dtype=matrices.dtype, device=matrices.device)
    u[0, 0] += 1
    return matrices - u @ ((u.mT @ matrices) / (1 + 1 / math.sqrt(k)))


def by_qr(out: Tensor, method: str, generator: torch.Generator | None) -> Tensor:
    """Members for the p × q matrices of `out`, by one of the paper's algorithms."""
    *batch, p, q = out.shape
    options: dict[str, Any] = {"dtype": out.dtype if out.dtype in WORKING else torch.float32, "device": out.device}

    def normal(rows: int, columns: int) -> Tensor:
        return torch.empty(*batch, rows, columns, **options).normal_(generator=generator)

    def array(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(**options)

    with full_precision(out.device.type):
        return construct.by_qr(torch, method, normal, array, p, q)
