"""Activations and their derivatives."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ....theory import ACTIVATIONS
from ....theory.moments import LEAKY_SLOPE, SELU_ALPHA, SELU_SCALE

RELU, LEAKY_RELU, PRELU, ELU, SELU = (
    tl.constexpr(ACTIVATIONS.index(name)) for name in ("relu", "leaky_relu", "prelu", "elu", "selu")
)
TAILORED, TANH, GELU, SILU = (tl.constexpr(len(ACTIVATIONS) + place) for place in range(4))
_LEAKY_SLOPE: tl.constexpr = tl.constexpr(LEAKY_SLOPE)
_SELU_ALPHA: tl.constexpr = tl.constexpr(SELU_ALPHA)
_SELU_SCALE: tl.constexpr = tl.constexpr(SELU_SCALE)


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
