"""A `Rule` of health: what it measures, its limits, what it says, why and what to do, and what it hides.

Rules about one batch, `AT_INITIALIZATION`, and about the steps of a training, `IN_TRAINING`, have one form, and one
engine holds them against a case: `examine`, `hidden` and `told`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from .rows import Evidence, Layer, Moment, Row

Case = TypeVar("Case")
NEVER = math.inf
EVERYTHING = ("*",)
STUDY, DEFINITION, CHOICE = "study", "definition", "choice"


class Measured(NamedTuple):
    """A rule's number, and the layer where it shows; None if that is no layer."""

    value: float
    at: Any = None  # a `Layer` of the evidence, or a `Row` of the sample
    detail: str = ""


class Cause(NamedTuple):
    """What is behind what a rule found."""

    advice: str  # what to do; empty where nothing is known to help
    kind: str = ""
    """`"weights"`, `"biases"`, `"inputs"`, `"activation"`, `"depth"`, `"time steps"`, `"targets"` or `"training"`."""
    sentence: str = ""  # why; empty where the finding says it
    layer: Layer | None = None  # the one layer that it is about


@dataclass(frozen=True)
class Rule(Generic[Case]):
    """Something is wrong where `measure` exceeds `threshold`; from `warning` on, the user is warned.

    The case is an `Evidence` at initialization and a `Moment` in training.
    """

    kind: str  # what it finds
    measure: Callable[[Case, float], Measured | None]
    """Of the case, and the limit from which on a layer counts as the place; larger is worse; None: does not apply."""
    threshold: float
    warning: float
    quantity: str  # what it measures, in words
    sentence: Callable[[Case, Measured], str]
    cause: Callable[[Case, Measured], Cause]  # why, and what to do
    source: str = STUDY
    """Where the threshold comes from: `"study"`, those of paper/health/; `"diagnose"`, the rule of that name at
    initialization; `"definition"` or `"choice"`."""
    lasting: int = 1  # in training: so many samples in a row must exceed the threshold
    hides: tuple[str, ...] = ()
    """Its consequences, which are not reported beside it, by kind; or `EVERYTHING` that comes after it."""
    hides_warnings: tuple[str, ...] = ()  # those that are reported only if they are serious

    holds_anyway: bool = False
    """At initialization: whether it is true of a network that learns its batch, too, as facts about the setup are."""
    alone: bool = False  # whether it may be the fault of anything else, and is told only where nothing else was found
    tries: bool = False  # whether it has to be known how much of the batch a copy learns
    by_heart: bool = False
    """Whether it is true of a network that learns its batch by heart alone, which it can do without what it forgets."""

    def finds(self, case: Case) -> tuple[Measured, bool] | None:
        """The measured number, if it is beyond a limit, and whether it is beyond the threshold."""
        for limit, serious in ((self.threshold, True), (self.warning, False)):
            measured = self.measure(case, limit) if serious or limit < NEVER else None
            if measured is not None and not measured.value <= limit:
                return measured, serious
        return None


AT_INITIALIZATION: dict[str, Rule[Evidence]] = {}
"""The rules about one batch by kind, in the order of the verdict. docs/rules.md says where the numbers come from."""
IN_TRAINING: dict[str, Rule[Moment]] = {}
"""The rules about the steps of a training by kind, in the order of the lines."""


def register(rules: dict[str, Rule[Case]], *new: Rule[Case]) -> None:
    """Add rules to `AT_INITIALIZATION` or `IN_TRAINING`; one of a kind that is there takes its place."""
    rules.update((rule.kind, rule) for rule in new)


def examine(rules: Mapping[str, Rule[Case]], case: Case) -> dict[str, tuple[Measured, bool]]:
    """What the rules find by kind, and whether it is serious."""
    return {kind: found for kind, rule in rules.items() if (found := rule.finds(case)) is not None}


def hidden(rules: Mapping[str, Rule[Case]], kinds: Collection[str], *, warnings: bool = False) -> set[str]:
    """What says nothing beside the rules of these kinds."""
    echoes: set[str] = set()
    for cause in kinds:
        rule = rules[cause]
        kinds_below = list(rules)[list(rules).index(cause) + 1 :]
        echoes.update(kinds_below if rule.hides == EVERYTHING else rule.hides)
        echoes.update(rule.hides_warnings if warnings else ())
    return echoes


def told(rule: Rule[Case], case: Case, measured: Measured) -> tuple[Layer | Row | None, str, Cause]:
    """Where it is, in words, and why."""
    cause = rule.cause(case, measured)
    at = cause.layer or measured.at
    return at, rule.sentence(case, measured._replace(at=at)), cause


def over(part: float, whole: float) -> float:
    """part / whole, infinite where nothing is left."""
    return part / whole if whole > 0 else math.inf if part > 0 else 0.0


def largest(pairs: Iterable[tuple[float, Any]]) -> Measured | None:
    """The largest of numbers, with the row that has it; None where there is none."""
    best = max(pairs, key=lambda pair: pair[0], default=None)
    return None if best is None else Measured(*best)
