"""What a diagnosis concludes: `judge`, which turns the measured rows into sentences, the worst first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ._layer import Layer
from ._observe import RECTIFIERS

# docs/diagnose.md says what these mean and why.
SPREAD = 1e3  # the signal may shrink or grow by this factor over the network
FADED = 1e-3  # inputs count as indistinguishable if they differ by less than this share of the activations
GRADIENT = 1e3  # the gradient may shrink or grow by this factor
DEAD = 0.25  # this share of units may never fire
DISTINCT = 0.25  # the last layer must keep this share of the first layer's distinct units
EQUAL = 1.001  # with fewer distinct units, all units of the first layer are copies of one
ENOUGH = 16  # inputs needed to detect dead and redundant units
_RELATED = RECTIFIERS | {"leaky_relu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "rrelu", "softplus"}


class Finding(NamedTuple):
    """Something wrong with a network."""

    kind: str
    """`"not finite"`, `"signal dies"`, `"signal explodes"`, `"gradient vanishes"`, `"gradient explodes"`,
    `"units are equal"`, `"units repeat"` or `"units are dead"`."""
    layer: str
    """Where it begins."""
    sentence: str


def judge(layers: Sequence[Layer]) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The findings, the worst first; and the verdict: their sentences and what to do, or why the network is healthy."""
    # A layer of zeros is a choice (a head or a branch that starts at zero), not a signal that died.
    judged = [layer for layer in layers if not layer.zero_weights] or list(layers)
    problems = [_not_finite(judged)]
    if problems[0] is None:
        # Below zero weights the gradient is 0 until their first step.
        carried = judged if len(judged) == len(layers) else [layer for layer in judged if layer.gradient != 0]
        problems = [_spread(judged), _gradient(carried), _equal(judged) or _repeated(judged), _dead(judged)]
    findings = tuple(finding for finding in problems if finding is not None)
    notes = [_few(layers), _zeros(layers), _level(layers)]
    sentences = [finding.sentence for finding in findings]
    equal = any(finding.kind == "units are equal" for finding in findings)
    sentences += [_advice(judged, equal=equal)] if findings else _healthy(judged)
    return findings, (*sentences, *(note for note in notes if note))


def _not_finite(layers: Sequence[Layer]) -> Finding | None:
    for layer in layers:
        if not math.isfinite(layer.pre_mean + layer.pre_std + layer.post_mean + layer.post_std):
            return Finding("not finite", layer.label, f"The signal overflows from {layer.named} on.")
    return None


def _last_run(layers: Sequence[Layer], bad: Callable[[Layer], bool]) -> Layer | None:
    """The first layer from which on all are bad."""
    start = None
    for layer in reversed(layers):
        if not bad(layer):
            break
        start = layer
    return start


def _spread(layers: Sequence[Layer]) -> Finding | None:
    first, last = layers[0], layers[-1]
    if last.samples < 2 or first.samples < 2:
        return None
    dark = next((layer for layer in layers if layer.activation in RECTIFIERS and layer.dead == layer.units), None)
    if dark is not None and _last_run(layers, lambda layer: layer.spread == 0) is not None:
        return Finding(
            "signal dies",
            dark.label,
            f"The signal dies in {dark.named}: none of its {dark.units} units fires for any input, so all inputs give "
            "the same output.",
        )
    at = _last_run(layers, lambda layer: layer.spread * SPREAD < first.spread or layer.spread < FADED * layer.size)
    if at is not None:
        if last.spread * SPREAD < first.spread and last.post_std * SPREAD < first.post_std:
            text = f"the activations are {_times(first.post_std / last.post_std)} smaller in {last.named} than in "
            text += f"{first.named}{_per_layer(layers, last.post_std / first.post_std)}"
        else:
            text = f"in {last.named} all inputs give the same activations, to {_share(last.spread, last.size)}"
        return Finding("signal dies", at.label, f"The signal dies from {at.named} on: {text}.")
    at = _last_run(layers, lambda layer: layer.spread > SPREAD * first.spread)
    if at is not None:
        text = f"the activations are {_times(last.post_std / first.post_std)} larger in {last.named} than in "
        text += f"{first.named}{_per_layer(layers, last.post_std / first.post_std)}"
        return Finding("signal explodes", at.label, f"The signal explodes from {at.named} on: {text}.")
    return None


