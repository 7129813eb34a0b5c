"""`fact`: a rule about how a training is put together, which a `Setup` tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..rows import MASTERS, Evidence
from ..rule import DEFINITION, NEVER, Cause, Measured, Rule
from ..setup import Setup

Fact = Callable[[Setup], float | None]


def fact(
    kind: str, holds: Fact, quantity: str, sentence: Callable[[Setup, float], str],
    advice: str | Callable[[Setup], str], about: str, *, threshold: float = 0.5, warning: float = NEVER,
    hides: Sequence[str] = (), source: str = DEFINITION, harmless: bool = False, alone: bool = False,
    unless_mastered: bool = False, always: bool = False,
) -> Rule[Evidence]:  # fmt: skip
    """A rule about the setup; `about` is the cause's kind.

    It is silent where a copy, trained by the user's optimizer, learned most of what there is to learn; with
    `unless_mastered` by any optimizer; what may be `harmless` wherever it learned. What such a copy cannot tell is told
    `always`: that examples mix, say, or what happens in evaluation.
    """

    def measure(evidence: Evidence, limit: float) -> Measured | None:
        learned = evidence.tried is not None and evidence.tried.own > MASTERS
        if (unless_mastered and evidence.masters) or (learned and not always):
            return None
        value = None if evidence.setup is None else holds(evidence.setup)
        return None if value is None else Measured(float(value))

    def text(evidence: Evidence, measured: Measured) -> str:
        assert evidence.setup is not None
        return sentence(evidence.setup, measured.value)

    def cause(evidence: Evidence, measured: Measured) -> Cause:
        assert evidence.setup is not None
        return Cause(advice if isinstance(advice, str) else advice(evidence.setup), about)

    return Rule(
        kind, measure, threshold, warning, quantity, text, cause, source, hides=tuple(hides), alone=alone,
        holds_anyway=not harmless, tries=not always,
    )  # fmt: skip


def named(names: Sequence[str]) -> str:
    """ "0.weight, 0.bias and 4 more"."""
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
