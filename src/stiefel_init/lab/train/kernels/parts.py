"""Products in parts: float32 matrix products on tensor cores that multiply 16-bit numbers. docs/engine.md explains why.

A number in parts is a pair (hi, lo) of float16 numbers. With PARTS == 2 they sum to the first 22 bits of a float32
number; with PARTS == 1 both are the same, and only hi is used.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def split(x, PARTS: tl.constexpr):
    """Split float32 into parts (hi, lo), each of x's shape."""
    hi = x.to(tl.float16)
    if PARTS == 1:
        return hi, hi
    else:
        return hi, (x - hi.to(tl.float32)).to(tl.float16)


@triton.jit
def transpose(parts):
    """Transpose each part."""
    hi, lo = parts
    return tl.trans(hi), tl.trans(lo)


@triton.jit
def scales(x, EXACT: tl.constexpr = False):
    """Powers of two (down, up) with down * up == 1, such that max |x| * down lies in [2¹⁴, 2¹⁵), float16's top.

    EXACT: x fits into float16 as it is.
    """
    if EXACT:
        return 1.0, 1.0
    else:
        power = tl.maximum(tl.max(tl.abs(x)).to(tl.int32, bitcast=True) & 0x7F800000, 15 << 23)
        down = (254 << 23) - power + (14 << 23)
        return down.to(tl.float32, bitcast=True), (power - (14 << 23)).to(tl.float32, bitcast=True)


@triton.jit
def product(a, b, acc, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False):
    """acc + a·b for a and b in parts, smallest products first. EXACT_A: a's hi part alone is all of a."""
    a_hi, a_lo = a
    b_hi, b_lo = b
    if PARTS == 2:
        if not EXACT_A:
            acc = tl.dot(a_lo, b_hi, acc, input_precision="ieee")
        acc = tl.dot(a_hi, b_lo, acc, input_precision="ieee")
    return tl.dot(a_hi, b_hi, acc, input_precision="ieee")


@triton.jit
def dot(a, b, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False):
    """a·b for float32 a and b: scale, split, multiply, and undo the scaling."""
    a_down, a_up = scales(a, EXACT_A)
    b_down, b_up = scales(b)
    a_parts = split(a * a_down, PARTS)
    b_parts = split(b * b_down, PARTS)
    zeros = tl.zeros((a.shape[0], b.shape[1]), tl.float32)
    return product(a_parts, b_parts, zeros, PARTS, EXACT_A) * a_up * b_up
