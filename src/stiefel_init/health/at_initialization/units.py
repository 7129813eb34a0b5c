"""Rules about the units: whether they differ, fire, learn apart, and bend what passes through them."""

from __future__ import annotations

from itertools import pairwise

from ..rows import ENOUGH, Evidence, Layer
from ..rule import DEFINITION, NEVER, Cause, Measured, Rule, largest, over
from ..wording import capital, percent
from .causes import first, inputs, of_fading, of_idle
from .signal import since

EQUAL = 0.99  # the share of a gradient from which on all units get the same
REPEATED = 8.0  # times fewer units, from which on a deep network begins to suffer


def copies(evidence: Evidence, limit: float) -> Measured | None:
    entry = evidence.hidden[0]
    if entry.units < 2 or entry.samples < ENOUGH or not entry.distinct or (entry.common_gradient or 1.0) < EQUAL:
        return None
    return Measured(1 / entry.distinct, entry)


def alike(evidence: Evidence, limit: float) -> Measured | None:
    entry, inputs = evidence.hidden[0], evidence.inputs
    if entry.units < 2 or entry.samples < ENOUGH or not entry.distinct or inputs is None or inputs.distinct is None:
        return None
    return Measured(min(entry.units, inputs.distinct) / entry.distinct, entry)


def repeated(evidence: Evidence, limit: float) -> Measured | None:
    """Hidden layers times how many times fewer distinct units the last of them has than the first, 0 up to 8 times.

    Not for easy targets, which a few units tell.
    """
    rows = [layer for layer in evidence.hidden if layer.samples >= ENOUGH]
    if evidence.easy or len(rows) < 2 or not rows[0].distinct or not rows[-1].distinct:
        return None
    most, count = rows[0].distinct, len(evidence.hidden)

    def fewer(layer: Layer) -> float:
        return over(min(most, layer.units), layer.distinct or 0.0)

    at = since(rows, lambda layer: fewer(layer) > max(REPEATED, limit / count))
    return Measured(count * fewer(rows[-1]) if fewer(rows[-1]) > REPEATED else 0.0, at)


def dead(evidence: Evidence, limit: float) -> Measured | None:
    rows = (layer for layer in evidence.hidden if layer.dead is not None and layer.samples >= ENOUGH)
    return largest(((layer.dead or 0) / layer.units, layer) for layer in rows)


def stuck(evidence: Evidence, limit: float) -> Measured | None:
    rows = () if evidence.easy else evidence.hidden
    return largest((layer.saturated, layer) for layer in rows if layer.saturated is not None)


def common_gradient(evidence: Evidence, limit: float) -> Measured | None:
    shares = ((layer.common_gradient, layer) for layer in evidence.hidden if layer.units > 1)
    least = largest((-share, layer) for share, layer in shares if share is not None)
    return None if least is None else least._replace(value=-least.value)


def narrow(evidence: Evidence, limit: float) -> Measured | None:
    for layer, after in pairwise(evidence.layers):
        if layer.units == 1 and layer.activation is not None and after.shape.endswith("×1"):
            return Measured(1.0, layer)
    return None


def straight(evidence: Evidence, limit: float) -> Measured | None:
    """Not for a layer narrower than both ends, which says more than one matrix: it is of low rank."""
    *hidden, last = evidence.layers
    if evidence.curvature is None or any(layer.activation is not None for layer in evidence.layers):
        return None
    ends = min(last.units, evidence.inputs.features if evidence.inputs is not None else last.units)
    return None if any(layer.units < ends for layer in hidden) else Measured(over(1.0, evidence.curvature), hidden[0])


def idle(evidence: Evidence, limit: float) -> Measured | None:
    if evidence.curvature is None or all(layer.activation is None for layer in evidence.layers):
        return None
    return Measured(over(1.0, evidence.curvature), evidence.layers[0])


def _are_alike(evidence: Evidence, measured: Measured) -> str:
    at, distinct = measured.at, evidence.inputs.distinct if evidence.inputs is not None else None
    return (
        f"The {at.units} units of {at.named} are effectively {at.distinct:.1f} distinct ones; its inputs allow "
        f"{min(at.units, distinct or at.units):.0f}."
    )


def _repeat(evidence: Evidence, measured: Measured) -> str:
    entry, last = evidence.hidden[0], evidence.hidden[-1]
    return (
        f"Units become redundant from {measured.at.named} on: {last.named} has {last.units} units, effectively "
        f"{last.distinct:.1f} distinct ones ({entry.named}: {entry.distinct:.1f})."
    )


def _never_fire(evidence: Evidence, measured: Measured) -> str:
    worst = max(evidence.hidden, key=lambda layer: (layer.dead or 0) / layer.units)
    return f"{worst.dead} of the {worst.units} units of {worst.named} fire for no input, so they cannot learn."


def _saturated(evidence: Evidence, measured: Measured) -> str:
    worst = max(evidence.hidden, key=lambda layer: layer.saturated or 0.0)
    return (
        f"{capital(worst.named)} is saturated: {percent(measured.value)} of its outputs are at a bound of "
        f"{worst.activation}, where the slope is 0."
    )


_APART = Cause("call stiefel_init.torch.initialize_(model), which sets them apart", "weights")
_BEND = Cause("put an activation, such as torch.nn.ReLU(), between the layers", "activation")
_of_equal = first(inputs, lambda evidence: _APART)

RULES = (
    Rule(
        "units are equal", copies, 0.999, NEVER, "first layer, with equal gradients: 1 / distinct units",
        lambda e, m: f"All {m.at.units} units of {m.at.named} are equal and get equal gradients, so training keeps "
        "them equal.", _of_equal, DEFINITION, holds_anyway=True,
    ),
    Rule("units are alike", alike, NEVER, 4, "first layer: distinct inputs / distinct units", _are_alike, _of_equal),
    Rule(
        "units repeat", repeated, 250, 150, "hidden layers × distinct units of the first / of the last one", _repeat,
        of_fading,
    ),
    Rule(
        "units are dead", dead, 0.9, NEVER, "largest share of units of a layer that never fire", _never_fire, of_fading
    ),
    Rule(
        "units are stuck", stuck, 0.7, 0.3, "largest share of outputs at their bound; for targets not easy", _saturated,
        of_fading,
    ),
)  # fmt: skip
LAST_RULES = (
    Rule(
        "layer is too narrow", narrow, 0.5, NEVER, "1 if a layer of one unit is all that the next one reads",
        lambda e, m: f"All that passes {m.at.named} is one number.",
        lambda e, m: Cause("make it as wide as the layers around it", "architecture"), DEFINITION, holds_anyway=True,
    ),
    Rule(
        "gradients are equal", common_gradient, NEVER, 0.9, "least share of a gradient common to a layer's units",
        lambda e, m: f"The units of {m.at.named} get equal gradients, to {percent(m.value)}.", of_fading,
    ),
    Rule(
        "network is linear", straight, 1e4, NEVER, "without activations: 1 / deviation from linear",
        lambda e, m: "The network is linear: no activation acts between its layers.", lambda e, m: _BEND,
        DEFINITION, holds_anyway=True,
    ),
    Rule(
        "activations are idle", idle, NEVER, 1e4, "with activations: 1 / deviation from linear",
        lambda e, m: "The network acts as a linear map on these inputs: no activation bends.", of_idle,
    ),
)  # fmt: skip
"""What is reported after all that is said of inputs and targets."""
