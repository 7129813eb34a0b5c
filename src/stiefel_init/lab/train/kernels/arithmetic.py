"""Arithmetic of a program: products in parts, activations and their derivatives. README.md explains products in parts.

A number in parts is a tuple (hi, mid, lo). With PARTS == 3 these are bfloat16 and sum to the float32 number exactly;
with PARTS == 1 all three are the same float16 number, and only hi is used.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ....theory import ACTIVATIONS
from ....theory.moments import LEAKY_SLOPE, SELU_ALPHA, SELU_SCALE

INTERPRETED: tl.constexpr = tl.constexpr(triton.knobs.runtime.interpret)
RELU, LEAKY_RELU, PRELU, ELU, SELU = (
    tl.constexpr(ACTIVATIONS.index(name)) for name in ("relu", "leaky_relu", "prelu", "elu", "selu")
)
TAILORED, TANH, GELU, SILU = (tl.constexpr(len(ACTIVATIONS) + place) for place in range(4))
_LEAKY_SLOPE: tl.constexpr = tl.constexpr(LEAKY_SLOPE)
_SELU_ALPHA: tl.constexpr = tl.constexpr(SELU_ALPHA)
_SELU_SCALE: tl.constexpr = tl.constexpr(SELU_SCALE)


@triton.jit
def _truncate(x):
    """Cut x down to the digits that bfloat16 holds. The result is still float32."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _to_bfloat16(x):
    """The same as bfloat16, or as float32 in Triton's interpreter, which cannot multiply bfloat16."""
    if INTERPRETED:
        return _truncate(x)
    else:
        return (x.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def split(x, PARTS: tl.constexpr):
    """Split float32 into parts (hi, mid, lo), each of x's shape."""
    if PARTS == 1:
        half = x.to(tl.float16)
        return half, half, half
    else:
        rest = x - _truncate(x)
        return _to_bfloat16(x), _to_bfloat16(rest), _to_bfloat16(rest - _truncate(rest))


@triton.jit
def transpose(parts):
    """Transpose each part."""
    hi, mid, lo = parts
    return tl.trans(hi), tl.trans(mid), tl.trans(lo)


@triton.jit
def scales(x, PARTS: tl.constexpr):
    """Powers of two (down, up) with down * up == 1, such that max |x| * down lies in [2¹⁴, 2¹⁵), float16's top."""
    if PARTS == 3:  # bfloat16 has the range of float32
        return 1.0, 1.0
    else:
        power = tl.maximum(tl.max(tl.abs(x)).to(tl.int32, bitcast=True) & 0x7F800000, 15 << 23)
        down = (254 << 23) - power + (14 << 23)
        return down.to(tl.float32, bitcast=True), (power - (14 << 23)).to(tl.float32, bitcast=True)


@triton.jit
def product(a, b, acc, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False):
    """acc + a·b for a and b in parts, smallest products first. EXACT_A: a's hi part alone is all of a."""
    a_hi, a_mid, a_lo = a
    b_hi, b_mid, b_lo = b
    if PARTS == 3:
        if not EXACT_A:
            acc = tl.dot(a_lo, b_hi, acc, input_precision="ieee")
            acc = tl.dot(a_mid, b_mid, acc, input_precision="ieee")
        acc = tl.dot(a_hi, b_lo, acc, input_precision="ieee")
        if not EXACT_A:
            acc = tl.dot(a_mid, b_hi, acc, input_precision="ieee")
        acc = tl.dot(a_hi, b_mid, acc, input_precision="ieee")
    return tl.dot(a_hi, b_hi, acc, input_precision="ieee")


@triton.jit
def dot(a, b, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False):
    """a·b for float32 a and b: scale, split, multiply, and undo the scaling."""
    a_down, a_up = scales(a, 3 if EXACT_A else PARTS)
    b_down, b_up = scales(b, PARTS)
    a_parts = split(a * a_down, PARTS)
    b_parts = split(b * b_down, PARTS)
    zeros = tl.zeros((a.shape[0], b.shape[1]), tl.float32)
    return product(a_parts, b_parts, zeros, PARTS, EXACT_A) * a_up * b_up


@triton.jit
def _expm1(y):
    """exp(y) - 1 for y ≤ 0, and 0 above. Near 0 by its series, because exp(y) - 1 cancels there."""
    y = tl.minimum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    series = y + y * y * (0.5 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120 + y * (1 / 720)))))
    return tl.where(y > -0.25, series, tl.exp(y) - 1)


@triton.jit
def _sigmoid(y):
    return 1.0 / (1.0 + tl.exp(-y))


@triton.jit
def _normal_cdf(y):
    return 0.5 + 0.5 * tl.erf(y * 0.7071067811865476)


@triton.jit
def activate(y, slope, ACTIVATION: tl.constexpr, SCALE: tl.constexpr):
    """The activation of y. A NaN stays a NaN, so that it shows in the loss."""
    if ACTIVATION == RELU:
        return tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == LEAKY_RELU:
        return tl.where(y > 0, y, y * _LEAKY_SLOPE)
    elif ACTIVATION == PRELU:
        return tl.where(y > 0, y, y * slope)
    elif ACTIVATION == TAILORED:
        return SCALE * tl.where(y > 0, y, y * slope)
    elif ACTIVATION == ELU:
        return tl.where(y > 0, y, _expm1(y))
    elif ACTIVATION == TANH:
        less = _expm1(-2.0 * tl.abs(y))
        return tl.where(y > 0, -less, less) / (2.0 + less)
    elif ACTIVATION == GELU:
        return y * _normal_cdf(y)
    elif ACTIVATION == SILU:
        return y * _sigmoid(y)
    else:
        return _SELU_SCALE * tl.where(y > 0, y, _SELU_ALPHA * _expm1(y))


@triton.jit
def derivative(dx, kept, up, slope, ACTIVATION: tl.constexpr, SCALE: tl.constexpr):
    """The loss's derivative by the activation's input, given dx, that by its output.

    kept * up is the output, or for PReLU, GELU and SiLU the input.
    """
    if ACTIVATION == RELU:
        return tl.where(kept > 0, dx, 0.0)
    elif ACTIVATION == LEAKY_RELU:
        return tl.where(kept > 0, dx, dx * _LEAKY_SLOPE)
    elif ACTIVATION == PRELU:
        return tl.where(kept > 0, dx, dx * slope)
    elif ACTIVATION == TAILORED:
        return SCALE * tl.where(kept > 0, dx, dx * slope)
    elif ACTIVATION == ELU:
        return tl.where(kept > 0, dx, dx * (kept.to(tl.float32) * up + 1.0))
    elif ACTIVATION == TANH:
        x = kept.to(tl.float32) * up
        return dx * (1.0 - x * x)
    elif ACTIVATION == GELU:
        y = kept.to(tl.float32) * up
        return dx * (_normal_cdf(y) + y * (0.3989422804014327 * tl.exp(-0.5 * y * y)))
    elif ACTIVATION == SILU:
        y = kept.to(tl.float32) * up
        share = _sigmoid(y)
        return dx * (share * (1.0 + y * (1.0 - share)))
    else:
        return dx * tl.where(kept > 0, _SELU_SCALE, kept.to(tl.float32) * up + _SELU_SCALE * _SELU_ALPHA)
