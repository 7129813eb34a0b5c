"""Products in parts: float32 matrix products on tensor cores that multiply 16-bit numbers. README.md explains why.

A number in parts is a tuple (hi, mid, lo). With PARTS == 3 these are bfloat16 and sum to the float32 number exactly;
with PARTS == 1 all three are the same float16 number, and only hi is used.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED: tl.constexpr = tl.constexpr(triton.knobs.runtime.interpret)


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
