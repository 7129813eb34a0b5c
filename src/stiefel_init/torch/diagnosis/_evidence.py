"""What the rules of `diagnose` are made of: the `Evidence` of one batch, what is `Measured` of it, and a `Rule`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...core.activations import DYING
from ._ends import Fit, Inputs
from ._layer import Layer

SQUASHING = frozenset({"sigmoid", "hardsigmoid"})


@dataclass(frozen=True)
class Evidence:
    """What one batch told about a network."""

    layers: tuple[Layer, ...]
    inputs: Inputs | None = None
    fit: Fit | None = None
    curvature: float | None = None
    """How far the whole network is from linear, as `diagnose` measures it where no activation seems to act."""

    @property
    def easy(self) -> bool:
        """Whether the targets are known to be easy, so that networks learn them that are sick elsewhere."""
        return self.fit is not None and self.fit.easy

    @property
    def hard(self) -> bool:
        """Whether they are known not to be."""
        return self.fit is not None and self.fit.readable is not None and not self.fit.easy

    @cached_property
    def zeros(self) -> Layer | None:
        """A layer of zeros after which all inputs are the same; behind a zero branch or head they still differ."""
        for at, layer in enumerate(self.layers[:-1]):
            if layer.zero_weights and all(after.spread == 0 for after in self.layers[at + 1 :]):
                return layer
        return None

    @cached_property
    def wakes(self) -> bool:
        """Whether that layer gets a gradient, so that the first step sets it right."""
        if self.zeros is None:
            return False
        gradient = self.zeros.weight_gradient
        return gradient > 0 if gradient is not None else self.zeros.activation not in DYING

    @cached_property
    def judged(self) -> tuple[Layer, ...]:
        """Without layers of zeros, which may be a choice: a head or a branch that starts at zero."""
        return tuple(layer for layer in self.layers if not layer.zero_weights) or self.layers

    @cached_property
    def hidden(self) -> tuple[Layer, ...]:
        """Without the output layer, if no activation follows it."""
        layers = self.judged
        return layers[:-1] if len(layers) > 1 and layers[-1].activation is None else layers

    @cached_property
    def squashes(self) -> bool:
        """Whether most hidden layers end in a sigmoid."""
        return 2 * sum(layer.activation in SQUASHING for layer in self.hidden) > len(self.hidden)

    @cached_property
    def carried(self) -> tuple[Layer, ...]:
        """The layers with a gradient. Below weights of zero it is 0 until their first step, which says nothing."""
        rows = (layer for layer in self.judged if layer.gradient is not None)
        if len(self.judged) == len(self.layers):
            return tuple(rows)
        return tuple(layer for layer in rows if layer.gradient != 0)


class Measured(NamedTuple):
    """A rule's number, and the layer where it shows; None if that is no layer."""

    value: float
    layer: Layer | None = None


@dataclass(frozen=True)
class Rule:
    """A network is sick if `measure` exceeds `threshold`; from `warning` on, the user is told."""

    kind: str
    """What it finds."""
    measure: Callable[[Evidence, float], Measured | None]
    """Of the evidence, and the limit from which on a layer counts as the place; None where it does not apply."""
    threshold: float
    warning: float
    quantity: str
    """What it measures, in words."""
    source: str = "study"
    """Where the threshold comes from: `"study"`, which is benchmarks/diagnosis.py, `"definition"` or `"choice"`."""

    def finds(self, evidence: Evidence) -> tuple[Measured, bool] | None:
        """The measured number, if it is beyond a limit, and whether it is beyond the threshold."""
        for limit, serious in ((self.threshold, True), (self.warning, False)):
            measured = self.measure(evidence, limit)
            if measured is not None and not measured.value <= limit:
                return measured, serious
        return None


def over(part: float, whole: float) -> float:
    """part / whole, infinite where nothing is left."""
    return part / whole if whole > 0 else math.inf if part > 0 else 0.0


def since(layers: Sequence[Layer], bad: Callable[[Layer], bool]) -> Layer:
    """The first layer from which on all are bad; the last if that is not."""
    start = layers[-1]
    for layer in reversed(layers):
        if not bad(layer):
            break
        start = layer
    return start
