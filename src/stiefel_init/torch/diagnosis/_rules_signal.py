"""Rules about the signal: whether different inputs are still told apart in the last hidden layer, and at what size."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...core.activations import DYING
from ._evidence import Evidence, Measured, over, since

DROWNED, FADED = 1e3, 1e4  # where a deep network begins to suffer: see `over_layers`


def faded(evidence: Evidence, threshold: float) -> Measured | None:
    """How much larger the last hidden activations are than the differences between inputs."""
    rows = [layer for layer in evidence.hidden if layer.samples > 1]
    if not rows or evidence.wakes:
        return None
    dark = next((layer for layer in rows if layer.activation in DYING and layer.dead == layer.units), None)
    if dark is not None and rows[-1].spread == 0:
        return Measured(math.inf, dark)
    at = since(rows, lambda layer: over(layer.size, layer.spread) > threshold or layer.size == 0)
    last = rows[-1]
    return Measured(over(last.size, last.spread) if last.size > 0 else math.inf, at)


def died(evidence: Evidence, threshold: float) -> Measured | None:
    """`faded`; where the targets are easy and no sigmoid hides what fades, only if nothing at all is left."""
    measured = faded(evidence, threshold)
    return measured if evidence.squashes else _unless_easy(evidence, measured)


def _unless_easy(evidence: Evidence, measured: Measured | None) -> Measured | None:
    """Networks learn easy targets from what rounding leaves of the signal, as long as the gradient reaches them."""
    return None if evidence.easy and measured is not None and math.isfinite(measured.value) else measured


def over_layers(
    measure: Callable[[Evidence, float], Measured | None], evidence: Evidence, threshold: float, floor: float
) -> Measured | None:
    """Hidden layers times the powers of ten of `measure`, 0 up to `floor`.

    Training has to undo the damage in every layer at once: a shallow network makes up for what keeps a deep one from
    training.
    """
    count = len(evidence.hidden)
    measured = measure(evidence, max(floor, 10 ** min(300.0, threshold / count)))
    if measured is None:
        return None
    return measured._replace(value=count * math.log10(measured.value) if measured.value > floor else 0.0)


def squashed(evidence: Evidence, threshold: float) -> Measured | None:
    """`faded`, where most hidden layers end in a sigmoid, whose outputs keep their size when the signal is gone."""
    return faded(evidence, threshold) if evidence.squashes and not evidence.easy else None


def drowned(evidence: Evidence, threshold: float) -> Measured | None:
    """`faded` over the layers, where the targets need more than a few directions of the inputs."""
    return over_layers(faded, evidence, threshold, DROWNED) if evidence.hard else None


def faint(evidence: Evidence, threshold: float) -> Measured | None:
    """`weak`, likewise."""
    return over_layers(weak, evidence, threshold, FADED) if evidence.hard else None


def thin(evidence: Evidence, threshold: float) -> Measured | None:
    """`weak`; where the targets are easy, only if nothing at all is left."""
    return _unless_easy(evidence, weak(evidence, threshold))


def weak(evidence: Evidence, threshold: float) -> Measured | None:
    """How small the differences between inputs are in the last hidden layer."""
    rows = [layer for layer in evidence.hidden if layer.samples > 1]
    if not rows or evidence.wakes:
        return None
    return Measured(over(1.0, rows[-1].spread), since(rows, lambda layer: over(1.0, layer.spread) > threshold))


def strong(evidence: Evidence, threshold: float) -> Measured | None:
    """How large the activations are in any hidden layer, and the first where they pass the threshold."""
    rows = evidence.hidden
    largest = max(rows, key=lambda layer: layer.size)
    return Measured(largest.size, next((layer for layer in rows if layer.size > threshold), largest))
