"""Rules about copies of the network that were trained on its batch: what they learned, and with which optimizer."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from ..numerics import CAUSES
from ..rows import Evidence
from ..rule import CHOICE, DEFINITION, NEVER, Cause, Measured, Rule
from ..wording import capital, percent

LITTLE = 0.01  # the share of what can be learned that is next to nothing: larger rates are mostly faster
POOR = 0.4  # the share below which something stands in the way of all optimizers
NOTHING = 0.15  # a small model may not be able to learn a batch by heart, but more of it than this


def _changed(name: str) -> Callable[[Evidence, float], Measured | None]:
    """Whether it is this change that lets the optimizer learn, unless a schedule has lowered the rate for the start."""

    def measured(evidence: Evidence, limit: float) -> Measured | None:
        tried, warms_up = evidence.tried, evidence.setup is not None and evidence.setup.warms_up
        if tried is None or warms_up or (name == "faster" and tried.fell >= LITTLE):
            return None
        return Measured(float(tried.change == name))

    return measured


def _hard(evidence: Evidence, limit: float) -> Measured | None:
    tried = evidence.tried
    return None if tried is None or tried.at_last is None else Measured(1 - max(0.0, tried.own, tried.at_last))


def _flat(evidence: Evidence, limit: float) -> Measured | None:
    tried = evidence.tried
    return None if tried is None or tried.flat is None else Measured(1 - tried.flat)


def _wide(evidence: Evidence, limit: float) -> Measured | None:
    norms = [layer.row_norm for layer in evidence.layers if layer.row_norm and layer.kind != "Embedding"]
    if evidence.tried is None or evidence.tried.own > POOR or len(norms) < 2:
        return None
    return Measured(statistics.median(norms))


def _rule(
    kind: str, measure: Callable[[Evidence, float], Measured | None], threshold: float, quantity: str, sentence: str,
    advice: str, about: str, *hides: str, alone: bool = False,
) -> Rule[Evidence]:  # fmt: skip
    def said(evidence: Evidence, measured: Measured) -> str:
        own = percent(max(0.0, evidence.tried.own)) if evidence.tried is not None else ""
        return sentence.format(own=own, other=percent(measured.value), rest=percent(1 - measured.value))

    return Rule(
        kind, measure, threshold, NEVER, quantity, said, lambda evidence, measured: Cause(advice, about), CHOICE,
        hides=hides, holds_anyway=True, alone=alone,
    )  # fmt: skip


def _breaking(kind: str) -> Rule[Evidence]:
    """Where something becomes infinite or NaN: the operation that may do it."""
    cause = CAUSES[kind]

    def suspect(evidence: Evidence) -> str:
        setup = evidence.setup
        calm = len(evidence.trial) < 2 or evidence.trial[-2] < 3 * abs(evidence.trial[0])
        if setup is None or not calm or not (evidence.breaks or setup.broke):
            return ""
        return dict([setup.broke] if setup.broke else setup.suspects).get(kind, "")

    return Rule(
        kind, lambda evidence, limit: Measured(float(bool(suspect(evidence)))), 0.5, NEVER,
        "1 if the loss or a gradient is not finite, now or in steps of a copy, and something like this is in the loss",
        lambda evidence, measured: capital(cause.sentence.format(suspect(evidence))) + ".",
        lambda evidence, measured: Cause(cause.advice, "loss"), DEFINITION, holds_anyway=True,
        hides=("not finite", "gradient explodes", "loss is huge", "signal explodes", "rate is too high",
               "optimizer learns nothing", "batch is not learned"),
    )  # fmt: skip


_LITTLE = "In 60 steps on this batch a copy learned {own} of what can be learned, and "
_ASKED = "1 if a copy learns little of the batch, and much of it so"
RULES = (
    *map(_breaking, CAUSES),
    _rule(
        "rate is much too low", _changed("faster"), 0.5, _ASKED, _LITTLE + "at a higher rate most of it.",
        "raise the learning rate ten times or more", "optimizer", "rate is too low",
    ),
    _rule(
        "rate is too high", _changed("slower"), 0.5, _ASKED, _LITTLE + "at a lower rate most of it.",
        "lower the learning rate ten times or more", "optimizer",
    ),
    _rule(
        "weight decay is too strong", _changed("decay"), 0.5, _ASKED, _LITTLE + "without weight decay most of it.",
        "lower the weight decay a hundred times or more", "optimizer",
    ),
    _rule(
        "epsilon is too large", _changed("epsilon"), 0.5, _ASKED, _LITTLE + "with eps=1e-8 most of it.",
        "set the optimizer's eps to 1e-8", "optimizer",
    ),
    _rule(
        "averages forget too much or too little", _changed("averages"), 0.5, _ASKED,
        _LITTLE + "with betas=(0.9, 0.999) most of it.", "set the optimizer's betas to (0.9, 0.999)", "optimizer",
    ),
    _rule(
        "velocity is kept too long", _changed("momentum"), 0.5, _ASKED, _LITTLE + "with momentum=0.9 most of it.",
        "set the optimizer's momentum to 0.9", "optimizer",
    ),
    _rule(
        "frozen parameters hold it back", _changed("thaw"), 0.5, "1 if a copy without frozen ones learns the batch",
        "No copy learned this batch by heart with the parameters that are frozen, and one did without.",
        "call model.requires_grad_(True) before you make the optimizer; or load what they were trained to", "optimizer",
        "batch is not learned",
    ),
    _rule(
        "dropout holds it back", _changed("dropout"), 0.5, "1 if a copy without dropout learns the batch",
        "No copy learned this batch by heart with dropout, and one did without.",
        "lower its probability, which is the share that is dropped", "mode", "batch is not learned",
    ),
    Rule(
        "weights are large", _wide, 5, NEVER, "if a copy does not learn the batch: median norm of a unit's weights",
        lambda evidence, measured: f"The weights are large: those of a unit have a norm of {measured.value:.2g}, and a "
        "copy did not learn this batch.",
        lambda evidence, measured: Cause("call stiefel_init.torch.initialize_(model)", "weights"), CHOICE,
    ),
    _rule(
        "optimizer learns nothing", _changed("optimizer"), 0.5, _ASKED,
        _LITTLE + "with Adam at 0.01 or 0.003 most of it.",
        "train with torch.optim.Adam(model.parameters(), 0.003)", "optimizer", "rate is too low", alone=True,
    ),
    _rule(
        "loss has no range", _flat, 0.9, "share of the best constant outputs' loss that the best outputs keep",
        "The loss does not ask outputs to tell inputs apart: the best that there can be keep {other} of what the best "
        "constant ones cost.",
        "look whether scores are divided by too high a temperature, weighted with a small number, masked, compared "
        "with the wrong axis, or no probabilities where the loss takes some",
        "loss", "rate is too low", alone=True,
    ),
    _rule(
        "batch is not learned", _hard, 1 - NOTHING, "share of what can be learned of the batch that no copy learned",
        "No copy learned this batch by heart: {other} of what can be learned were left, with your optimizer after 60 "
        "steps and with Adam after 240.",
        "look whether what tells these examples apart reaches the last layer: views, masks, axes, what is detached or "
        "never used; and whether the loss can be lowered by it", "training", "rate is too low", alone=True,
    ),
)  # fmt: skip
