"""The rules, in one table: each measures one thing that keeps networks from training.

A rule measures a number, larger is worse, and the layer where it shows; the number is held against the rule's
threshold. What they measure is in `_rules_signal`, `_rules_gradient`, `_rules_units` and `_rules_ends`.
`docs/diagnosis-accuracy.md` compares the rules with what networks do when they are trained.
"""

from __future__ import annotations

import math

from ._evidence import Evidence, Rule
from ._layer import Layer
from ._rules_ends import (
    COMMON,
    OFFSET,
    carried_offset,
    common_head,
    common_offset,
    large_inputs,
    large_loss,
    large_targets,
    offset_inputs,
    offset_targets,
    small_inputs,
    small_targets,
    unbent,
    uneven_inputs,
)
from ._rules_gradient import closed, common_gradient, forgotten, gated, gone, growing, lost
from ._rules_signal import died, drowned, faint, squashed, strong, thin
from ._rules_units import alike, copies, dead, idle, repeated, straight, stuck


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
        Rule("loss is huge", large_loss, 200, 30, "loss / that of the best constant, or of zeros; not for distances"),
        Rule("gradient vanishes", lost, 3e5, 3e4, "gradient at the last layer / at the first"),
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
