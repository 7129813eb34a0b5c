"""Whether a network is healthy, at initialization and in training, as a function of measured numbers alone."""

from .judge import Event, Finding, Judge, Verdict, judge
from .rows import Evidence, Fit, Inputs, Layer, Moment, Row, Sample
from .rule import AT_INITIALIZATION, IN_TRAINING, NEVER, Cause, Measured, Rule, register

__all__ = [
    "AT_INITIALIZATION", "IN_TRAINING", "NEVER", "Cause", "Event", "Evidence", "Finding", "Fit", "Inputs", "Judge",
    "Layer", "Measured", "Moment", "Row", "Rule", "Sample", "Verdict", "judge", "register",
]  # fmt: skip
