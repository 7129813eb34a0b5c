"""Rules about a network's two ends: the inputs' scale and offset, and how the outputs meet the targets."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..rows import ENOUGH, Evidence, Fit, Inputs
from ..rule import CHOICE, NEVER, Cause, Measured, Rule, over
from ..wording import times
from .causes import of_fading, of_inputs, of_small_targets, of_targets
from .signal import faded
from .units import idle

COMMON = 0.9  # the share of an output's weights from which on it reads the common level
OFFSET = 5.0  # the size of inputs over their differences from which on they may all lie on one side of every bend


def _of_the_inputs(number: Callable[[Inputs], float | None]) -> Callable[[Evidence, float], Measured | None]:

    def measured(evidence: Evidence, limit: float) -> Measured | None:
        handled = evidence.setup is not None and evidence.setup.standardizes  # by the model itself
        value = None if evidence.inputs is None or handled else number(evidence.inputs)
        return None if value is None else Measured(value)

    return measured


@_of_the_inputs
def _uneven(inputs: Inputs) -> float | None:
    enough = inputs.features >= 2 and inputs.samples >= ENOUGH
    return over(inputs.largest_std, inputs.median_std) if enough else None


@_of_the_inputs
def offset_inputs(inputs: Inputs) -> float | None:
    return over(1.0, math.sqrt(max(0.0, 1 - inputs.same))) if inputs.samples >= ENOUGH else None


large_inputs = _of_the_inputs(lambda inputs: inputs.size)
small_inputs = _of_the_inputs(lambda inputs: over(1.0, inputs.size))


def _are_offset(evidence: Evidence) -> bool:
    offset = offset_inputs(evidence, OFFSET)
    return offset is not None and offset.value > OFFSET


def carried_offset(evidence: Evidence, limit: float) -> Measured | None:
    """`faded`, where the inputs are offset and the targets not easy: the offset is what the last layer sees."""
    measured = faded(evidence, limit) if evidence.hard and _are_offset(evidence) else None
    return None if measured is None else Measured(measured.value)


def unbent(evidence: Evidence, limit: float) -> Measured | None:
    """`idle`, where that is because the inputs lie far to one side of zero."""
    return idle(evidence, limit) if _are_offset(evidence) else None


def _of_fit(number: Callable[[Fit], float | None]) -> Callable[[Evidence, float], Measured | None]:

    def measured(evidence: Evidence, limit: float) -> Measured | None:
        value = None if evidence.fit is None else number(evidence.fit)
        return None if value is None else Measured(value, evidence.layers[-1])

    return measured


@_of_fit
def _offset(fit: Fit) -> float | None:
    if fit.output_mean is None or fit.target_mean is None or not fit.target_std:
        return None
    return abs(fit.output_mean - fit.target_mean) / fit.target_std


@_of_fit
def _narrow(fit: Fit) -> float | None:
    return None if fit.output_std is None or not fit.target_std else fit.output_std / fit.target_std


def common_head(evidence: Evidence, limit: float) -> Measured | None:
    last = evidence.layers[-1]
    if len(evidence.layers) < 2 or last.units > 1 or last.activation is not None or last.level is None:
        return None
    return Measured(last.level, last)


def common_offset(evidence: Evidence, limit: float) -> Measured | None:
    """`_offset`, of a single output that reads the common level: to get there it moves all units together."""
    common = common_head(evidence, COMMON)
    return _offset(evidence, limit) if common is not None and common.value > COMMON else None


def _the_targets(text: str) -> Callable[[Evidence, Measured], str]:
    def sentence(evidence: Evidence, measured: Measured) -> str:
        fit = evidence.fit
        assert fit is not None
        return (
            f"The targets ({fit.target_mean:.3g} ± {fit.target_std:.2g}) {text} the outputs ({fit.output_mean:.3g} ± "
            f"{fit.output_std:.2g})."
        )

    return sentence


RULES = (
    Rule(
        "inputs are small", small_inputs, 80, 30, "1 / size of the inputs",
        lambda e, m: f"The inputs are small: their size is {1 / m.value:.1g}.", of_inputs,
    ),
    Rule(
        "inputs are large", large_inputs, NEVER, 30, "size of the inputs",
        lambda e, m: f"The inputs are large: their size is {m.value:.3g}.", of_inputs,
    ),
    Rule(
        "features are uneven", _uneven, 1e3, 30, "std of the widest feature / of the median one",
        lambda e, m: f"The inputs are uneven: the widest feature varies {times(m.value)} more than the median one.",
        of_inputs,
    ),
    Rule(
        "an example stands out", _of_the_inputs(lambda inputs: inputs.apart), 100, NEVER,
        "size of the largest example / of the median one",
        lambda e, m: f"The largest example is {times(m.value)} larger than the median one.",
        lambda e, m: Cause(
            "look at what examples are divided by: a mean, a difference or a deviation may be near 0; take another "
            "scale, or add a number to it", "inputs",
        ), CHOICE, hides=("features are uneven", "inputs are large"), holds_anyway=True,
    ),
    Rule(
        "inputs are offset", offset_inputs, 30, OFFSET, "size of the inputs / differences between samples",
        lambda e, m: f"The inputs are {times(m.value)} larger than the differences between them.", of_inputs,
        hides=("inputs are far off", "offset stays"),
    ),
    Rule(
        "offset stays", carried_offset, 20, NEVER, "where they are offset by 5 or more: as signal dies",
        lambda e, m: f"The inputs are offset: in the last hidden layer the activations are {times(m.value)} larger "
        "than what tells inputs apart.", of_inputs, hides_warnings=("inputs are offset",),
    ),
    Rule(
        "inputs are far off", unbent, 1e4, NEVER, "where they are offset by 5 or more: 1 / deviation from linear",
        lambda e, m: "The inputs lie so far to one side of zero that no activation bends.", of_inputs,
        hides=("offset stays",), hides_warnings=("inputs are offset", "activations are idle"),
    ),
    Rule(
        "level is off", common_offset, 1, NEVER, "the next, for a single output that adds up its inputs",
        _the_targets("are not at the level of"), of_fading, hides=("output is common", "targets are offset"),
    ),
    Rule(
        "targets are offset", _offset, 5, 3, "mean output - mean target, in stds of the targets",
        _the_targets("are far from"), of_targets, CHOICE,
    ),
    Rule(
        "targets are large", _of_fit(lambda fit: fit.target_std), 100, 10, "std of the targets",
        _the_targets("are far wider than"), of_targets,
    ),
    Rule(
        "targets are small", _narrow, 30, 5, "std of the outputs / of the targets",
        _the_targets("are far narrower than"), of_small_targets, by_heart=True,
    ),
    Rule(
        "output is common", common_head, NEVER, COMMON, "single output: share of weights that adds up its inputs",
        lambda e, m: f"The output of {m.at.named} follows the common level of all units.", of_fading,
    ),
)  # fmt: skip
