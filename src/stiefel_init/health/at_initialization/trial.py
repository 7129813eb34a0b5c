"""Rules about copies of the network that were trained on its batch: what they learned, and with which change."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..numerics import CAUSES
from ..rows import Evidence
from ..rule import CHOICE, DEFINITION, NEVER, Cause, Measured, Rule
from ..wording import capital, percent

LITTLE = 0.01  # the share of what can be learned that is next to nothing: larger rates are mostly faster
NOTHING = 0.15  # a model need not be able to learn a batch by heart, but more of it than this
_LITTLE = "In 60 steps on this batch a copy learned {own} of what can be learned, and "
_NONE = "No copy learned this batch by heart as it is, and one did "
_ASKED = "1 if a copy learns little of the batch, and much of it so"


class Change(NamedTuple):
    """A change with which a copy learned its batch: it is the cause."""

    kind: str
    name: str  # as in `Tried.change`
    sentence: str
    advice: str
    about: str
    hides: tuple[str, ...] = ("batch is not learned",)
    alone: bool = False


CHANGES = (
    Change("rate is much too low", "faster", f"{_LITTLE}at a higher rate most of it.",
           "raise the learning rate ten times or more", "optimizer"),
    Change("rate is too high", "slower", f"{_LITTLE}at a lower rate most of it.",
           "lower the learning rate ten times or more", "optimizer"),
    Change("weight decay is too strong", "decay", f"{_LITTLE}without weight decay most of it.",
           "lower the weight decay a hundred times or more", "optimizer"),
    Change("epsilon is too large", "epsilon", f"{_LITTLE}with eps=1e-8 most of it.",
           "set the optimizer's eps to 1e-8", "optimizer"),
    Change("averages forget too much or too little", "averages", f"{_LITTLE}with betas=(0.9, 0.999) most of it.",
           "set the optimizer's betas to (0.9, 0.999)", "optimizer"),
    Change("velocity is kept too long", "momentum", f"{_LITTLE}with momentum=0.9 most of it.",
           "set the optimizer's momentum to 0.9", "optimizer"),
    Change("frozen parameters hold it back", "thaw", f"{_NONE}without what is frozen.",
           "call model.requires_grad_(True) before you make the optimizer; or load what they were trained to",
           "optimizer"),
    Change("dropout holds it back", "dropout", f"{_NONE}without dropout.",
           "lower its probability, which is the share that is dropped", "mode"),
    Change("initial weights hold it back", "weights", f"{_NONE}that was initialized again: {{weights}}.",
           "call stiefel_init.torch.initialize_(model)", "weights"),
    Change("optimizer learns nothing", "optimizer", f"{_LITTLE}with Adam at 0.01 or 0.003 most of it.",
           "train with torch.optim.Adam(model.parameters(), 0.003)", "optimizer", alone=True),
)  # fmt: skip


def _changed(change: Change) -> Rule[Evidence]:
    """Whether it is this change that lets a copy learn, unless a schedule has lowered the rate for the start."""

    def measured(evidence: Evidence, limit: float) -> Measured | None:
        tried, warms_up = evidence.tried, evidence.setup is not None and evidence.setup.warms_up
        if tried is None or warms_up or (change.name == "faster" and tried.fell >= LITTLE):
            return None
        return Measured(float(tried.change == change.name))

    return _rule(change.kind, measured, 0.5, _ASKED, *change[2:])


def _hard(evidence: Evidence, limit: float) -> Measured | None:
    tried = evidence.tried
    return None if tried is None or tried.at_last is None else Measured(1 - max(0.0, tried.own, tried.at_last))


def _flat(evidence: Evidence, limit: float) -> Measured | None:
    tried = evidence.tried
    return None if tried is None or tried.flat is None else Measured(1 - tried.flat)


def _rule(
    kind: str, measure: Callable[[Evidence, float], Measured | None], threshold: float, quantity: str, sentence: str,
    advice: str, about: str, hides: tuple[str, ...] = (), alone: bool = False,
) -> Rule[Evidence]:  # fmt: skip
    def said(evidence: Evidence, measured: Measured) -> str:
        tried = evidence.tried
        own, weights = ("", "") if tried is None else (percent(max(0.0, tried.own)), tried.weights)
        return sentence.format(own=own, other=percent(measured.value), weights=weights)

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


RULES = (
    *map(_breaking, CAUSES),
    *map(_changed, CHANGES),
    _rule(
        "loss has no range", _flat, 0.9, "share of the best constant outputs' loss that the best outputs keep",
        "The loss does not ask outputs to tell inputs apart: the best that there can be keep {other} of what the best "
        "constant ones cost.",
        "look whether scores are divided by too high a temperature, weighted with a small number, masked, compared "
        "with the wrong axis, or no probabilities where the loss takes some", "loss", alone=True,
    ),
    _rule(
        "batch is not learned", _hard, 1 - NOTHING, "share of what can be learned of the batch that no copy learned",
        "No copy learned this batch by heart: {other} of what can be learned were left, with your optimizer after 60 "
        "steps and with Adam after 240. Other rates, weights, dropout and what is frozen are not the cause.",
        "look whether what tells these examples apart reaches the last layer: views, masks, axes, what is detached or "
        "never used; and whether the loss can be lowered by it", "training", alone=True,
    ),
)  # fmt: skip
