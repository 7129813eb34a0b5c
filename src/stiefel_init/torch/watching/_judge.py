"""What a sample changes: `Judge`, which holds each sample against the rules and says what broke and what recovered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..diagnosis._wording import percent, times
from ._rules import RULES, Measured, Past, median
from ._sample import Row, Sample

CLOSES = 0.5  # of its limit: a rule that is open closes below it
FAR = 0.1  # an update of this share of the weights can break a layer by itself
LOWER = "lower the learning rate, or clip the gradients"


class Event(NamedTuple):
    """Something broke or recovered."""

    step: int
    kind: str
    """The `kind` of one of the rules."""
    layer: str
    """Where; empty if that is in no one layer."""
    sentence: str
    advice: str
    """What to do; empty where it recovered."""
    recovered: bool = False

    def __str__(self) -> str:
        advice = f": {self.advice}" if self.advice else ""
        return f"step {self.step:,}: {self.sentence}{advice}."


_SIGNAL = ("signal dies", "signal fades", "signal explodes", "gradient vanishes", "gradient explodes")
_UNITS = ("units are dead", "units died", "units are stuck")
HIDES: dict[str, tuple[str, ...]] = {
    "not finite": tuple(kind for kind in RULES if kind != "not finite"),
    "gradients are not cleared": ("loss jumps", "steps are too large", *_SIGNAL, *_UNITS),
    "no backward pass": ("weights do not move", "layer is frozen", "steps are too small"),
    "gradient is cut off": ("layer is frozen", "gradient vanishes", "signal dies"),
    "inputs changed scale": ("loss jumps", "gradient is cut off", *_SIGNAL, *_UNITS),
    "inputs are large": ("steps are too large", "loss jumps", *_SIGNAL, *_UNITS),
    "inputs are small": (*_SIGNAL, *_UNITS),
    "weights jumped": ("loss jumps", "gradient is cut off", *_SIGNAL, *_UNITS),
    "weights collapsed": ("loss jumps", "gradient is cut off", "layer is frozen", "weights jumped", *_SIGNAL, *_UNITS),
    "units are dead": ("units died", "gradient is cut off", "layer is frozen", "gradient vanishes", "signal dies",
                       "signal fades", "loss jumps"),
    "units died": ("loss jumps",),
    "units are stuck": ("gradient vanishes", "signal dies", "loss jumps"),
    "steps are too large": ("loss jumps", "weights jumped"),
    "weights decay": ("signal fades", "signal dies", "gradient vanishes", "loss jumps", "gradient is cut off"),
    "signal dies": ("signal fades", "gradient is cut off", "gradient vanishes"),
    "signal fades": ("gradient vanishes",),
    "signal explodes": ("gradient explodes", "loss jumps"),
}  # fmt: skip
"""While one of these is open, its consequences are not told."""


class Judge:
    """Keeps what is open, and what came before."""

    def __init__(self) -> None:
        self.past = Past()
        self.open: dict[str, Event] = {}
        self._lasting: dict[str, int] = {}

    def __call__(self, now: Sample) -> list[Event]:
        """The events of a sample."""
        found: dict[str, Measured] = {}
        events = []
        for kind, rule in RULES.items():
            measured = rule.measure(now, self.past)
            if measured is not None and measured.value > rule.limit:
                self._lasting[kind] = self._lasting.get(kind, 0) + 1
                if self._lasting[kind] >= rule.lasting:
                    found[kind] = measured
                continue
            self._lasting.pop(kind, None)
            if kind in self.open and measured is not None and measured.value < CLOSES * rule.limit:
                events.append(_recovered(now, self.open.pop(kind)))
        hidden = {kind for cause in (*self.open, *found) for kind in HIDES.get(cause, ())}
        for kind, measured in found.items():
            if kind not in self.open and kind not in hidden:
                sentence, advice = SENTENCES[kind](now, self.past, measured)
                event = Event(now.step, kind, "" if measured.row is None else measured.row.layer, sentence, advice)
                self.open[kind] = event
                events.append(event)
        if "not finite" not in self.open:
            self.past.add(now)
        return events


def _recovered(now: Sample, event: Event) -> Event:
    where = f" at layer {event.layer}" if event.layer else ""
    sentence = f'"{event.kind}"{where} is over; it began at step {event.step:,}'
    return Event(now.step, event.kind, event.layer, sentence, "", True)


def _at(measured: Measured) -> Row:
    assert measured.row is not None
    return measured.row


def _since(past: Past) -> str:
    return "" if past.last is None else f" since step {past.last.step:,}"


def _recently(past: Past, row: Row) -> float:
    """The largest update of a layer in the recent samples."""
    moves = [sample.by_name[row.layer].update for sample in past.recent if row.layer in sample.by_name]
    return max([row.update or 0.0, *(move or 0.0 for move in moves)], default=0.0)


def _why(now: Sample, past: Past, row: Row) -> tuple[str, str]:
    """Why a layer fell silent: its biases, its update, its inputs."""
    others = max((other.bias for other in now.rows if other is not row), default=0.0)
    if row.bias > 10 * max(others, 0.1):
        return f"; its biases are {row.bias_mean:.3g} ± {row.bias_std:.2g}", "set them to zero"
    move = _recently(past, row)
    if move > FAR:
        return f"; the update there was {move:.2g} of the weights", LOWER
    if past.last is None:
        return "", "call stiefel_init.torch.initialize_(model) before training"
    return "", f"go back to a checkpoint before step {now.step:,} and {LOWER}"


def _not_finite(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    what, at = measured.detail, measured.row
    fast = _move_before(past)
    cure = LOWER if fast > FAR else "look for a batch with non-finite entries, or " + LOWER
    back = "" if past.last is None else f"go back to a checkpoint of step {past.last.step:,} or before, and "
    if what == "inputs":
        return "the inputs are not finite", "remove the entries that are not finite, or skip such batches"
    if what == "all weights":
        return f"the weights are not finite{_since(past)}, from {_at(measured).named} on", back + cure
    if what == "weights":
        return f"the weights of {_at(measured).named} are not finite{_since(past)}", back + cure
    if what == "signal":
        return f"the signal overflows from {_at(measured).named} on", LOWER
    if what == "gradient":
        return f"the gradient at {_at(measured).named} is not finite", f"skip such steps, {LOWER}"
    return f"the loss is not finite{'' if at is None else ' at ' + at.named}", f"look at the loss function, or {LOWER}"


def _move_before(past: Past) -> float:
    """The median update of the sample before."""
    return (None if past.last is None else median(row.update for row in past.last.rows)) or 0.0


def _leftover(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    return (
        "the backward pass adds to the gradients of the step before",
        "call optimizer.zero_grad() in every step; with accumulated gradients call step() of the watch once for each "
        "step of the optimizer",
    )


def _standing(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    if now.rate == 0:
        return f"no weight moves{_since(past)}, since the learning rate is 0", "raise it"
    text = f"no weight moves{_since(past)}, though there are gradients"
    return text, "call optimizer.step(), with an optimizer that holds model.parameters()"


def _cut(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    rows = [row for row in now.rows if row.ran and row.trained]
    count = sum(not row.weight_gradient for row in rows)
    at, places = _at(measured), [row.layer for row in rows]
    above = rows[places.index(at.layer) + 1] if places.index(at.layer) + 1 < len(rows) else None
    where = f"{count} layers up to {at.named} get" if count > 1 else f"{at.named} gets"
    between = f"between it and {above.named} " if above is not None else ""
    return f"{where} no gradient", f"look for .detach(), .data or torch.no_grad() {between}".strip()


def _frozen(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    at = _at(measured)
    if not at.trained:
        return f"the weights of {at.named} stand still{_since(past)}", "if that is not intended, set requires_grad=True"
    return (
        f"the weights of {at.named} stand still{_since(past)}, though it gets a gradient",
        "give its parameters to the optimizer",
    )


def _equal(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    text = f"{_at(measured).named} has the weights of {measured.detail}{_since(past)}"
    return text, "look for code that puts one layer in two places"


def _exploding(row: Row, measured: Measured) -> str:
    return f"the signal explodes from {row.named} on, to a size of {measured.value:.2g}"


def _gradient_explodes(row: Row, measured: Measured) -> str:
    return f"the gradient explodes below {row.named}, {times(measured.value)}"


def _scale(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    assert now.inputs is not None
    way = "larger" if now.inputs.size > (past.inputs or 0.0) else "smaller"
    return (
        f"the inputs are {times(measured.value)} {way} than at the start (size {now.inputs.size:.2g})",
        "prepare all batches alike",
    )


def _weights_changed(word: str) -> Callable[[Sample, Past, Measured], tuple[str, str]]:
    def sentence(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
        at = _at(measured)
        size = "all zero" if at.norm == 0 else f"{times(measured.value)} {word} than"
        text = f"the weights of {at.named} are {size}{_since(past) if at.norm == 0 else ' at step'}"
        text += "" if at.norm == 0 or past.last is None else f" {past.last.step:,}"
        move = _recently(past, at)
        if move > FAR and at.norm:
            return f"{text}; the update there was {move:.2g} of the weights", LOWER
        return text, "look for code that overwrites them, or go back to a checkpoint"

    return sentence


def _dead(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    at = _at(measured)
    why, advice = _why(now, past, at)
    if not at.dead:
        return f"the outputs of {at.named} are the same for all inputs{_since(past)}{why}", advice
    return f"{percent(at.dead)} of the units of {at.named} never fire{why}", advice


def _died(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    at = _at(measured)
    why, advice = _why(now, past, at)
    return f"{percent(measured.value)} of the units of {at.named} have died{_since(past)}{why}", advice


def _stuck(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    at = _at(measured)
    name = at.activation or "tanh"
    why, advice = _why(now, past, at)
    return f"{percent(measured.value)} of the outputs of {at.named} are at a bound of {name}{why}", advice


def _far(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    at, middle = _at(measured), median(row.update for row in now.rows if row.norm) or 0.0
    rate = "" if now.rate is None else f" at rate {now.rate:.2g}"
    text = f"a step moves the weights by {middle:.2g} of their size{rate} ({at.named}: {at.update:.2g})"
    return text, f"lower the rate {math.ceil(middle / 0.01):,} times, to 0.01 or less"


def _short(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    rate = "" if now.rate is None else f" at rate {now.rate:.2g}"
    return f"steps move the weights by only {1 / measured.value:.0e} of their size{rate}", "raise the rate"


def _decays(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    pull = [row.inward for row in now.rows if row.inward is not None]
    inward = sorted(pull)[len(pull) // 2] if pull else 0.0
    text = f"the weights have shrunk {measured.value:.1f} times in most layers"
    if inward > 0.5:
        text += f", and {percent(inward)} of a step's length shrinks them further"
    return text, "lower the weight decay"


def _from_diagnose(text: Callable[[Row, Measured], str], advice: str) -> Callable[..., tuple[str, str]]:
    def sentence(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
        at = measured.row or now.rows[0]
        remedy = "call stiefel_init.torch.initialize_(model) before training" if past.last is None else advice
        return text(at, measured), remedy

    return sentence


def _loss_jumps(now: Sample, past: Past, measured: Measured) -> tuple[str, str]:
    before = past.last.loss if past.last is not None and past.last.loss is not None else math.nan
    text = f"the loss jumped from {before:.3g} to {now.loss:.3g}{_since(past)}"
    return text + ", with steps and inputs as before", "look at the targets of the last batches"


SENTENCES: dict[str, Callable[[Sample, Past, Measured], tuple[str, str]]] = {
    "not finite": _not_finite,
    "gradients are not cleared": _leftover,
    "no backward pass": lambda n, p, m: ("no gradient reaches any weight", "call loss.backward() in every step"),
    "weights do not move": _standing,
    "gradient is cut off": _cut,
    "layer is frozen": _frozen,
    "layers are equal": _equal,
    "inputs changed scale": _scale,
    "inputs are large": lambda n, p, m: (f"the inputs have a size of {m.value:.3g}", "standardize them"),
    "inputs are small": lambda n, p, m: (f"the inputs have a size of {1 / m.value:.1g}", "standardize them"),
    "weights jumped": _weights_changed("larger"),
    "weights collapsed": _weights_changed("smaller"),
    "units are dead": _dead,
    "units died": _died,
    "units are stuck": _stuck,
    "steps are too large": _far,
    "weights decay": _decays,
    "steps are too small": _short,
    "signal dies": _from_diagnose(lambda r, m: f"from {r.named} on, all inputs give the same signal", LOWER),
    "signal fades": _from_diagnose(lambda r, m: f"the signal fades from {r.named} on", LOWER),
    "signal explodes": _from_diagnose(_exploding, LOWER),
    "gradient vanishes": _from_diagnose(lambda r, m: f"the gradient vanishes below {r.named}", LOWER),
    "gradient explodes": _from_diagnose(_gradient_explodes, LOWER),
    "loss jumps": _loss_jumps,
}  # fmt: skip
