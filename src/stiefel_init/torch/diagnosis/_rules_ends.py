"""Rules about a network's two ends: the inputs' scale and offset, and how the outputs meet the targets."""

from __future__ import annotations

import math

from ._ends import ENOUGH
from ._evidence import Evidence, Measured, over
from ._rules_signal import faded
from ._rules_units import idle

COMMON = 0.9  # the share of an output's weights from which on it reads the common level
OFFSET = 5.0  # the size of inputs over their differences from which on they may all lie on one side of every bend


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
