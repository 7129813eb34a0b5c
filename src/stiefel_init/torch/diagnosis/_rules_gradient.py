"""Rules about the gradient: whether it reaches the first layer, and the first time step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ._evidence import Evidence, Measured, over
from ._layer import Layer

GATED = frozenset({"LSTM", "GRU"})
SHUT = 0.7  # gates that let less of the gradient through at each step are closed


def vanishing(evidence: Evidence, threshold: float) -> Measured | None:
    """How much smaller the gradient is at the first layer than at the last."""
    rows = evidence.carried
    if len(rows) < 2 or not all(math.isfinite(layer.gradient or 0.0) for layer in rows):
        return None
    high = rows[-1].gradient or 0.0
    if high == 0:
        return Measured(math.inf, rows[-1]) if rows[0].gradient == 0 else None
    at = [layer for layer in rows if over(high, layer.gradient or 0.0) > threshold]
    return Measured(over(high, rows[0].gradient or 0.0), at[-1] if at else rows[0])


def lost(evidence: Evidence, threshold: float) -> Measured | None:
    """`vanishing`, where the targets are not known to be easy."""
    return None if evidence.easy else vanishing(evidence, threshold)


def gone(evidence: Evidence, threshold: float) -> Measured | None:
    """`vanishing`, where they are."""
    return vanishing(evidence, threshold) if evidence.easy else None


def growing(evidence: Evidence, threshold: float) -> Measured | None:
    """How much larger the gradient is at the first layer than at the last."""
    rows = evidence.carried
    if len(rows) < 2 or not (high := rows[-1].gradient or 0.0):
        return None
    at = [layer for layer in rows if not (layer.gradient or 0.0) <= threshold * high]
    value = (rows[0].gradient or 0.0) / high
    return Measured(math.inf if math.isnan(value) else value, at[-1] if at else rows[0])


def forgotten(evidence: Evidence, threshold: float) -> Measured | None:
    """How much smaller the gradient is at the first time step than at the step where it is largest, without gates."""
    return _forgotten([layer for layer in evidence.judged if layer.kind not in GATED])


def gated(evidence: Evidence, threshold: float) -> Measured | None:
    """The same for gated layers."""
    return _forgotten([layer for layer in evidence.judged if layer.kind in GATED])


def closed(evidence: Evidence, threshold: float) -> Measured | None:
    """The same, where the gates let through less than `SHUT` of the gradient at each step."""
    shut = [layer for layer in evidence.judged if layer.kind in GATED and layer.steps and layer.steps > 1]
    return _forgotten([layer for layer in shut if (layer.first_step or 0.0) < SHUT ** ((layer.steps or 2) - 1)])


def _forgotten(layers: Sequence[Layer]) -> Measured | None:
    rows = [layer for layer in layers if layer.first_step is not None]
    if not rows:
        return None
    worst = min(rows, key=lambda layer: layer.first_step or 0.0)
    return Measured(over(1.0, worst.first_step or 0.0), worst)


def common_gradient(evidence: Evidence, threshold: float) -> Measured | None:
    """The share of the weights' gradient that is the same for all units, in the layer where it is least."""
    rows = [layer for layer in evidence.hidden if layer.common_gradient is not None and layer.units > 1]
    if not rows:
        return None
    least = min(rows, key=lambda layer: layer.common_gradient or 0.0)
    return Measured(least.common_gradient or 0.0, least)