def _gradient(layers: Sequence[Layer]) -> Finding | None:
    rows = [layer for layer in layers if layer.gradient is not None]
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    low, high = first.gradient or 0.0, last.gradient or 0.0
    if not math.isfinite(low):
        return Finding("gradient explodes", first.label, f"The gradient overflows before it reaches {first.named}.")
    if low * GRADIENT < high:
        at = next(layer for layer in reversed(rows) if (layer.gradient or 0.0) * GRADIENT < high)
        if low == 0:
            gone = next(layer for layer in reversed(rows) if not layer.gradient)
            return Finding("gradient vanishes", at.label, f"The gradient vanishes: at {gone.named} it is 0.")
        text = f"at {first.named} it is {_times(high / low)} smaller than at {last.named}{_per_layer(rows, low / high)}"
        return Finding("gradient vanishes", at.label, f"The gradient vanishes from {at.named} down: {text}.")
    if high * GRADIENT < low:
        at = next(layer for layer in reversed(rows) if (layer.gradient or 0.0) > GRADIENT * high)
        if high == 0:
            return Finding("gradient vanishes", last.label, f"The gradient at {last.named} is 0.")
        text = f"at {first.named} it is {_times(low / high)} larger than at {last.named}{_per_layer(rows, low / high)}"
        return Finding("gradient explodes", at.label, f"The gradient explodes from {at.named} down: {text}.")
    return None


def _hidden(layers: Sequence[Layer]) -> list[Layer]:
    """Without the output layer, if no activation follows it."""
    return list(layers[:-1] if len(layers) > 1 and layers[-1].activation is None else layers)


def _equal(layers: Sequence[Layer]) -> Finding | None:
    at = _hidden(layers)[0]
    if at.units < 2 or at.samples < ENOUGH or not at.distinct or at.distinct > EQUAL:
        return None
    return Finding(
        "units are equal",
        at.label,
        f"All {at.units} units of {at.named} are equal: they get equal gradients, so training keeps them equal.",
    )


def _repeated(layers: Sequence[Layer]) -> Finding | None:
    rows = _hidden(layers)
    # If no unit varies at all, the signal has died, which is reported above.
    if len(rows) < 2 or min(rows[0].samples, rows[-1].samples) < ENOUGH or not (rows[0].distinct and rows[-1].distinct):
        return None
    first, last = rows[0], rows[-1]

    def few(layer: Layer) -> bool:
        return (layer.distinct or 0.0) < DISTINCT * min(first.distinct or 0.0, layer.units)

    at = _last_run(rows, few)
    if at is None:
        return None
    return Finding(
        "units repeat",
        at.label,
        f"Units become redundant from {at.named} on: {last.named} has {last.units} units, effectively "
        f"{last.distinct:.1f} distinct ones ({first.named}: {first.distinct:.1f}).",
    )


def _dead(layers: Sequence[Layer]) -> Finding | None:
    rows = [layer for layer in layers if layer.dead is not None and layer.samples >= ENOUGH]
    dead, units = sum(layer.dead or 0 for layer in rows), sum(layer.units for layer in rows)
    if not rows or dead < DEAD * units:
        return None
    worst = max(rows, key=lambda layer: (layer.dead or 0) / layer.units)
    where = "" if len(rows) == 1 else f"; {worst.named} is worst, with {worst.dead} of {worst.units}"
    return Finding(
        "units are dead",
        worst.label,
        f"{dead:,} of {units:,} units never fire for any input, so they cannot learn{where}.",
    )


