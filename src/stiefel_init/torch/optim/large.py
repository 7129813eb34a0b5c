"""Steps of large square matrices on a GPU, whose products run on its tensor cores: those of `geometry`.

Note [products in tf32]
    A tensor core keeps 11 binary digits of a float32 number and adds products in float32. So numbers of 11 digits are
    multiplied as exactly as in float32, and a number of 22 is the sum of two such parts. The turn is rounded to 11
    digits, entry by entry, so that it stays skew and its square is exact. Of W and of the factors R + N - I, whose
    errors would take W off the set, both parts are multiplied, all but low by low. So a step leaves W where exact
    products would, but for some 1e-6, and N, which takes that off, need not be computed at each. The generator of a
    gradient, the terms of the turn's third power, and Muon's polynomial need no more than tf32 gives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core import geometry
from ..sampling.tensors import on_device, products
from .kernel import adam_numbers, agrees

try:
    import triton
    import triton.language as tl
except ImportError:  # then products in float32 serve
    triton = None

LEAST = 128
EVERY = 4
"""Steps from one correction of W to the next: each adds at most 2e-6 to WᵀW - I, the longest turns the most."""
_TILE = 32


def fits(weights: Tensor) -> bool:
    """Whether these matrices can be stepped here."""
    m, n = weights.shape[-2:]
    suits = triton is not None and weights.is_cuda and weights.dtype == torch.float32 and m == n >= LEAST
    return suits and torch.cuda.get_device_capability(weights.device)[0] >= 8 and agrees(weights.device, _tried)


def _tried(device: torch.device) -> bool:
    """Two steps beside the plain ones, with an ε that keeps entries near 0 from turning with their rounding."""
    draws = torch.Generator().manual_seed(0)
    eye = torch.eye(LEAST + 5, dtype=torch.float64, device=device)
    plain: Any = [geometry.aligned(eye.expand(2, -1, -1)), *(torch.zeros(2, *eye.shape).to(eye) for _ in range(2))]
    start = plain[0]
    w, first, second = (each.float() for each in plain)
    for number in range(2):
        g = torch.randn(w.shape, generator=draws).to(device)
        steps = torch.full((), float(number), dtype=torch.float64, device=device)
        turned = adam_turn(w, g, first, second, adam_numbers(0.05, (0.9, 0.999), 1.0, steps))
        w = rotate(w, turned, corrected=number == 0)
        plain = geometry.adam_step(plain[0], g.double(), plain[1], plain[2], steps + 1, 0.05, eps=1.0)
    off = (w - plain[0]).norm() / (start - plain[0]).norm()
    return bool(off < 0.01) and bool((w.double() @ w.double().mT - eye).abs().max() < 1e-5)


def adam_turn(weights: Tensor, gradients: Tensor, first: Tensor, second: Tensor, numbers: Tensor) -> Tensor:
    """What `geometry.adam_step` turns by, not centred; the moments are updated in place.

    `numbers` are those of `kernel.adam_numbers`.
    """
    count, n, _ = weights.shape
    p = _half_of_product(gradients, weights)
    out = torch.empty_like(p)
    tiles = triton.cdiv(n, _TILE)
    with on_device(p):
        _adam[(count, tiles, tiles)](
            p, p.mean(-1) - p.mean(-2), first, second, out, numbers, numbers.stride(0) if len(numbers) > 1 else 0, n,
            SKEW=geometry.SKEW, TILE=_TILE,
        )  # fmt: skip
    return out


def generator(weights: Tensor, gradients: Tensor) -> Tensor:
    """`geometry.generator`."""
    p = _half_of_product(gradients, weights)
    mean = p.mean(-1, keepdim=True) - p.mean(-2, keepdim=True).mT
    return (p - p.mT).sub_(mean - mean.mT)


def orthogonalized(a: Tensor) -> Tensor:
    """`geometry.orthogonalized`; what rounding leaves of it is no longer skew."""
    with products(a.device.type, "tf32"):
        a = geometry.orthogonalized(a)
    return (a - a.mT).mul_(0.5)


def turn(w: Tensor) -> Tensor:
    """Room for a turn that is to be given to `rotate`."""
    return torch.empty_like(w)


def rotate(w: Tensor, z: Tensor, *, corrected: bool = True) -> Tensor:
    """`geometry.rotate` by the centred part of the skew Z, which is overwritten; only `corrected` with its N."""
    count, n, _ = w.shape
    w = w.contiguous()
    with on_device(w), products(w.device.type, "tf32"):
        mean = z.mean(-1)
        _shift(z, mean, -mean, rounded=True)
        high, low = (torch.empty_like(w) for _ in range(2))
        _split[(triton.cdiv(w.numel(), 1024),)](w, high, low, w.numel(), BLOCK=1024)
        y = z @ z.mT
        third = y @ z
        x, cross = (high @ high.mT, high @ low.mT) if corrected else (y, y)
        a, b, c, d, shorter = geometry.rotation(*geometry._spectrum(y), n, short=-1)  # all take three products
        one, factor = geometry.correction(*geometry._spectrum(x), n) if corrected else (0 * a, 0 * a)
        numbers = torch.cat([a - 1 + one, shorter**0.5 * b, -shorter * c, -(shorter**1.5) * d, factor], -1)
        factors_high, factors_low = z, y  # which are read once
        tiles = triton.cdiv(n, _TILE)
        _factors[(count, tiles, tiles)](
            y, x, cross, z, third, numbers, factors_high, factors_low, n, CORRECTED=corrected, TILE=_TILE
        )  # fmt: skip
        new = torch.baddbmm(w, factors_low, high).baddbmm_(factors_high, low).baddbmm_(factors_high, high)
        rows, columns = new.mean(-1), new.mean(-2)
        return _shift(new, rows, columns - rows.mean(-1, keepdim=True) - 1 / n)


def _half_of_product(gradients: Tensor, weights: Tensor) -> Tensor:
    with products(weights.device.type, "tf32"):
        return torch.baddbmm(gradients, gradients, weights.mT, beta=0, alpha=0.5)


def _shift(a: Tensor, rows: Tensor, columns: Tensor, *, rounded: bool = False) -> Tensor:
    """a - rows - columns, in place; `rounded` to 11 digits."""
    n = a.shape[-1]
    _shifted[(a.numel() // n, triton.cdiv(n, 1024))](a, rows, columns.contiguous(), n, ROUNDED=rounded, BLOCK=1024)
    return a


if triton is not None:

    @triton.jit
    def _rounded(x):  # type: ignore[no-untyped-def]
        """x to 11 digits, half a unit away from zero."""
        return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)

    @triton.jit
    def _shifted(a, rows, columns, n, ROUNDED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = column < n
        x = tl.load(a + row * n + column, mask=inside, other=0.0)
        x -= tl.load(rows + row) + tl.load(columns + row // n * n + column, mask=inside, other=0.0)
        tl.store(a + row * n + column, _rounded(x) if ROUNDED else x, mask=inside)

    @triton.jit
    def _split(w, high, low, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(w + at, mask=at < count, other=0.0)
        tl.store(high + at, _rounded(x), mask=at < count)
        tl.store(low + at, _rounded(x - _rounded(x)), mask=at < count)

    @triton.jit
    def _tiles(n, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
        """Offsets of the program's tile and of the one mirrored at the diagonal, and which entries are real."""
        row = tl.program_id(1) * TILE + tl.arange(0, TILE)
        column = tl.program_id(2) * TILE + tl.arange(0, TILE)
        matrix = tl.program_id(0).to(tl.int64) * n * n
        here = matrix + row[:, None] * n + column[None, :]
        there = matrix + column[:, None] * n + row[None, :]
        return row, column, here, there, (row < n)[:, None] & (column < n)[None, :]

    @triton.jit
    def _adam(  # type: ignore[no-untyped-def]
        p, mean, first, second, turn, numbers, number_stride, n, SKEW: tl.constexpr, TILE: tl.constexpr,
    ):  # fmt: skip
        """Of a skew matrix, the tiles on one side of the diagonal, which are written to both."""
        if tl.program_id(1) <= tl.program_id(2):
            row, column, here, there, real = _tiles(n, TILE)
            mirrored = tl.trans(real)
            mean += tl.program_id(0) * n
            numbers += tl.program_id(0) * number_stride
            rate, beta1, beta2 = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
            eps, start, root = tl.load(numbers + 3), tl.load(numbers + 4), tl.load(numbers + 5)
            k = tl.load(p + here, mask=real, other=0.0) - tl.trans(tl.load(p + there, mask=mirrored, other=0.0))
            means = tl.load(mean + row, mask=row < n, other=0.0), tl.load(mean + column, mask=column < n, other=0.0)
            k -= means[0][:, None] - means[1][None, :]  # skew to the last digit, as small entries will count
            moment1 = tl.load(first + here, mask=real, other=0.0)
            moment1 += (1 - beta1) * (k - moment1)
            moment2 = tl.load(second + here, mask=real, other=0.0)
            moment2 += (1 - beta2) * (k * k - moment2)
            z = moment1 / (tl.sqrt(moment2) + tl.where(real, eps * SKEW * root, 1.0)) * (-rate * SKEW * root / start)
            tl.debug_barrier()  # a tile on the diagonal is its own mirror image
            tl.store(first + here, moment1, mask=real)
            tl.store(second + here, moment2, mask=real)
            tl.store(turn + here, z, mask=real)
            if tl.program_id(1) < tl.program_id(2):
                tl.store(first + there, -tl.trans(moment1), mask=mirrored)
                tl.store(second + there, tl.trans(moment2), mask=mirrored)
                tl.store(turn + there, -tl.trans(z), mask=mirrored)

    @triton.jit
    def _factors(  # type: ignore[no-untyped-def]
        y, x, cross, z, third, numbers, high, low, n, CORRECTED: tl.constexpr, TILE: tl.constexpr,
    ):  # fmt: skip
        """R + N - I in two parts."""
        row, column, here, there, real = _tiles(n, TILE)
        numbers += tl.program_id(0) * 5
        factors = tl.where(row[:, None] == column[None, :], tl.load(numbers), 0.0)
        factors += tl.load(numbers + 1) * tl.load(z + here, mask=real, other=0.0)
        factors += tl.load(numbers + 2) * tl.load(y + here, mask=real, other=0.0)
        factors += tl.load(numbers + 3) * tl.load(third + here, mask=real, other=0.0)
        if CORRECTED:
            gram = tl.load(x + here, mask=real, other=0.0) + tl.load(cross + here, mask=real, other=0.0)
            gram += tl.trans(tl.load(cross + there, mask=tl.trans(real), other=0.0))
            factors += tl.load(numbers + 4) * gram
        tl.store(high + here, _rounded(factors), mask=real)
        tl.store(low + here, _rounded(factors - _rounded(factors)), mask=real)
