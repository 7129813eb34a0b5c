"""What a diagnosis concludes: `judge`, which holds the evidence against the rules and says it in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...recipe.advice import Plain, of_depth
from ._causes import INITIALIZE, Cause, explain, training
from ._ends import ENOUGH, Fit
from ._evidence import Evidence, Measured, over
from ._layer import Layer
from ._rules import RULES, broken_weights, not_finite
from ._wording import listed, per_layer, percent, ratio, share, times


class Finding(NamedTuple):
    """Something wrong with a network."""

    kind: str
    """The `kind` of one of `RULES`, or `"not finite"`."""
    layer: str
    """Where it begins; empty if that is in no layer."""
    sentence: str
    cause: str
    """`"weights"`, `"biases"`, `"inputs"`, `"activation"`, `"depth"`, `"time steps"`, `"targets"` or `"training"`."""
    advice: str
    """What to do."""


class Verdict(NamedTuple):
    """What the evidence says."""

    findings: tuple[Finding, ...]
    """What keeps the network from training, the worst first."""
    warnings: tuple[Finding, ...]
    """What does not, but is far from how networks should start."""
    sentences: tuple[str, ...]


def judge(evidence: Evidence) -> Verdict:
    """Apply all rules."""
    fit = evidence.fit
    if fit is not None and fit.learned and not_finite(evidence) is None:
        return Verdict((), (), (_learned(fit),))
    serious: list[tuple[Finding, Cause]] = []
    mild: list[tuple[Finding, Cause]] = []
    overflow = _overflow(evidence)
    if overflow is not None:
        serious.append(overflow)
    else:
        for kind, rule in RULES.items():
            found = rule.finds(evidence)
            if found is not None:
                measured, is_serious = found
                (serious if is_serious else mild).append(_finding(evidence, kind, measured))
    kinds = {finding.kind for finding, _ in serious}
    serious = [pair for pair in serious if not kinds & set(_ECHOES.get(pair[0].kind, ()))]
    kinds |= {finding.kind for finding, _ in mild}
    mild = [pair for pair in mild if not kinds & set(_MILD_ECHOES.get(pair[0].kind, ()))]
    sentences = _told([*serious, *mild]) if serious else [*_healthy(evidence), *_told(mild)]
    notes = [_few(evidence.layers), _zeros(evidence)]
    return Verdict(
        tuple(finding for finding, _ in serious),
        tuple(finding for finding, _ in mild),
        (*_cited(sentences, evidence), *(note for note in notes if note)),
    )


def _learned(fit: Fit) -> str:
    constant = f"that of the best constant output {fit.constant_loss:.2g}"
    return f"The network has learned: its loss is {fit.loss:.2g}, {constant}."


_ECHOES = {
    "signal fades": ("signal dies", "signal drowns", "signal is squashed"),
    "signal is faint": ("signal fades", "signal dies", "signal drowns", "signal is squashed"),
    "signal dies": ("signal is squashed",),
    "signal drowns": ("signal dies", "signal is squashed"),
    "inputs are far off": ("inputs are offset",),
    "offset stays": ("inputs are offset", "inputs are far off"),
    "gates are closed": ("gates forget",),
    "output is common": ("level is off",),
    "targets are offset": ("level is off",),
}
"""Findings that say nothing beside these."""
_MILD_ECHOES = {
    **_ECHOES,
    "signal dies": ("signal drowns", "signal is squashed"),
    "signal fades": (*_ECHOES["signal fades"], "signal is faint"),
    "inputs are offset": ("inputs are far off", "offset stays"),
    "gates forget": ("gates are closed",),
    "activations are idle": ("inputs are far off",),
}
"""The same for warnings."""


def _overflow(evidence: Evidence) -> tuple[Finding, Cause] | None:
    broken = broken_weights(evidence)
    if broken is not None:
        cause = training()
        sentence = f"The weights of {broken.named} are not finite."
        return Finding("not finite", broken.label, sentence, cause.kind, cause.advice), cause
    at = not_finite(evidence)
    if at is None:
        return None
    cause = explain(evidence, "not finite")
    at = cause.layer or at
    return Finding("not finite", at.label, f"The signal overflows from {at.named} on.", cause.kind, cause.advice), cause


def _finding(evidence: Evidence, kind: str, measured: Measured) -> tuple[Finding, Cause]:
    cause = explain(evidence, kind)
    at = cause.layer or measured.layer
    sentence = _SENTENCES[kind](evidence, measured._replace(layer=at))
    return Finding(kind, "" if at is None else at.label, sentence, cause.kind, cause.advice), cause


def _told(found: Iterable[tuple[Finding, Cause]]) -> list[str]:
    """The findings, then what is behind them and what to do, each once."""
    pairs = list(found)
    reasons = dict.fromkeys(cause.sentence for _, cause in pairs if cause.sentence)
    advice = dict.fromkeys(cause.advice for _, cause in pairs if cause.advice)
    return [*(finding.sentence for finding, _ in pairs), *reasons, *(f"What to do: {text}." for text in advice)]


def _dies(evidence: Evidence, measured: Measured) -> str:
    at, last = _at(measured), evidence.hidden[-1]
    if at.dead is not None and at.dead == at.units:
        return (
            f"The signal dies in {at.named}: none of its {at.units} units fires for any input, so all inputs give the "
            "same output."
        )
    return (
        f"The signal dies from {at.named} on: in {last.named} all inputs give the same activations, to "
        f"{share(last.spread, last.size)}."
    )


def _fades(evidence: Evidence, measured: Measured) -> str:
    rows, at = evidence.hidden, _at(measured)
    first, last = rows[0], rows[-1]
    if len(rows) < 2 or last.spread * 10 >= first.spread:
        return f"The signal is too small from {at.named} on: inputs differ by {last.spread:.0e} in {last.named}."
    return (
        f"The signal fades from {at.named} on: inputs differ {times(over(first.spread, last.spread))} less in "
        f"{last.named} than in {first.named}{per_layer(rows, last.spread / first.spread)}."
    )


def _explodes(evidence: Evidence, measured: Measured) -> str:
    largest = max(evidence.hidden, key=lambda layer: layer.size)
    return f"The signal explodes from {_at(measured).named} on: activations reach a size of {largest.size:.2g}."


def _vanishes(evidence: Evidence, measured: Measured) -> str:
    rows = evidence.carried
    first, last = rows[0], rows[-1]
    low, high = first.gradient or 0.0, last.gradient or 0.0
    if low == 0:
        gone = next(layer for layer in reversed(rows) if not layer.gradient)
        return f"The gradient vanishes: at {gone.named} it is 0."
    return (
        f"The gradient vanishes: at {first.named} it is {times(high / low)} smaller than at "
        f"{last.named}{per_layer(rows, low / high)}."
    )


def _grows(evidence: Evidence, measured: Measured) -> str:
    rows = evidence.carried
    first, last = rows[0], rows[-1]
    low, high = first.gradient or 0.0, last.gradient or 0.0
    if not math.isfinite(low):
        return f"The gradient overflows before it reaches {first.named}."
    return (
        f"The gradient explodes: at {first.named} it is {times(low / high)} larger than at "
        f"{last.named}{per_layer(rows, low / high)}."
    )


def _forgotten(evidence: Evidence, measured: Measured) -> str:
    at = _at(measured)
    size = "0" if math.isinf(measured.value) else f"{times(measured.value)} smaller than at the last ones"
    return f"{_capital(at.named)} forgets its first steps: the gradient at step 1 of {at.steps} is {size}."


def _copies(evidence: Evidence, measured: Measured) -> str:
    at = _at(measured)
    return f"All {at.units} units of {at.named} are equal and get equal gradients, so training keeps them equal."


def _alike(evidence: Evidence, measured: Measured) -> str:
    at = _at(measured)
    inputs = evidence.inputs.distinct if evidence.inputs is not None else None
    return (
        f"The {at.units} units of {at.named} are effectively {at.distinct:.1f} distinct ones; its inputs allow "
        f"{min(at.units, inputs or at.units):.0f}."
    )


def _repeat(evidence: Evidence, measured: Measured) -> str:
    first, last = evidence.hidden[0], evidence.hidden[-1]
    return (
        f"Units become redundant from {_at(measured).named} on: {last.named} has {last.units} units, effectively "
        f"{last.distinct:.1f} distinct ones ({first.named}: {first.distinct:.1f})."
    )


def _dead(evidence: Evidence, measured: Measured) -> str:
    worst = max(evidence.hidden, key=lambda layer: (layer.dead or 0) / layer.units)
    return f"{worst.dead} of the {worst.units} units of {worst.named} fire for no input, so they cannot learn."


def _stuck(evidence: Evidence, measured: Measured) -> str:
    worst = max(evidence.hidden, key=lambda layer: layer.saturated or 0.0)
    return (
        f"{_capital(worst.named)} is saturated: {percent(measured.value)} of its outputs are at a bound of "
        f"{worst.activation}, where the slope is 0."
    )


def _huge(evidence: Evidence, measured: Measured) -> str:
    fit = evidence.fit
    known = fit is not None and fit.constant_loss
    usual = "the best constant" if known else "outputs of zero"
    return f"The outputs are too large: the loss is {times(measured.value)} that of {usual}."


def _inputs(text: Callable[[Evidence, Measured], str]) -> Callable[[Evidence, Measured], str]:
    return lambda evidence, measured: f"The inputs {text(evidence, measured)}."


def _of_targets(text: str) -> Callable[[Evidence, Measured], str]:
    def sentence(evidence: Evidence, measured: Measured) -> str:
        fit = evidence.fit
        assert fit is not None
        return (
            f"The targets ({fit.target_mean:.3g} ± {fit.target_std:.2g}) {text} the outputs ({fit.output_mean:.3g} ± "
            f"{fit.output_std:.2g})."
        )

    return sentence


_SENTENCES: dict[str, Callable[[Evidence, Measured], str]] = {
    "signal dies": _dies,
    "signal drowns": _dies,
    "signal is squashed": _dies,
    "signal fades": _fades,
    "signal is faint": _fades,
    "signal explodes": _explodes,
    "loss is huge": _huge,
    "gradient vanishes": _vanishes,
    "gradient is gone": _vanishes,
    "gradient explodes": _grows,
    "steps are forgotten": _forgotten,
    "gates forget": _forgotten,
    "gates are closed": _forgotten,
    "units are equal": _copies,
    "units are alike": _alike,
    "units repeat": _repeat,
    "units are dead": _dead,
    "units are stuck": _stuck,
    "inputs are small": _inputs(lambda e, m: f"are small: their size is {1 / m.value:.1g}"),
    "inputs are large": _inputs(lambda e, m: f"are large: their size is {m.value:.3g}"),
    "features are uneven": _inputs(
        lambda e, m: f"are uneven: the widest feature varies {times(m.value)} more than the median one"
    ),
    "inputs are offset": _inputs(lambda e, m: f"are {times(m.value)} larger than the differences between them"),
    "offset stays": _inputs(
        lambda e, m: f"are offset: in the last hidden layer the activations are {times(m.value)} larger than what "
        "tells inputs apart"
    ),
    "inputs are far off": _inputs(lambda e, m: "lie so far to one side of zero that no activation bends"),
    "level is off": _of_targets("are not at the level of"),
    "targets are offset": _of_targets("are far from"),
    "targets are large": _of_targets("are far wider than"),
    "targets are small": _of_targets("are far narrower than"),
    "output is common": lambda e, m: f"The output of {_at(m).named} follows the common level of all units.",
    "gradients are equal": lambda e, m: f"The units of {_at(m).named} get equal gradients, to {percent(m.value)}.",
    "network is linear": lambda e, m: "The network is linear: no activation acts between its layers.",
    "activations are idle": lambda e, m: "The network acts as a linear map on these inputs: no activation bends.",
}  # fmt: skip


def _at(measured: Measured) -> Layer:
    assert measured.layer is not None
    return measured.layer


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _healthy(evidence: Evidence) -> list[str]:
    """Why nothing is wrong."""
    layers = evidence.judged
    first, last, hidden = layers[0], layers[-1], evidence.hidden[-1]
    reasons = []
    if hidden is not first and first.spread > 0:
        reasons.append(f"the signal at {hidden.named} is {ratio(hidden.spread / first.spread)} that at {first.named}")
    if hidden.active is not None:
        reasons.append(f"an input activates {percent(hidden.active)} of the units of {hidden.named}")
    rows = [layer for layer in layers if layer.gradient]
    if len(rows) > 1:
        factor = (rows[0].gradient or 0.0) / (rows[-1].gradient or 1.0)
        reasons.append(f"the gradient at {rows[0].named} is {ratio(factor)} that at {rows[-1].named}")
    members = [layer for layer in layers if layer.scheme is not None]
    if members and all(layer.scheme == "stiefel" for layer in members):
        reasons.append("all weights are members of Õ(m,n)")
    sentences = [f"The network is healthy: {listed(reasons)}." if reasons else "The network is healthy."]
    rectified = [layer for layer in layers if layer.dead is not None and layer.samples >= ENOUGH]
    if rectified:
        dead, units = sum(layer.dead or 0 for layer in rectified), sum(layer.units for layer in rectified)
        sentences.append(f"{dead:,} of {units:,} units never fire." if dead else "Every unit fires for some input.")
    if last.gradient is None:
        sentences.append("Gradients not measured; pass `targets` to measure them.")
    return sentences


_PLAIN: dict[str, Plain] = {"Linear": "MLP", "Conv2d": "CNN"}


def _cited(sentences: Sequence[str], evidence: Evidence) -> list[str]:
    """The sentences; behind the advice to start anew, what published records say of plain networks of that depth."""
    kinds = {layer.kind for layer in evidence.hidden}
    network = _PLAIN.get(next(iter(kinds))) if len(kinds) == 1 else None
    if network is None or any(layer.activation != "relu" for layer in evidence.hidden):
        return list(sentences)
    known = of_depth(len(evidence.hidden), network)
    return [f"{each} {known.sentence}" if known is not None and INITIALIZE in each else each for each in sentences]


def _few(layers: Sequence[Layer]) -> str:
    samples = min(layer.samples for layer in layers)
    if samples >= ENOUGH:
        return ""
    inputs = "1 input" if samples == 1 else f"{samples} inputs"
    return f"{inputs} cannot show dead or redundant units; pass {ENOUGH} or more."


def _zeros(evidence: Evidence) -> str:
    names = [layer.label for layer in evidence.layers if layer.zero_weights]
    if not names or (evidence.zeros is not None and not evidence.wakes):
        return ""
    if len(names) == 1:
        return f"The weights of {names[0]} are all zero; unless that is intended, initialize them."
    return (
        f"The weights of {len(names)} layers, {names[0]} first, are all zero; unless that is intended, initialize them."
    )
