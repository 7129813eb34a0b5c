"""The rules: small functions of per-layer statistics, each measuring one thing that keeps networks from training.

A rule measures a number, larger is worse, and the layer where it shows; the number is held against the rule's
threshold. `docs/diagnosis-accuracy.md` compares the rules with what networks do when they are trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ._ends import ENOUGH, Fit, Inputs
from ._layer import Layer
from ._observe import RECTIFIERS

COMMON = 0.9  # the share of an output's weights from which on it reads the common level
EQUAL = 0.99  # the share of a gradient from which on all units get the same
OFFSET = 5.0  # the size of inputs over their differences from which on they may all lie on one side of every bend
SQUASHING = frozenset({"sigmoid", "hardsigmoid"})
GATED = frozenset({"LSTM", "GRU"})
DROWNED, FADED, REPEATED = 1e3, 1e4, 8.0  # where a deep network begins to suffer: see `over_layers`
SHUT = 0.7  # gates that let less of the gradient through at each step are closed


@dataclass(frozen=True)
class Evidence:
    """What one batch told about a network."""

    layers: tuple[Layer, ...]
    inputs: Inputs | None = None
    fit: Fit | None = None
    curvature: float | None = None
    """How far the whole network is from linear, as `diagnose` measures it where no activation seems to act."""

    @property
    def easy(self) -> bool:
        """Whether the targets are known to be easy, so that networks learn them that are sick elsewhere."""
        return self.fit is not None and self.fit.easy

    @property
    def hard(self) -> bool:
        """Whether they are known not to be."""
        return self.fit is not None and self.fit.readable is not None and not self.fit.easy

    @cached_property
    def zeros(self) -> Layer | None:
        """A layer of zeros after which all inputs are the same; behind a zero branch or head they still differ."""
        for at, layer in enumerate(self.layers[:-1]):
            if layer.zero_weights and all(after.spread == 0 for after in self.layers[at + 1 :]):
                return layer
        return None

    @cached_property
    def wakes(self) -> bool:
        """Whether that layer gets a gradient, so that the first step sets it right."""
        if self.zeros is None:
            return False
        gradient = self.zeros.weight_gradient
        return gradient > 0 if gradient is not None else self.zeros.activation not in RECTIFIERS

    @cached_property
    def judged(self) -> tuple[Layer, ...]:
        """Without layers of zeros, which may be a choice: a head or a branch that starts at zero."""
        return tuple(layer for layer in self.layers if not layer.zero_weights) or self.layers

    @cached_property
    def hidden(self) -> tuple[Layer, ...]:
        """Without the output layer, if no activation follows it."""
        layers = self.judged
        return layers[:-1] if len(layers) > 1 and layers[-1].activation is None else layers

    @cached_property
    def squashes(self) -> bool:
        """Whether most hidden layers end in a sigmoid."""
        return 2 * sum(layer.activation in SQUASHING for layer in self.hidden) > len(self.hidden)

    @cached_property
    def carried(self) -> tuple[Layer, ...]:
        """The layers with a gradient. Below weights of zero it is 0 until their first step, which says nothing."""
        rows = (layer for layer in self.judged if layer.gradient is not None)
        if len(self.judged) == len(self.layers):
            return tuple(rows)
        return tuple(layer for layer in rows if layer.gradient != 0)


class Measured(NamedTuple):
    """A rule's number, and the layer where it shows; None if that is no layer."""

    value: float
    layer: Layer | None = None


@dataclass(frozen=True)
class Rule:
    """A network is sick if `measure` exceeds `threshold`; from `warning` on, the user is told."""

    kind: str
    """What it finds."""
    measure: Callable[[Evidence, float], Measured | None]
    """Of the evidence, and the limit from which on a layer counts as the place; None where it does not apply."""
    threshold: float
    warning: float
    quantity: str
    """What it measures, in words."""
    source: str = "study"
    """Where the threshold comes from: `"study"`, which is benchmarks/diagnosis.py, `"definition"` or `"choice"`."""

    def finds(self, evidence: Evidence) -> tuple[Measured, bool] | None:
        """The measured number, if it is beyond a limit, and whether it is beyond the threshold."""
        for limit, serious in ((self.threshold, True), (self.warning, False)):
            measured = self.measure(evidence, limit)
            if measured is not None and not measured.value <= limit:
                return measured, serious
        return None


def over(part: float, whole: float) -> float:
    """part / whole, infinite where nothing is left."""
    return part / whole if whole > 0 else math.inf if part > 0 else 0.0


