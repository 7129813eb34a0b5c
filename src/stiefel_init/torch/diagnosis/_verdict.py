"""What a diagnosis concludes: `judge`, which turns the measured rows into sentences, the worst first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ._layer import Layer
from ._observe import RECTIFIERS

# docs/diagnose.md says what these mean and why.
SPREAD = 1e3  # the factor by which the signal may fall or grow over the network
FADED = 1e-3  # below this share of the activations' size, what tells inputs apart is gone
GRADIENT = 1e3  # the factor by which the gradient may fall or grow
DEAD = 0.25  # the share of units that may never fire
DISTINCT = 0.25  # the share of the first layer's distinct units that must be left in the last
DEEP = 100  # the hidden layers from which on permutations train better than uniform members: docs/members.md
ENOUGH = 16  # inputs from which dead and repeated units can be told
_RELATED = RECTIFIERS | {"leaky_relu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "rrelu", "softplus"}


class Finding(NamedTuple):
    """Something wrong with a network."""

    kind: str
    """`"not finite"`, `"signal dies"`, `"signal explodes"`, `"gradient vanishes"`, `"gradient explodes"`,
    `"units repeat"` or `"units are dead"`."""
    layer: str
    """Where it begins."""
    sentence: str


def judge(layers: Sequence[Layer]) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The findings, the worst first; and the verdict: their sentences and what to do, or why all is well."""
    # A layer of zeros is a choice (a head or a branch that starts at nothing), not a signal that died.
    judged = [layer for layer in layers if not layer.zero_weights] or list(layers)
    found = [_not_finite(judged)]
    if found[0] is None:
        # Below weights of zeros the gradient is 0, until they have taken their first step.
        carried = judged if len(judged) == len(layers) else [layer for layer in judged if layer.gradient != 0]
        found = [_spread(judged), _gradient(carried), _repeated(judged), _dead(judged)]
    findings = tuple(finding for finding in found if finding is not None)
    notes = [_few(layers), _zeros(layers)]
    sentences = [finding.sentence for finding in findings] + ([_advice(judged)] if findings else _healthy(judged))
    return findings, (*sentences, *(note for note in notes if note))


def _not_finite(layers: Sequence[Layer]) -> Finding | None:
    for layer in layers:
        if not math.isfinite(layer.pre_mean + layer.pre_std + layer.post_mean + layer.post_std):
            return Finding("not finite", layer.label, f"The signal overflows: from {layer.named} on it is not finite.")
    return None


def _last_run(layers: Sequence[Layer], bad: Callable[[Layer], bool]) -> Layer | None:
    """The first of the layers at the end that are all bad."""
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
    dark = next((one for one in layers if one.activation in RECTIFIERS and one.dead == one.units), None)
    if dark is not None and _last_run(layers, lambda one: one.spread == 0) is not None:
        return Finding(
            "signal dies",
            dark.label,
            f"The signal dies in {dark.named}: none of its {dark.units} units fires for any input, and what follows is "
            "the same for all inputs.",
        )
    at = _last_run(layers, lambda one: one.spread * SPREAD < first.spread or one.spread < FADED * one.size)
    if at is not None:
        if last.spread * SPREAD < first.spread and last.post_std * SPREAD < first.post_std:
            text = f"the activations are {_times(first.post_std / last.post_std)} smaller in {last.named} than in "
            text += f"{first.named}{_per_layer(layers, last.post_std / first.post_std)}"
        else:
            text = f"in {last.named} all inputs give the same, to {_share(last.spread, last.size)} of its activations"
        return Finding("signal dies", at.label, f"The signal dies from {at.named} on: {text}.")
    at = _last_run(layers, lambda one: one.spread > SPREAD * first.spread)
    if at is not None:
        text = f"the activations are {_times(last.post_std / first.post_std)} larger in {last.named} than in "
        text += f"{first.named}{_per_layer(layers, last.post_std / first.post_std)}"
        return Finding("signal explodes", at.label, f"The signal explodes from {at.named} on: {text}.")
    return None


def _gradient(layers: Sequence[Layer]) -> Finding | None:
    rows = [one for one in layers if one.gradient is not None]
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    low, high = first.gradient or 0.0, last.gradient or 0.0
    if not math.isfinite(low):
        return Finding("gradient explodes", first.label, f"The gradient overflows before it reaches {first.named}.")
    if low * GRADIENT < high:
        at = next(one for one in reversed(rows) if (one.gradient or 0.0) * GRADIENT < high)
        if low == 0:
            gone = next(one for one in reversed(rows) if not one.gradient)
            return Finding("gradient vanishes", at.label, f"The gradient vanishes: at {gone.named} nothing is left.")
        text = f"at {first.named} it is {_times(high / low)} smaller than at {last.named}{_per_layer(rows, low / high)}"
        return Finding("gradient vanishes", at.label, f"The gradient vanishes from {at.named} down: {text}.")
    if high * GRADIENT < low:
        at = next(one for one in reversed(rows) if (one.gradient or 0.0) > GRADIENT * high)
        if high == 0:
            return Finding("gradient vanishes", last.label, f"The gradient at {last.named} is 0.")
        text = f"at {first.named} it is {_times(low / high)} larger than at {last.named}{_per_layer(rows, low / high)}"
        return Finding("gradient explodes", at.label, f"The gradient explodes from {at.named} down: {text}.")
    return None


