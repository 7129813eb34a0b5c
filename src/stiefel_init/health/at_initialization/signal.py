"""Rules about the signal: whether different inputs are still told apart in the last hidden layer, and at what size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...core.activations import DYING
from ..rows import Evidence, Layer
from ..rule import DEFINITION, NEVER, Cause, Measured, Rule, over
from ..wording import per_layer, times
from .causes import TRAINING, of_fading, of_growing, of_loss

DROWNED, FADED = 1e3, 1e4  # where a deep network begins to suffer: see `over_layers`


def not_finite(evidence: Evidence) -> Layer | None:
    """The first layer whose values are not all finite."""
    for layer in evidence.judged:
        if not math.isfinite(layer.pre_mean + layer.pre_std + layer.post_mean + layer.post_std):
            return layer
    return None


def overflow(evidence: Evidence, limit: float) -> Measured | None:
    for layer in evidence.layers:
        if not all(math.isfinite(value or 0.0) for value in (layer.row_norm, layer.bias_mean, layer.bias_std)):
            return Measured(1.0, layer, "weights")
    at = not_finite(evidence)
    return None if at is None else Measured(1.0, at)


def _overflows(evidence: Evidence, measured: Measured) -> str:
    if measured.detail:
        return f"The weights of {measured.at.named} are not finite."
    return f"The signal overflows from {measured.at.named} on."


def _of_overflow(evidence: Evidence, measured: Measured) -> Cause:
    return TRAINING if measured.detail else of_growing(evidence, measured)


NOT_FINITE = Rule(
    "not finite", overflow, 0.5, NEVER, "1 if weights or values are not finite", _overflows, _of_overflow, DEFINITION
)  # fmt: skip
"""Asked before all others, which need finite numbers."""


def since(layers: Sequence[Layer], bad: Callable[[Layer], bool]) -> Layer:
    """The first layer from which on all are bad; the last if that is not."""
    start = layers[-1]
    for layer in reversed(layers):
        if not bad(layer):
            break
        start = layer
    return start


def faded(evidence: Evidence, limit: float) -> Measured | None:
    """How much larger the last hidden activations are than the differences between inputs."""
    rows = [layer for layer in evidence.hidden if layer.samples > 1]
    if not rows or evidence.wakes:
        return None
    dark = next((layer for layer in rows if layer.activation in DYING and layer.dead == layer.units), None)
    if dark is not None and rows[-1].spread == 0:
        return Measured(math.inf, dark)
    at = since(rows, lambda layer: over(layer.size, layer.spread) > limit or layer.size == 0)
    last = rows[-1]
    return Measured(over(last.size, last.spread) if last.size > 0 else math.inf, at)


def weak(evidence: Evidence, limit: float) -> Measured | None:
    rows = [layer for layer in evidence.hidden if layer.samples > 1]
    if not rows or evidence.wakes:
        return None
    return Measured(over(1.0, rows[-1].spread), since(rows, lambda layer: over(1.0, layer.spread) > limit))


def _unless_easy(evidence: Evidence, measured: Measured | None) -> Measured | None:
    """Networks learn easy targets from what rounding leaves of the signal, as long as the gradient reaches them."""
    return None if evidence.easy and measured is not None and math.isfinite(measured.value) else measured


def died(evidence: Evidence, limit: float) -> Measured | None:
    """`faded`; where the targets are easy and no sigmoid hides what fades, only if nothing at all is left."""
    measured = faded(evidence, limit)
    return measured if evidence.squashes else _unless_easy(evidence, measured)


def thin(evidence: Evidence, limit: float) -> Measured | None:
    """`weak`; where the targets are easy, only if nothing at all is left."""
    return _unless_easy(evidence, weak(evidence, limit))


def squashed(evidence: Evidence, limit: float) -> Measured | None:
    return faded(evidence, limit) if evidence.squashes and not evidence.easy else None


def over_layers(
    measure: Callable[[Evidence, float], Measured | None], floor: float
) -> Callable[[Evidence, float], Measured | None]:
    """Hidden layers times the powers of ten of `measure`, 0 up to `floor`; for targets that are not easy.

    Training has to undo the damage in every layer at once: a shallow network makes up for what keeps a deep one from
    training.
    """

    def measured(evidence: Evidence, limit: float) -> Measured | None:
        count = len(evidence.hidden)
        found = measure(evidence, max(floor, 10 ** min(300.0, limit / count))) if evidence.hard else None
        if found is None:
            return None
        return found._replace(value=count * math.log10(found.value) if found.value > floor else 0.0)

    return measured


def strong(evidence: Evidence, limit: float) -> Measured | None:
    rows = evidence.hidden
    largest = max(rows, key=lambda layer: layer.size)
    return Measured(largest.size, next((layer for layer in rows if layer.size > limit), largest))


def large_loss(evidence: Evidence, limit: float) -> Measured | None:
    fit = evidence.fit
    if fit is None or fit.output_mean is not None:
        return None
    usual = fit.constant_loss or fit.zero_loss
    if not usual:
        return None
    return Measured(math.inf if math.isnan(fit.loss) else fit.loss / usual, evidence.layers[-1])


def _dies(evidence: Evidence, measured: Measured) -> str:
    at, last = measured.at, evidence.hidden[-1]
    if at.dead is not None and at.dead == at.units:
        return (
            f"The signal dies in {at.named}: none of its {at.units} units fires for any input, so all inputs give the "
            "same output."
        )
    if last.spread == 0:
        return f"The signal dies from {at.named} on: in {last.named} all inputs give the same activations."
    return (
        f"The signal dies from {at.named} on: at {last.named} activations differ between inputs by "
        f"{last.spread / last.size:.0e} of their size."
    )


def _fades(evidence: Evidence, measured: Measured) -> str:
    rows, at = evidence.hidden, measured.at
    entry, last = rows[0], rows[-1]
    if len(rows) < 2 or last.spread * 10 >= entry.spread:
        return f"The signal is too small from {at.named} on: inputs differ by {last.spread:.0e} in {last.named}."
    return (
        f"The signal fades from {at.named} on: inputs differ {times(over(entry.spread, last.spread))} less in "
        f"{last.named} than in {entry.named}{per_layer(len(rows), last.spread / entry.spread)}."
    )


def _explodes(evidence: Evidence, measured: Measured) -> str:
    largest = max(evidence.hidden, key=lambda layer: layer.size)
    return f"The signal explodes from {measured.at.named} on: activations reach a size of {largest.size:.2g}."


def _huge(evidence: Evidence, measured: Measured) -> str:
    known = evidence.fit is not None and evidence.fit.constant_loss
    usual = "the best constant" if known else "outputs of zero"
    return f"The outputs are too large: the loss is {times(measured.value)} that of {usual}."


RULES = (
    Rule(
        "signal dies", died, 3e6, 1e3, "last hidden layer: size of the activations / differences between inputs",
        _dies, of_fading, hides=("signal drowns", "signal fades", "signal is faint"),
    ),
    Rule(
        "signal drowns", over_layers(faded, DROWNED), 50, NEVER,
        "hidden layers × powers of ten of that; for targets not easy", _dies, of_fading,
        hides=("signal fades", "signal is faint"), hides_warnings=("signal dies",),
    ),
    Rule(
        "signal is squashed", squashed, 50, 10, "likewise, where most hidden layers end in a sigmoid", _dies, of_fading,
        hides=("signal dies", "signal drowns", "signal fades", "signal is faint"),
    ),
    Rule(
        "signal fades", thin, 1e9, 1e4, "last hidden layer: 1 / differences between inputs", _fades, of_fading,
        hides=("signal is faint",),
    ),
    Rule(
        "signal is faint", over_layers(weak, FADED), 250, NEVER,
        "hidden layers × powers of ten of that; for targets not easy", _fades, of_fading,
        hides_warnings=("signal fades",),
    ),
    Rule(
        "signal explodes", strong, 1e3, 100, "largest size of the activations of a hidden layer", _explodes, of_growing
    ),
    Rule(
        "loss is huge", large_loss, 200, 30, "loss / that of the best constant, or of zeros; not for distances", _huge,
        of_loss,
    ),
)  # fmt: skip
