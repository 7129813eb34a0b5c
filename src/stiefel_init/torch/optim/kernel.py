"""A step of many small square matrices on a GPU in one launch: each program takes one matrix from its gradient to its
next member, and reads and writes weight and moments once. The steps are those of `geometry`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core import geometry
from ..sampling.tensors import on_device

try:
    import triton
    import triton.language as tl
except ImportError:  # then the chain of library calls serves
    triton = None

MOST = 64  # larger tiles do not fit the registers of a program
KINDS = {"adam": 0, "sgd": 1}
PRECISION = "tf32x3"  # of products, as Triton calls it: those of tf32 would leave the set
WARPS = 4  # of the largest tile


def fits(weights: Tensor) -> bool:
    """Whether the kernel can step these matrices."""
    m, n = weights.shape[-2:]
    suits = triton is not None and weights.is_cuda and weights.dtype == torch.float32 and m == n <= MOST
    return suits and agrees(weights.device)


_AGREES: dict[Any, bool] = {}


def agrees(device: torch.device, tried: Callable[[torch.device], bool] | None = None) -> bool:
    """Whether the kernel does there what the plain steps do, tried once; what fails or differs is not used.

    `tried` compares other kernels with the plain steps.

    Compilers for GPUs come in many versions, and a wrong weight would go unnoticed. While a CUDA graph is captured
    nothing can be tried, and the plain steps serve.
    """
    key = device, tried
    if key not in _AGREES:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return False
        try:
            _AGREES[key] = (tried or _tried)(device)
        except Exception as error:  # whatever a compiler raises
            _AGREES[key] = False
            warnings.warn(
                f"a kernel for matrices on the set does not run on {device} ({type(error).__name__}); slower steps are "
                "used instead.",
                RuntimeWarning,
                stacklevel=2,
            )
    return _AGREES[key]


def _tried(device: torch.device) -> bool:
    """Two steps of each kind beside the plain ones."""
    generator = torch.Generator().manual_seed(0)
    for n in (3, 40):
        start = torch.linalg.qr(torch.randn(2, n, n, generator=generator)).Q.to(device)
        for kind in KINDS:
            w, plain = start, start.double()
            moments = [torch.zeros_like(w), torch.zeros_like(w)]
            theirs: list[Any] = [moment.double() for moment in moments]
            for number in range(2):
                g = torch.randn(2, n, n, generator=generator).to(device)
                steps = torch.full((2, 1, 1), float(number), dtype=torch.float64, device=device)
                if kind == "adam":
                    numbers = adam_numbers(0.01, (0.9, 0.999), 1e-8, steps)
                    first, second = theirs
                    plain, *theirs = geometry.adam_step(plain, g.double(), first, second, steps + 1, 0.01)
                else:
                    numbers = sgd_numbers(0.01, 0.9, False, steps)
                    plain, theirs[0] = geometry.sgd_step(plain, g.double(), theirs[0], 0.01, decay=0.9)
                w = step(w, g, tuple(moments if kind == "adam" else moments[:1]), kind, numbers)
            if not bool((w - plain).abs().max() < 1e-4):
                return False
    return True


def step(
    weights: Tensor, gradients: Tensor, moments: tuple[Tensor, ...], kind: str, numbers: Tensor, *, ones: bool = True
) -> Tensor:
    """The next members; moments, which are contiguous, are updated in place.

    Weights, gradients and moments, first and second ("adam") or the momentum ("sgd"), are of shape (k, n, n), in
    float32. `numbers`, of shape (k, 6) or (1, 6), in float32, are on the device, so that a CUDA graph may change them:
    rate, β₁, β₂, ε, 1 - β₁ᵗ, √(1 - β₂ᵗ) ("adam"); rate, decay, whether Nesterov's ("sgd"). Without `ones`, weights
    stay orthogonal, and no more.
    """
    n = weights.shape[-1]
    weights, gradients = weights.contiguous(), gradients.contiguous()
    out = torch.empty_like(weights)
    tile = max(16, triton.next_power_of_2(n))
    with on_device(weights):
        _kernel[(len(weights),)](
            weights, gradients, moments[0], moments[-1], out, numbers, numbers.stride(0) if len(numbers) > 1 else 0, n,
            LARGEST=geometry.LARGEST_TURN**2, SHORT=geometry.SHORT, SAFE=geometry.SAFE, SKEW=geometry.SKEW,
            KIND=KINDS[kind], ONES=ones, PRECISION=PRECISION, TILE=tile, num_warps=4 if tile < MOST else WARPS,
        )  # fmt: skip
    return out


def adam_numbers(rate: Any, betas: tuple[float, float], eps: float, steps: Tensor) -> Tensor:
    """Of Adam, whose `steps` before this one, of shape () or (k, 1, 1), are in float64."""
    logs = [math.log(beta) if beta else -math.inf for beta in betas]
    return _row_of_numbers(steps, rate, *betas, eps, *logs)


def sgd_numbers(rate: Any, decay: float, nesterov: bool, like: Tensor) -> Tensor:
    """Of gradient descent."""
    return _row_of_numbers(like.new_zeros(1, dtype=torch.float64), rate, decay, float(nesterov), 0.0, 0.0, 0.0)


def _row_of_numbers(steps: Tensor, rate: Any, *given: float) -> Tensor:
    out = torch.empty(steps.numel(), 6, dtype=torch.float32, device=steps.device)
    # A CUDA graph cannot hold a copy from the host, but it can hold a number.
    held = isinstance(rate, Tensor) and rate.device == out.device
    with on_device(out):
        _numbers[(len(out),)](out, steps, rate if held else steps, 0.0 if held else float(rate), *given, HELD=held)
    return out


if triton is not None:

    @triton.jit
    def _numbers(  # type: ignore[no-untyped-def]
        out, steps, rates, rate, second, third, fourth, log1, log2, HELD: tl.constexpr,
    ):  # fmt: skip
        out += 6 * tl.program_id(0)
        taken = tl.load(steps + tl.program_id(0)) + 1
        tl.store(out, tl.load(rates) if HELD else rate)
        tl.store(out + 1, second)
        tl.store(out + 2, third)
        tl.store(out + 3, fourth)
        # In float64 and from logarithms, since 1 - β₂ᵗ cancels.
        tl.store(out + 4, 1 - tl.exp(taken * log1))
        tl.store(out + 5, tl.sqrt(1 - tl.exp(taken * log2)))

    @triton.jit
    def _centred(k, size, real, ONES: tl.constexpr):  # type: ignore[no-untyped-def]
        """C K C of a skew K whose entries outside `real` are 0; without ONES, K itself."""
        if not ONES:
            return k
        mean = tl.sum(k, 1) / size
        # As K is skew, the means of its columns are minus those of its rows. So it stays skew to the last digit, which
        # matters where Adam makes small entries large.
        return tl.where(real, k - (mean[:, None] - mean[None, :]), 0.0)

    @triton.jit
    def _highest(mean, squares, size, others):  # type: ignore[no-untyped-def]
        """What no eigenvalue of a symmetric matrix is above: mean + √others · standard deviation."""
        return mean + tl.sqrt(others) * tl.sqrt(tl.maximum(squares / size - mean * mean, 0.0))

    @triton.jit
    def _kernel(  # type: ignore[no-untyped-def]
        weight_pointer, gradient_pointer, first_pointer, second_pointer, out_pointer, number_pointer, number_stride, n,
        LARGEST: tl.constexpr, SHORT: tl.constexpr, SAFE: tl.constexpr, SKEW: tl.constexpr, KIND: tl.constexpr,
        ONES: tl.constexpr, PRECISION: tl.constexpr, TILE: tl.constexpr,
    ):  # fmt: skip
        matrix = tl.program_id(0).to(tl.int64)
        row, column = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
        real = (row < n) & (column < n)
        diagonal = (row == column) & real
        size = tl.zeros((), tl.float32) + n  # not n itself, which for 1 is no tensor
        offset = matrix * n * n + row * n + column
        number_pointer += matrix * number_stride
        rate = tl.load(number_pointer)
        w = tl.load(weight_pointer + offset, mask=real, other=0.0)  # (n, n), as all tiles
        g = tl.load(gradient_pointer + offset, mask=real, other=0.0)

        # The generator of the Riemannian gradient
        p = tl.dot(g, tl.trans(w), input_precision=PRECISION)
        k = _centred(0.5 * (p - tl.trans(p)), size, real, ONES)

        # The turn
        first = tl.load(first_pointer + offset, mask=real, other=0.0)
        if KIND == 0:
            beta1, beta2 = tl.load(number_pointer + 1), tl.load(number_pointer + 2)
            eps, start, root = tl.load(number_pointer + 3), tl.load(number_pointer + 4), tl.load(number_pointer + 5)
            second = tl.load(second_pointer + offset, mask=real, other=0.0)
            first = first + (1 - beta1) * (k - first)
            second = second + (1 - beta2) * (k * k - second)
            tl.store(second_pointer + offset, second, mask=real)
            quotient = first / (tl.sqrt(second) + tl.where(real, eps * SKEW * root, 1.0))
            z = quotient * (-rate * SKEW * root / start)
        else:
            decay, nesterov = tl.load(number_pointer + 1), tl.load(number_pointer + 2)
            first = decay * first + k
            z = -rate * tl.where(nesterov > 0, k + decay * first, first)
        tl.store(first_pointer + offset, first, mask=real)
        z = _centred(z, size, real, ONES)

        # `geometry.rotation`
        y = tl.dot(z, tl.trans(z), input_precision=PRECISION)
        h = _highest(tl.sum(z * z) / size, tl.sum(y * y), size, tl.maximum(size, 2.0) / 2 - 1)
        shorter = tl.minimum(LARGEST / tl.maximum(h, 1e-12), 1.0)
        h = h * shorter
        high = tl.where(h <= SHORT, 0.0, 1.0)
        near = tl.sqrt(1 + h * h / 32)
        a = tl.where(h <= SHORT, near, tl.sqrt(1 - h * h * h / 2048))
        b = tl.where(h <= SHORT, tl.sqrt(near - h / 4), 1 - h / 32 + h * h / 256)
        c = 0.5 - high * h / 32
        turn = tl.dot(tl.where(diagonal, b, 0.0) - (high / 8 * shorter) * y, z, input_precision=PRECISION)

        # `geometry.correction`
        x = tl.dot(w, tl.trans(w), input_precision=PRECISION)
        highest = _highest(tl.sum(w * w) / size, tl.sum(x * x), size, size - 1)
        down = tl.minimum(SAFE / tl.maximum(highest, 1e-30), 1.0)
        one, factor = 1.5 * tl.sqrt(down) - 1, -0.5 * down * tl.sqrt(down)

        factors = tl.where(diagonal, a + one, 0.0) - (c * shorter) * y + factor * x + tl.sqrt(shorter) * turn
        w = tl.dot(factors, w, input_precision=PRECISION)
        if ONES:  # `geometry.aligned`
            rows, columns = tl.sum(w, 1) / size, tl.sum(w, 0) / size
            w = w - rows[:, None] - columns[None, :] + ((tl.sum(rows) + 1) / size)
        tl.store(out_pointer + offset, w, mask=real)
