"""Rules about the units: whether they differ, fire, and bend what passes through them."""

from __future__ import annotations

from ._ends import ENOUGH
from ._evidence import Evidence, Measured, over, since
from ._layer import Layer

EQUAL = 0.99  # the share of a gradient from which on all units get the same
REPEATED = 8.0  # times fewer units, from which on a deep network begins to suffer


def repeated(evidence: Evidence, threshold: float) -> Measured | None:
    """Hidden layers times how many times fewer distinct units the last of them has than the first, 0 up to 8 times.

    Not for easy targets, which a few units tell.
    """
    count = len(evidence.hidden)
    measured = None if evidence.easy else fewer_units(evidence, max(REPEATED, threshold / count))
    if measured is None:
        return None
    return measured._replace(value=count * measured.value if measured.value > REPEATED else 0.0)


def fewer_units(evidence: Evidence, threshold: float) -> Measured | None:
    """How many times fewer distinct units the last hidden layer has than the first."""
    rows = [layer for layer in evidence.hidden if layer.samples >= ENOUGH]
    if len(rows) < 2 or not rows[0].distinct or not rows[-1].distinct:
        return None
    first = rows[0].distinct

    def fewer(layer: Layer) -> float:
        return over(min(first, layer.units), layer.distinct or 0.0)

    return Measured(fewer(rows[-1]), since(rows, lambda layer: fewer(layer) > threshold))


def alike(evidence: Evidence, threshold: float) -> Measured | None:
    """How many times fewer distinct units the first layer has than its inputs allow."""
    first = evidence.hidden[0]
    if first.units < 2 or first.samples < ENOUGH or not first.distinct:
        return None
    if evidence.inputs is None or evidence.inputs.distinct is None:
        return None
    return Measured(min(first.units, evidence.inputs.distinct) / first.distinct, first)


def copies(evidence: Evidence, threshold: float) -> Measured | None:
    """One over the distinct units of the first layer, if no gradient sets its units apart."""
    first = evidence.hidden[0]
    if first.units < 2 or first.samples < ENOUGH or not first.distinct or (first.common_gradient or 1.0) < EQUAL:
        return None
    return Measured(1 / first.distinct, first)


def dead(evidence: Evidence, threshold: float) -> Measured | None:
    """The share of ReLU units that fire for no input, in the layer where it is largest."""
    rows = [layer for layer in evidence.hidden if layer.dead is not None and layer.samples >= ENOUGH]
    if not rows:
        return None
    worst = max(rows, key=lambda layer: (layer.dead or 0) / layer.units)
    return Measured((worst.dead or 0) / worst.units, worst)


def stuck(evidence: Evidence, threshold: float) -> Measured | None:
    """The share of a bounded activation's outputs at its bounds, in the layer where it is largest."""
    rows = [layer for layer in evidence.hidden if layer.saturated is not None]
    if not rows or evidence.easy:
        return None
    worst = max(rows, key=lambda layer: layer.saturated or 0.0)
    return Measured(worst.saturated or 0.0, worst)


def straight(evidence: Evidence, threshold: float) -> Measured | None:
    """One over how far from linear a network without activations is."""
    if evidence.curvature is None or any(layer.activation is not None for layer in evidence.layers):
        return None
    return Measured(over(1.0, evidence.curvature), evidence.layers[0])


def idle(evidence: Evidence, threshold: float) -> Measured | None:
    """One over how far from linear a network is whose activations do not bend."""
    if evidence.curvature is None or all(layer.activation is None for layer in evidence.layers):
        return None
    return Measured(over(1.0, evidence.curvature), evidence.layers[0])