def since(layers: Sequence[Layer], bad: Callable[[Layer], bool]) -> Layer:
    """The first layer from which on all are bad; the last if that is not."""
    start = layers[-1]
    for layer in reversed(layers):
        if not bad(layer):
            break
        start = layer
    return start


def faded(evidence: Evidence, threshold: float) -> Measured | None:
    """How much larger the last hidden activations are than the differences between inputs."""
    rows = [layer for layer in evidence.hidden if layer.samples > 1]
    if not rows or evidence.wakes:
        return None
    dark = next((layer for layer in rows if layer.activation in RECTIFIERS and layer.dead == layer.units), None)
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


def large_inputs(evidence: Evidence, threshold: float) -> Measured | None:
    """The size of the inputs."""
    return None if evidence.inputs is None else Measured(evidence.inputs.size)


def small_inputs(evidence: Evidence, threshold: float) -> Measured | None:
    """One over the size of the inputs."""
    return None if evidence.inputs is None else Measured(over(1.0, evidence.inputs.size))


def uneven_inputs(evidence: Evidence, threshold: float) -> Measured | None:
    """How many times wider the widest feature is than the median one."""
    if evidence.inputs is None or evidence.inputs.features < 2 or evidence.inputs.samples < ENOUGH:
        return None
    return Measured(over(evidence.inputs.largest_std, evidence.inputs.median_std))


def offset_inputs(evidence: Evidence, threshold: float) -> Measured | None:
    """The size of the inputs over their differences between samples."""
    if evidence.inputs is None or evidence.inputs.samples < ENOUGH:
        return None
    return Measured(over(1.0, math.sqrt(max(0.0, 1 - evidence.inputs.same))))


def offset_targets(evidence: Evidence, threshold: float) -> Measured | None:
    """How far the outputs' mean is from the targets', in stds of the targets."""
    fit = evidence.fit
    if fit is None or fit.output_mean is None or fit.target_mean is None or not fit.target_std:
        return None
    return Measured(abs(fit.output_mean - fit.target_mean) / fit.target_std, evidence.layers[-1])


def large_targets(evidence: Evidence, threshold: float) -> Measured | None:
    """The std of the targets."""
    fit = evidence.fit
    return None if fit is None or fit.target_std is None else Measured(fit.target_std, evidence.layers[-1])


def small_targets(evidence: Evidence, threshold: float) -> Measured | None:
    """The outputs' std over that of the targets."""
    fit = evidence.fit
    if fit is None or fit.output_std is None or not fit.target_std:
        return None
    return Measured(fit.output_std / fit.target_std, evidence.layers[-1])


def large_loss(evidence: Evidence, threshold: float) -> Measured | None:
    """The loss, over that of the best constant output; where that is not known, over that of outputs of zero."""
    fit = evidence.fit
    if fit is None or fit.output_mean is not None:
        return None
    usual = fit.constant_loss or fit.zero_loss
    if not usual:
        return None
    return Measured(math.inf if math.isnan(fit.loss) else fit.loss / usual, evidence.layers[-1])


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


def carried_offset(evidence: Evidence, threshold: float) -> Measured | None:
    """`faded`, where the inputs are offset and the targets not easy: the offset is what the last layer sees."""
    offset = offset_inputs(evidence, OFFSET)
    if not evidence.hard or offset is None or not offset.value > OFFSET:
        return None
    measured = faded(evidence, threshold)
    return None if measured is None else Measured(measured.value)


def unbent(evidence: Evidence, threshold: float) -> Measured | None:
    """`idle`, where that is because the inputs lie far to one side of zero."""
    offset = offset_inputs(evidence, OFFSET)
    return idle(evidence, threshold) if offset is not None and offset.value > OFFSET else None


def common_head(evidence: Evidence, threshold: float) -> Measured | None:
    """The share of a single output's weights that reads the common level of its inputs."""
    last = evidence.layers[-1]
    if len(evidence.layers) < 2 or last.units > 1 or last.activation is not None or last.level is None:
        return None
    return Measured(last.level, last)


def common_offset(evidence: Evidence, threshold: float) -> Measured | None:
    """`offset_targets`, of a single output that reads the common level: to get there it moves all units together."""
    common = common_head(evidence, COMMON)
    return offset_targets(evidence, threshold) if common is not None and common.value > COMMON else None


def common_gradient(evidence: Evidence, threshold: float) -> Measured | None:
    """The share of the weights' gradient that is the same for all units, in the layer where it is least."""
    rows = [layer for layer in evidence.hidden if layer.common_gradient is not None and layer.units > 1]
    if not rows:
        return None
    least = min(rows, key=lambda layer: layer.common_gradient or 0.0)
    return Measured(least.common_gradient or 0.0, least)


