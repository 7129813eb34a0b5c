"""What the rules in training are made of: `training_rule`, and what several of them measure or say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..rows import Moment, Past, Row
from ..rule import NEVER, Cause, Measured, Rule

FAR = 0.1  # an update of this share of the weights can break a layer by itself
LOWER = "lower the learning rate, or clip the gradients"
INITIALIZE = "call stiefel_init.torch.initialize_(model) before training"

Measure = Callable[[Moment, float], Measured | None]
Text = Callable[[Moment, Measured], str]
SIGNAL = ("signal dies", "signal fades", "signal explodes", "gradient vanishes", "gradient explodes")
UNITS = ("units are dead", "units are stuck")
"""What others hide."""


def training_rule(
    kind: str, measure: Measure, threshold: float, quantity: str, sentence: str | Text, advice: str | Text, source: str,
    *, lasting: int = 1, hides: tuple[str, ...] = (), alone: bool = False,
) -> Rule[Moment]:  # fmt: skip
    """A rule in training; its sentence begins small, after the step."""
    say = (lambda moment, measured: sentence) if isinstance(sentence, str) else sentence
    to_do = (lambda moment, measured: Cause(advice)) if isinstance(advice, str) else (lambda *at: Cause(advice(*at)))
    return Rule(kind, measure, threshold, NEVER, quantity, say, to_do, source, lasting, hides, alone=alone)


def with_before(moment: Moment) -> Iterator[tuple[Row, Row]]:
    for row in moment.now.rows:
        before = moment.past.was(row)
        if before is not None:
            yield row, before


def since_step(past: Past) -> str:
    return "" if past.last is None else f" since step {past.last.step:,}"


def recent_update(moment: Moment, row: Row) -> float:
    return max(then.update or 0.0 for then in (row, *moment.past.of(row)))