def _advice(layers: Sequence[Layer], *, equal: bool) -> str:
    schemes = {layer.scheme for layer in layers if layer.scheme is not None}
    activations = {layer.activation for layer in layers if layer.activation is not None}
    if activations and not activations & _RELATED:
        return (
            "What to do: orthogonal weights preserve the signal longer with such activations: "
            'stiefel_init.torch.initialize_(model, "orthogonal"); normalization layers and skip connections help too.'
        )
    if equal:
        return "What to do: call stiefel_init.torch.initialize_(model), which sets them apart; then diagnose again."
    if schemes - {"stiefel", "lee"}:
        return (
            "What to do: call stiefel_init.torch.initialize_(model), which preserves the size of signal and gradient; "
            "then diagnose again."
        )
    if layers[0].alpha is not None and layers[0].alpha < 0.5:
        return (
            "What to do: the weights are fine, but the inputs' mean is too low for units to fire; shift the inputs, "
            "x = stiefel_init.theory.shift_for_alpha(x, 2.0)."
        )
    return (
        "What to do: the weights are fine, so look for the cause elsewhere: biases, scales or missing normalization at "
        "the layers named above; or add skip connections."
    )


def _healthy(layers: Sequence[Layer]) -> list[str]:
    """Why nothing is wrong."""
    first, last = layers[0], layers[-1]
    hidden = _hidden(layers)[-1]
    reasons = []
    if hidden is not first and first.spread > 0:
        reasons.append(f"the signal at {hidden.named} is {_ratio(hidden.spread / first.spread)} that at {first.named}")
    if hidden.active is not None:
        reasons.append(f"an input activates {_percent(hidden.active)} of the units of {hidden.named}")
    rows = [layer for layer in layers if layer.gradient]
    if len(rows) > 1:
        ratio = (rows[0].gradient or 0.0) / (rows[-1].gradient or 1.0)
        reasons.append(f"the gradient at {rows[0].named} is {_ratio(ratio)} that at {rows[-1].named}")
    members = [layer for layer in layers if layer.scheme is not None]
    if members and all(layer.scheme == "stiefel" for layer in members):
        reasons.append("all weights are members of Õ(m,n)")
    sentences = [f"The network is healthy: {_and(reasons)}." if reasons else "The network is healthy."]
    rectified = [layer for layer in layers if layer.dead is not None and layer.samples >= ENOUGH]
    if rectified:
        dead, units = sum(layer.dead or 0 for layer in rectified), sum(layer.units for layer in rectified)
        sentences.append(f"{dead:,} of {units:,} units never fire." if dead else "Every unit fires for some input.")
    if last.gradient is None:
        sentences.append("Gradients not measured; pass `targets` to measure them.")
    return sentences


def _few(layers: Sequence[Layer]) -> str:
    samples = min(layer.samples for layer in layers)
    if samples >= ENOUGH:
        return ""
    inputs = "1 input" if samples == 1 else f"{samples} inputs"
    return f"{inputs} cannot show dead or redundant units; pass {ENOUGH} or more."


def _zeros(layers: Sequence[Layer]) -> str:
    names = [layer.label for layer in layers if layer.zero_weights]
    if not names:
        return ""
    if len(names) == 1:
        return f"The weights of {names[0]} are all zero; unless that is intended, initialize them."
    return (
        f"The weights of {len(names)} layers, {names[0]} first, are all zero; unless that is intended, initialize them."
    )


def _level(layers: Sequence[Layer]) -> str:
    last = layers[-1]
    if len(layers) < 2 or last.units > 1 or last.activation is not None or last.scheme != "stiefel":
        return ""
    return (
        f"The output of {last.named} is the common level of its inputs, so a target with another mean moves all units "
        "together and may kill them; stiefel_init.torch.initialize_(model) makes it one of how they differ."
    )


def _per_layer(layers: Sequence[Layer], ratio: float) -> str:
    steps = len(layers) - 1
    if steps < 2 or not 0 < ratio < math.inf:
        return ""
    return f", a factor {ratio ** (1 / steps):.2g} per layer"


def _times(factor: float) -> str:
    return "infinitely" if math.isinf(factor) else f"{factor:,.0f} times" if factor < 1e6 else f"{factor:.0e} times"


def _ratio(factor: float) -> str:
    return f"{factor:.2g} times"


def _share(part: float, whole: float) -> str:
    return "all digits" if part == 0 else f"{part / whole:.0e}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share < 0.995 or share == 1 else f"{100 * share:.1f} %"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"