def not_finite(evidence: Evidence) -> Layer | None:
    """The first layer whose values are not all finite."""
    for layer in evidence.judged:
        if not math.isfinite(layer.pre_mean + layer.pre_std + layer.post_mean + layer.post_std):
            return layer
    return None


def broken_weights(evidence: Evidence) -> Layer | None:
    """The first layer whose weights or biases are not all finite."""
    for layer in evidence.layers:
        if not all(math.isfinite(value or 0.0) for value in (layer.row_norm, layer.bias_mean, layer.bias_std)):
            return layer
    return None


NEVER, DEFINED, CHOSEN = math.inf, "definition", "choice"
RULES: dict[str, Rule] = {
    rule.kind: rule
    for rule in (
        Rule("signal dies", died, 3e6, 1e3, "last hidden layer: size of the activations / differences between inputs"),
        Rule("signal drowns", drowned, 50, NEVER, "hidden layers × powers of ten of that; for targets not easy"),
        Rule("signal is squashed", squashed, 50, 10, "likewise, where most hidden layers end in a sigmoid"),
        Rule("signal fades", thin, 1e9, 1e4, "last hidden layer: 1 / differences between inputs"),
        Rule("signal is faint", faint, 250, NEVER, "hidden layers × powers of ten of that; for targets not easy"),
        Rule("signal explodes", strong, 1e3, 100, "largest size of the activations of a hidden layer"),
        Rule("loss is huge", large_loss, 100, 30, "loss / that of the best constant, or of zeros; not for distances"),
        Rule("gradient vanishes", lost, 1e9, 1e6, "gradient at the last layer / at the first"),
        Rule("gradient is gone", gone, 1e10, NEVER, "for easy targets, in place of the rule above"),
        Rule("gradient explodes", growing, 1e4, 1e3, "gradient at the first layer / at the last"),
        Rule("steps are forgotten", forgotten, 1e19, 1e3, "no gates: largest gradient at a time step / at the first"),
        Rule("gates forget", gated, 5e9, 1e3, "the same, of LSTM and GRU"),
        Rule("gates are closed", closed, 2e5, NEVER, "the same, where less than 0.7 of it passes each step"),
        Rule("units are equal", copies, 0.999, NEVER, "first layer, with equal gradients: 1 / distinct units", DEFINED),
        Rule("units are alike", alike, NEVER, 4, "first layer: distinct inputs / distinct units"),
        Rule("units repeat", repeated, 250, 150, "hidden layers × distinct units of the first / of the last one"),
        Rule("units are dead", dead, 0.9, NEVER, "largest share of units of a layer that never fire"),
        Rule("units are stuck", stuck, 0.7, 0.3, "largest share of outputs at their bound; for targets not easy"),
        Rule("inputs are small", small_inputs, 80, 30, "1 / size of the inputs"),
        Rule("inputs are large", large_inputs, NEVER, 30, "size of the inputs"),
        Rule("features are uneven", uneven_inputs, 1e3, 30, "std of the widest feature / of the median one"),
        Rule("inputs are offset", offset_inputs, 30, OFFSET, "size of the inputs / differences between samples"),
        Rule("offset stays", carried_offset, 20, NEVER, "where they are offset by 5 or more: as signal dies"),
        Rule("inputs are far off", unbent, 1e4, NEVER, "where they are offset by 5 or more: 1 / deviation from linear"),
        Rule("level is off", common_offset, 1, NEVER, "the next, for a single output that adds up its inputs"),
        Rule("targets are offset", offset_targets, 5, 3, "mean output - mean target, in stds of the targets", CHOSEN),
        Rule("targets are large", large_targets, 100, 10, "std of the targets"),
        Rule("targets are small", small_targets, 30, 10, "std of the outputs / of the targets"),
        Rule("output is common", common_head, NEVER, COMMON, "single output: share of weights that adds up its inputs"),
        Rule("gradients are equal", common_gradient, NEVER, 0.9, "least share of a gradient common to a layer's units"),
        Rule("network is linear", straight, 1e4, NEVER, "without activations: 1 / deviation from linear", DEFINED),
        Rule("activations are idle", idle, NEVER, 1e4, "with activations: 1 / deviation from linear"),
    )
}  # fmt: skip
"""In the order of the verdict. docs/diagnose.md says where the numbers come from."""
OF_INPUTS = (
    "inputs are small", "inputs are large", "features are uneven", "inputs are offset", "offset stays",
    "inputs are far off",
)  # fmt: skip
OF_TARGETS = ("targets are offset", "targets are large", "targets are small")
