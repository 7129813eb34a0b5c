"""Rules about what suddenly is not finite, where the loss has an operation that may do it."""

from __future__ import annotations

from ..numerics import CAUSES
from ..rows import Moment
from ..rule import DEFINITION, EVERYTHING, Measured, Rule
from .base import Measure, training_rule
from .steps import overflow


def breaking(kind: str) -> Measure:
    """1 where something is suddenly not finite, the loss was no larger than at first before, and this may do it."""

    def measured(moment: Moment, limit: float) -> Measured | None:
        now, past = moment
        found, last = overflow(moment, limit), past.last
        if found is None or not found.value or found.detail == "inputs":
            return Measured(0.0)
        calm = last is None or last.loss is None or past.first_loss is None or last.loss < 3 * abs(past.first_loss)
        word = dict(now.suspects).get(kind, "")
        return Measured(float(calm and bool(word)), None, word)

    return measured


def _breaking(kind: str) -> Rule[Moment]:
    return training_rule(
        kind, breaking(kind), 0.5, "1 if something is not finite all at once, and the loss has such an operation",
        lambda at, m: CAUSES[kind].sentence.format(m.detail), CAUSES[kind].advice, DEFINITION, hides=EVERYTHING,
    )  # fmt: skip


BREAKING_RULES = tuple(map(_breaking, CAUSES))