def _hidden(layers: Sequence[Layer]) -> list[Layer]:
    """Without the output, if no activation follows it: its few units are not the network's."""
    return list(layers[:-1] if len(layers) > 1 and layers[-1].activation is None else layers)


def _repeated(layers: Sequence[Layer]) -> Finding | None:
    rows = _hidden(layers)
    # Units that do not vary at all are a signal that died, told above.
    if len(rows) < 2 or min(rows[0].samples, rows[-1].samples) < ENOUGH or not (rows[0].distinct and rows[-1].distinct):
        return None
    first, last = rows[0], rows[-1]

    def few(one: Layer) -> bool:
        return (one.distinct or 0.0) < DISTINCT * min(first.distinct or 0.0, one.units)

    at = _last_run(rows, few)
    if at is None:
        return None
    return Finding(
        "units repeat",
        at.label,
        f"Units repeat one another from {at.named} on: the {last.units} of {last.named} differ as much as "
        f"{last.distinct:.1f} independent ones would, those of {first.named} as much as {first.distinct:.1f}.",
    )


def _dead(layers: Sequence[Layer]) -> Finding | None:
    rows = [one for one in layers if one.dead is not None and one.samples >= ENOUGH]
    dead, units = sum(one.dead or 0 for one in rows), sum(one.units for one in rows)
    if not rows or dead < DEAD * units:
        return None
    worst = max(rows, key=lambda one: (one.dead or 0) / one.units)
    where = "" if len(rows) == 1 else f"; the most are in {worst.named}, {worst.dead} of {worst.units}"
    return Finding(
        "units are dead",
        worst.label,
        f"{dead:,} of {units:,} units never fire, whatever the input, and do not learn{where}.",
    )


def _advice(layers: Sequence[Layer]) -> str:
    schemes = {one.scheme for one in layers if one.scheme is not None}
    activations = {one.activation for one in layers if one.activation is not None}
    if activations and not activations & _RELATED:
        return (
            "What to do: orthogonal weights keep the signal of such activations longer, "
            'stiefel_init.torch.initialize_(model, "orthogonal"); so do normalization layers and skip connections.'
        )
    if schemes - {"stiefel", "lee"}:
        member = ', member="permutation"' if len(_hidden(layers)) > DEEP else ""
        return (
            f"What to do: stiefel_init.torch.initialize_(model{member}) draws every weight so that signal and gradient "
            "keep their size; then diagnose again."
        )
    if layers[0].alpha is not None and layers[0].alpha < 0.5:
        return (
            "What to do: the weights are as they should be, but the inputs' mean is too low for units to fire; shift "
            "them, x = stiefel_init.theory.shift_for_alpha(x, 2.0)."
        )
    return (
        "What to do: the weights are as they should be, so the cause lies elsewhere: look for biases, scales or "
        "missing normalization at the layers named above, or add skip connections."
    )


def _healthy(layers: Sequence[Layer]) -> list[str]:
    """Why nothing is wrong."""
    first, last = layers[0], layers[-1]
    hidden = _hidden(layers)[-1]
    reasons = []
    if hidden is not first and first.spread > 0:
        reasons.append(f"the signal of {hidden.named} is {_ratio(hidden.spread / first.spread)} that of {first.named}")
    if hidden.active is not None:
        reasons.append(f"{_percent(hidden.active)} of the units of {hidden.named} fire for an input")
    rows = [one for one in layers if one.gradient]
    if len(rows) > 1:
        ratio = (rows[0].gradient or 0.0) / (rows[-1].gradient or 1.0)
        reasons.append(f"the gradient at {rows[0].named} is {_ratio(ratio)} that at {rows[-1].named}")
    members = [one for one in layers if one.scheme is not None]
    if members and all(one.scheme == "stiefel" for one in members):
        reasons.append("all weights are members of Õ(m,n)")
    sentences = [f"The network is healthy: {_and(reasons)}." if reasons else "The network is healthy."]
    rectified = [one for one in layers if one.dead is not None and one.samples >= ENOUGH]
    if rectified:
        dead, units = sum(one.dead or 0 for one in rectified), sum(one.units for one in rectified)
        sentences.append(f"{dead:,} of {units:,} units never fire." if dead else "Every unit fires for some input.")
    if last.gradient is None:
        sentences.append("The gradient was not looked at; give targets to see it.")
    return sentences


def _few(layers: Sequence[Layer]) -> str:
    samples = min(one.samples for one in layers)
    if samples >= ENOUGH:
        return ""
    inputs = "1 input" if samples == 1 else f"{samples} inputs"
    return f"With {inputs} dead and repeated units cannot be told; give {ENOUGH} or more."


def _zeros(layers: Sequence[Layer]) -> str:
    names = [one.label for one in layers if one.zero_weights]
    if not names:
        return ""
    if len(names) == 1:
        return f"The weights of {names[0]} are all zero; if not on purpose, initialize them."
    return (
        f"The weights of {len(names)} layers, {names[0]} the first, are all zero; if not on purpose, initialize them."
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
