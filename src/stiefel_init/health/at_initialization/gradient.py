"""Rules about the gradient: whether it reaches the first layer, and the first time step."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..rows import Evidence, Layer
from ..rule import DEFINITION, NEVER, Cause, Measured, Rule, largest, over
from ..wording import capital, per_layer, percent, times
from .causes import MEMBERS, of_fading, of_growing

GATES = {"LSTM": ("forget gate", 4), "GRU": ("update gate", 3)}
PADDED = 0.2  # the share of the inputs from which on padding is what a layer has seen last
SHUT = 0.7  # gates that let less of the gradient through at each step are closed


def vanishing(evidence: Evidence, limit: float) -> Measured | None:
    rows = evidence.carried
    if len(rows) < 2 or not all(math.isfinite(layer.gradient or 0.0) for layer in rows):
        return None
    high = rows[-1].gradient or 0.0
    if high == 0:
        return Measured(math.inf, rows[-1]) if rows[0].gradient == 0 else None
    at = [layer for layer in rows if over(high, layer.gradient or 0.0) > limit]
    return Measured(over(high, rows[0].gradient or 0.0), at[-1] if at else rows[0])


def growing(evidence: Evidence, limit: float) -> Measured | None:
    rows = evidence.carried
    if len(rows) < 2 or not (high := rows[-1].gradient or 0.0):
        return None
    at = [layer for layer in rows if not (layer.gradient or 0.0) <= limit * high]
    value = (rows[0].gradient or 0.0) / high
    return Measured(math.inf if math.isnan(value) else value, at[-1] if at else rows[0])


def forgotten(chosen: Callable[[Layer], bool]) -> Callable[[Evidence, float], Measured | None]:

    def measured(evidence: Evidence, limit: float) -> Measured | None:
        rows = (layer for layer in evidence.judged if layer.first_step is not None and chosen(layer))
        least = largest((-(layer.first_step or 0.0), layer) for layer in rows)
        return None if least is None else Measured(over(1.0, -least.value), least.at)

    return measured


def _is_closed(layer: Layer) -> bool:
    steps = layer.steps or 0
    return layer.kind in GATES and steps > 1 and (layer.first_step or 0.0) < SHUT ** (steps - 1)


def _vanishes(evidence: Evidence, measured: Measured) -> str:
    rows = evidence.carried
    low, high = rows[0].gradient or 0.0, rows[-1].gradient or 0.0
    if low == 0:
        at = next(layer for layer in reversed(rows) if not layer.gradient)
        return f"The gradient vanishes: at {at.named} it is 0."
    change = f"at {rows[0].named} it is {times(high / low)} smaller than at {rows[-1].named}"
    return f"The gradient vanishes: {change}{per_layer(len(rows), low / high)}."


def _grows(evidence: Evidence, measured: Measured) -> str:
    rows = evidence.carried
    low, high = rows[0].gradient or 0.0, rows[-1].gradient or 0.0
    if not math.isfinite(low):
        return f"The gradient overflows before it reaches {rows[0].named}."
    change = f"at {rows[0].named} it is {times(low / high)} larger than at {rows[-1].named}"
    return f"The gradient explodes: {change}{per_layer(len(rows), low / high)}."


def _forgets(evidence: Evidence, measured: Measured) -> str:
    at = measured.at
    size = "0" if math.isinf(measured.value) else f"{times(measured.value)} smaller than at the last ones"
    return f"{capital(at.named)} forgets its first steps: the gradient at step 1 of {at.steps} is {size}."


def _of_forgetting(evidence: Evidence, measured: Measured) -> Cause:
    rows = (layer for layer in evidence.layers if layer.first_step is not None)
    worst = min(rows, key=lambda layer: layer.first_step or 0.0)
    if evidence.setup is not None and evidence.setup.padded > PADDED:
        return Cause(
            "read the output at the last real step of each row, or send packed sequences: "
            "torch.nn.utils.rnn.pack_padded_sequence",
            "padding",
            f"{percent(evidence.setup.padded)} of the inputs is padding at the ends of rows, which comes last.",
            worst,
        )
    if worst.kind not in GATES:
        advice = "call stiefel_init.torch.initialize_(model), whose recurrent weights preserve the state"
        # Of orthogonal ones nothing is known to help: gated layers did not do better where this was tried.
        return Cause("" if worst.scheme in {*MEMBERS, "orthogonal"} else advice, "time steps", layer=worst)
    gate, gates = GATES[worst.kind]
    code = (
        f'for name, bias in model.get_submodule("{worst.layer}").named_parameters(): '
        f'"bias_ih" in name and bias.data.chunk({gates})[1].fill_({math.log(worst.steps or 2):.2f})'
    )
    return Cause(f"open the {gate} for {worst.steps} steps: {code}", "time steps", layer=worst)


def flat(evidence: Evidence, limit: float) -> Measured | None:
    rows = [layer for layer in evidence.layers if layer.gradient is not None]
    if not rows or any(layer.gradient or layer.dead == layer.units for layer in rows):
        return None
    return Measured(1.0, rows[-1])


def _is_flat(evidence: Evidence, measured: Measured) -> str:
    setup = evidence.setup
    why = "is multiplied by 0, masked, clamped, ignored or compared"
    if setup is not None and any(op.name == "CtcLoss" for op in setup.tail):
        why = "is left out: each row of targets is longer than the outputs, which are to spell it"
    elif setup is not None and setup.stairs:
        why = f"passes {setup.stairs.lower()}, whose slope is 0"
    return f"No output changes the loss, whose gradient is 0 in all layers: what they say {why}."


_FLAT = Cause(
    "look at masks, ignored classes and factors of the loss; take the maximum and not its index, the probability and "
    "not its rounding; give a sequence more steps than its targets have",
    "loss",
)

RULES = (
    Rule(
        "loss has no slope", flat, 0.5, NEVER, "1 if the gradient is 0 in all layers", _is_flat, lambda e, m: _FLAT,
        DEFINITION, hides=("gradient vanishes", "gradient is gone", "optimizer learns nothing"),
        holds_anyway=True,
    ),
    Rule(
        "gradient vanishes", lambda e, limit: None if e.easy else vanishing(e, limit), 3e5, 3e4,
        "gradient at the last layer / at the first", _vanishes, of_fading,
    ),
    Rule(
        "gradient is gone", lambda e, limit: vanishing(e, limit) if e.easy else None, 1e10, NEVER,
        "for easy targets, in place of the rule above", _vanishes, of_fading,
    ),
    Rule("gradient explodes", growing, 1e4, 1e3, "gradient at the first layer / at the last", _grows, of_growing),
    Rule(
        "steps are forgotten", forgotten(lambda layer: layer.kind not in GATES), 1e19, 1e3,
        "no gates: largest gradient at a time step / at the first", _forgets, _of_forgetting,
    ),
    Rule(
        "gates forget", forgotten(lambda layer: layer.kind in GATES), 5e9, 1e3, "the same, of LSTM and GRU", _forgets,
        _of_forgetting, hides=("gates are closed",),
    ),
    Rule(
        "gates are closed", forgotten(_is_closed), 2e5, NEVER,
        "the same, where less than 0.7 of it passes each step", _forgets, _of_forgetting,
        hides_warnings=("gates forget",), by_heart=True,
    ),
)  # fmt: skip
