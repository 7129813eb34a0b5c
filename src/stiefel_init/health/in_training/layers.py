"""Rules about what passes through the layers in training: inputs, units that fall silent, signal and gradient."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..at_initialization import ends  # its rules are there once it is imported
from ..rows import ENOUGH, RECENT, Evidence, Moment, Row
from ..rule import AT_INITIALIZATION, CHOICE, STUDY, Measured, Rule, largest, over
from ..wording import percent, times
from .base import (
    FAR,
    INITIALIZE,
    LOWER,
    SIGNAL,
    UNITS,
    Measure,
    Text,
    recent_update,
    since_step,
    training_rule,
)  # fmt: skip


def input_scale(moment: Moment, limit: float) -> Measured | None:
    if moment.now.inputs is None or not moment.past.inputs:
        return None
    size = moment.now.inputs.size
    return Measured(max(over(size, moment.past.inputs), over(moment.past.inputs, size)))


def _inputs_changed(moment: Moment, measured: Measured) -> str:
    size = moment.now.inputs.size if moment.now.inputs is not None else math.nan
    way = "larger" if size > (moment.past.inputs or 0.0) else "smaller"
    return f"the inputs are {times(measured.value)} {way} than at the start (size {size:.2g})"


def _on_first(measure: Callable[[Evidence, float], Measured | None]) -> Measure:
    """Of the first inputs, unless the model normalizes them itself."""

    def measured(moment: Moment, limit: float) -> Measured | None:
        if moment.now.standardizes or moment.past.count > RECENT:
            return None
        found = measure(Evidence((), moment.now.inputs), limit)
        early = found is not None and moment.past.count < RECENT and found.value < 10 * limit  # it may be meant so
        return Measured(0.0) if early or moment.past.works(moment.now) else found

    return measured


def silent(moment: Moment, limit: float) -> Measured | None:
    shares = []
    for row in moment.now.rows[:-1]:
        if row.ran and row.samples >= ENOUGH:
            before = moment.past.was(row)
            still = before is not None and before.spread and (row.spread or 0.0) < 1e-6 * before.spread
            shares.append((1.0 if still else row.dead or 0.0, row))
    return largest(shares)


def stuck(moment: Moment, limit: float) -> Measured | None:
    if moment.past.works(moment.now):
        return Measured(0.0)
    return largest((row.saturated, row) for row in moment.now.rows if row.saturated is not None)


def _why(moment: Moment, row: Row) -> tuple[str, str]:
    others = max((other.bias for other in moment.now.rows if other is not row), default=0.0)
    if row.bias > 10 * max(others, 0.1):
        return f"; its biases are {row.bias_mean:.3g} ± {row.bias_std:.2g}", "set them to zero"
    move = recent_update(moment, row)
    if move > FAR:
        return f"; the update there was {move:.2g} of the weights", LOWER
    if moment.past.last is None:
        return "", INITIALIZE
    return "", f"go back to a checkpoint before step {moment.now.step:,} and {LOWER}"


def _falls_silent(sentence: Text) -> tuple[Text, Text]:
    return (
        lambda moment, measured: sentence(moment, measured) + _why(moment, measured.at)[0],
        lambda moment, measured: _why(moment, measured.at)[1],
    )


def _never_fire(moment: Moment, measured: Measured) -> str:
    at = measured.at
    if not at.dead:
        return f"the outputs of {at.named} are the same for all inputs{since_step(moment.past)}"
    return f"{percent(at.dead)} of the units of {at.named} never fire"


def _as_initialized(
    kind: str, sentence: str, threshold: float | None = None, *, lasting: int = 1, hides: tuple[str, ...] = ()
) -> Rule[Moment]:
    """The rule at initialization of that kind, for a network whose loss has not come down."""
    rule = AT_INITIALIZATION[kind]

    def measure(moment: Moment, limit: float) -> Measured | None:
        evidence = moment.now.evidence
        measured = None if moment.past.works(moment.now) or evidence is None else rule.measure(evidence, limit)
        if measured is None or measured.at is None:
            return measured
        return measured._replace(at=moment.now.by_name.get(measured.at.layer))

    def say(moment: Moment, measured: Measured) -> str:
        at = measured.at or moment.now.rows[0]
        return sentence.format(at=at.named, size=f"{measured.value:.2g}", times=times(measured.value))

    limit, source = (rule.threshold, "diagnose") if threshold is None else (threshold, STUDY)
    first_or_later: Text = lambda moment, measured: INITIALIZE if moment.past.last is None else LOWER  # noqa: E731
    return training_rule(kind, measure, limit, rule.quantity, say, first_or_later, source, lasting=lasting, hides=hides)


INPUT_RULES = (
    training_rule(
        "inputs changed scale", input_scale, 30, "size of the inputs / of the first, or the inverse", _inputs_changed,
        "prepare all batches alike", CHOICE, hides=("loss jumps", "gradient is cut off", *SIGNAL, *UNITS),
    ),
    training_rule(
        "inputs are large", _on_first(ends.large_inputs), 300, "size of the first inputs: above raw pixels",
        lambda at, m: f"the inputs have a size of {m.value:.3g}", "standardize them", CHOICE,
        hides=("steps are too large", "loss jumps", *SIGNAL, *UNITS),
    ),
    training_rule(
        "inputs are small", _on_first(ends.small_inputs), AT_INITIALIZATION["inputs are small"].threshold,
        "1 / size of the first inputs", lambda at, m: f"the inputs have a size of {1 / m.value:.1g}",
        "standardize them", "diagnose", hides=(*SIGNAL, *UNITS),
    ),
)  # fmt: skip
UNIT_RULES = (
    training_rule(
        "units are dead", silent, 0.95, "largest share of units of a layer that never fire",
        *_falls_silent(_never_fire), STUDY,
        hides=("gradient is cut off", "layer is frozen", "gradient vanishes", "signal dies",
               "signal fades", "loss jumps"),
    ),
    training_rule(
        "units are stuck", stuck, 0.9, "largest share of outputs of a layer at their bound",
        *_falls_silent(
            lambda at, m: f"{percent(m.value)} of the outputs of {m.at.named} are at a bound of "
            f"{m.at.activation or 'tanh'}"
        ), CHOICE, hides=("gradient vanishes", "signal dies", "loss jumps"),
    ),
)  # fmt: skip
SIGNAL_RULES = (
    _as_initialized(
        "signal dies", "from {at} on, all inputs give the same signal",
        hides=("signal fades", "gradient is cut off", "gradient vanishes"),
    ),
    _as_initialized("signal fades", "the signal fades from {at} on", hides=("gradient vanishes",)),
    _as_initialized(
        "signal explodes", "the signal explodes from {at} on, to a size of {size}",
        hides=("gradient explodes", "loss jumps"),
    ),
    _as_initialized(  # below a head of zeros there is none in the first step
        "gradient vanishes", "the gradient vanishes below {at}", 1e9, lasting=2
    ),
    _as_initialized("gradient explodes", "the gradient explodes below {at}, {times}"),
)  # fmt: skip
