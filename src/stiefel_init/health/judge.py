"""What the rules say: of one batch, `judge` and its `Verdict`; of a training step by step, `Judge` and its `Event`s."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import at_initialization, in_training  # noqa: F401 - their rules are there once they are imported
from .at_initialization.signal import NOT_FINITE, not_finite
from .numerics import CAUSES
from .rows import ENOUGH, Evidence, Fit, Layer, Moment, Past, Sample
from .rule import AT_INITIALIZATION, IN_TRAINING, Cause, Measured, examine, hidden, told
from .wording import listed, percent

CLOSES = 0.5  # of its threshold: a rule that is open closes below it


class Finding(NamedTuple):
    """Something wrong with a network."""

    kind: str  # the `kind` of one of the rules, or `"not finite"`
    layer: str  # where it begins; empty if that is in no layer
    sentence: str
    cause: str
    """`"weights"`, `"biases"`, `"inputs"`, `"activation"`, `"depth"`, `"time steps"`, `"targets"` or `"training"`."""
    advice: str  # what to do


class Verdict(NamedTuple):
    """What the evidence says."""

    findings: tuple[Finding, ...]  # what keeps the network from training, the worst first
    warnings: tuple[Finding, ...]  # what does not, but is far from how networks should start
    sentences: tuple[str, ...]


def judge(evidence: Evidence) -> Verdict:
    """Apply all rules at initialization."""
    fit = evidence.fit
    if fit is not None and fit.learned and not_finite(evidence) is None:
        return Verdict((), (), (_learned(fit),))
    rules = AT_INITIALIZATION
    if NOT_FINITE.finds(evidence):
        why = {kind: rule for kind, rule in AT_INITIALIZATION.items() if NOT_FINITE.kind in rule.hides}
        rules = {NOT_FINITE.kind: NOT_FINITE, **why}
    found = examine(rules, evidence)
    if evidence.learns:
        stays = (rule.kind for rule in rules.values() if rule.holds_anyway or (rule.by_heart and evidence.by_heart))
        found = {kind: found[kind] for kind in stays if kind in found}
    found = {kind: each for kind, each in found.items() if not rules[kind].alone} or found
    serious = [kind for kind, (_, is_serious) in found.items() if is_serious]
    echoes, faint_echoes = hidden(rules, serious), hidden(rules, found, warnings=True)
    findings: list[tuple[Finding, Cause]] = []
    warnings: list[tuple[Finding, Cause]] = []
    for kind, (measured, is_serious) in found.items():
        if kind not in (echoes if is_serious else faint_echoes):
            at, sentence, cause = told(rules[kind], evidence, measured)
            finding = Finding(kind, "" if at is None else at.label, sentence, cause.kind, cause.advice)
            (findings if is_serious else warnings).append((finding, cause))
    healthy = [*_healthy(evidence), *_in_words(warnings, "If it does not learn")]
    sentences = _in_words([*findings, *warnings], "What to do") if findings else healthy
    notes = [_few(evidence.layers), _zeros(evidence)]
    return Verdict(
        tuple(finding for finding, _ in findings),
        tuple(finding for finding, _ in warnings),
        (*sentences, *(note for note in notes if note)),
    )


def _learned(fit: Fit) -> str:
    constant = f"that of the best constant output {fit.constant_loss:.2g}"
    return f"The network has learned: its loss is {fit.loss:.2g}, {constant}."


def _in_words(pairs: Iterable[tuple[Finding, Cause]], then: str) -> list[str]:
    """The findings, then what is behind them and what to do, each once."""
    findings = list(pairs)
    reasons = dict.fromkeys(cause.sentence for _, cause in findings if cause.sentence)
    advice = dict.fromkeys(cause.advice for _, cause in findings if cause.advice)
    return [*(finding.sentence for finding, _ in findings), *reasons, *(f"{then}: {text}." for text in advice)]


def _healthy(evidence: Evidence) -> list[str]:
    layers = evidence.judged
    first, last, hidden = layers[0], layers[-1], evidence.hidden[-1]
    reasons = []
    if hidden is not first and first.spread > 0 and not evidence.wakes:
        ratio = f"{hidden.spread / first.spread:.2g} times"
        reasons.append(f"the signal at {hidden.named} is {ratio} that at {first.named}")
    if hidden.active is not None:
        reasons.append(f"an input activates {percent(hidden.active)} of the units of {hidden.named}")
    rows = [layer for layer in layers if layer.gradient]
    if len(rows) > 1:
        ratio = f"{(rows[0].gradient or 0.0) / (rows[-1].gradient or 1.0):.2g} times"
        reasons.append(f"the gradient at {rows[0].named} is {ratio} that at {rows[-1].named}")
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
    where = names[0] if len(names) == 1 else f"{len(names)} layers, {names[0]} first,"
    if evidence.zeros is None:  # inputs still differ
        return f"The weights of {where} begin at zero, as those of silent branches and heads do."
    return f"The weights of {where} are all zero; unless that is intended, initialize them."


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


class Judge:
    """Applies all rules in training to one sample after the other; keeps what is open, and what came before."""

    def __init__(self) -> None:
        self.past = Past()
        self.open: dict[str, Event] = {}
        self._lasting: dict[str, int] = {}

    def __call__(self, now: Sample) -> list[Event]:
        moment = Moment(now, self.past)
        exceeded = {kind: m for kind, (m, _) in examine(IN_TRAINING, moment).items() if not math.isnan(m.value)}
        self._lasting = {kind: self._lasting.get(kind, 0) + 1 for kind in exceeded}
        events = [self._recovered(now, kind) for kind in IN_TRAINING if self._closes(kind, moment, exceeded)]
        found = {kind: m for kind, m in exceeded.items() if self._lasting[kind] >= IN_TRAINING[kind].lasting}
        echoes = hidden(IN_TRAINING, {*self.open, *found})
        for kind, measured in found.items():
            others = self.open or len(found) > 1
            if kind not in self.open and kind not in echoes and not (IN_TRAINING[kind].alone and others):
                at, sentence, cause = told(IN_TRAINING[kind], moment, measured)
                self.open[kind] = Event(now.step, kind, "" if at is None else at.label, sentence, cause.advice)
                events.append(self.open[kind])
        if not self.open.keys() & {"not finite", *CAUSES}:
            self.past.add(now)
        return events

    def _closes(self, kind: str, moment: Moment, exceeded: dict[str, Measured]) -> bool:
        rule = IN_TRAINING[kind]
        measured = rule.measure(moment, rule.threshold) if kind in self.open and kind not in exceeded else None
        return measured is not None and measured.value < CLOSES * rule.threshold

    def _recovered(self, now: Sample, kind: str) -> Event:
        event = self.open.pop(kind)
        where = f" at layer {event.layer}" if event.layer else ""
        sentence = f'"{kind}"{where} recovered; it had been failing since step {event.step:,}'
        return Event(now.step, kind, event.layer, sentence, "", True)
