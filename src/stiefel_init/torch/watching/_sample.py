"""What one sampled step says: a `Sample`, with a `Row` for each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..diagnosis._ends import Inputs
from ..diagnosis._evidence import Evidence
from ..diagnosis._layer import Layer


class Row(NamedTuple):
    """One layer at one step. What was not measured is None."""

    layer: str
    kind: str
    activation: str | None = None
    units: int = 0
    samples: int = 0
    mean: float | None = None
    """Mean and std, over units and samples, of what enters the activation; without one, of the output."""
    std: float | None = None
    alpha: float | None = None
    """mean / std."""
    active: float | None = None
    """The fraction of pre-activations above 0."""
    dead: float | None = None
    """For ReLU and ReLU6: the share of units that are above 0 for no sample."""
    saturated: float | None = None
    """For bounded activations, tanh RNNs and LSTMs: the fraction of outputs within 1 % of a bound."""
    post_mean: float | None = None
    post_std: float | None = None
    spread: float | None = None
    """Root mean square, over units, of a unit's std over samples."""
    distinct: float | None = None
    """Distinct units, as `diagnose` counts them."""
    gradient: float | None = None
    """Norm of the loss's gradient with respect to the layer's output, times the scale of a GradScaler."""
    weight_gradient: float | None = None
    """Norm of the gradient with respect to the weights that the optimizer used."""
    update: float | None = None
    """How far the step moved the weights, over their norm."""
    inward: float | None = None
    """Cosine of that move and minus the weights: 1 if the step only shrinks them."""
    norm: float | None = None
    """Root mean square, over units, of the norm of a unit's weights."""
    singular: float | None = None
    """Largest singular value of the weights."""
    distance: float | None = None
    """Distance from Õ(m,n): √(‖WWᵀ - I‖² / m + ‖Wξ - ξ‖²); for m > n of Wᵀ."""
    bias_mean: float | None = None
    bias_std: float | None = None
    trained: bool = True
    """Whether the weights require a gradient."""

    @property
    def named(self) -> str:
        """The name, for use in sentences."""
        return f"layer {self.layer}"

    @property
    def ran(self) -> bool:
        """Whether the layer took part in the forward pass."""
        return self.std is not None

    @property
    def size(self) -> float:
        """Root mean square of what leaves the activation."""
        return math.hypot(self.post_mean or 0.0, self.post_std or 0.0)

    @property
    def bias(self) -> float:
        """Size of the biases."""
        return math.hypot(self.bias_mean or 0.0, self.bias_std or 0.0)

    def as_layer(self) -> Layer:
        """For the rules of `diagnose`."""
        return Layer(
            layer=self.layer, call=1, kind=self.kind, shape="", activation=self.activation, units=self.units,
            samples=self.samples, pre_mean=_number(self.mean), pre_std=_number(self.std),
            pre_spread=_number(self.spread), alpha=self.alpha, active=self.active,
            dead=None if self.dead is None else round(self.dead * self.units), bend=None, saturated=self.saturated,
            post_mean=_number(self.post_mean), post_std=_number(self.post_std), spread=_number(self.spread),
            distinct=self.distinct, gradient=self.gradient, weight_gradient=self.weight_gradient, common_gradient=None,
            update=self.update, steps=None, first_step=None, zero_weights=self.norm == 0, row_norm=self.norm,
            level=None, bias_mean=self.bias_mean, bias_std=self.bias_std, scheme=None, orthogonality_error=None,
            alignment_error=None,
        )  # fmt: skip


def _number(value: float | None) -> float:
    return 0.0 if value is None else value


COLUMNS = Row._fields
TEXTS = ("layer", "kind", "activation")
NUMBERS = tuple(name for name in COLUMNS if name not in TEXTS)


@dataclass(frozen=True)
class Sample:
    """A sampled step."""

    step: int
    rows: tuple[Row, ...]
    """The layers in the order they ran, then those that did not."""
    loss: float | None = None
    rate: float | None = None
    """Largest learning rate of the optimizer that stepped."""
    inputs: Inputs | None = None
    finite_inputs: bool = True
    backward: bool = False
    """Whether a backward pass reached a weight."""
    stepped: bool = False
    """Whether one of torch's optimizers stepped."""
    leftover: float = 0.0
    """Norm of the gradients that were there before the first backward pass of the step."""

    @cached_property
    def evidence(self) -> Evidence | None:
        """For the rules of `diagnose`; None if no layer ran."""
        layers = tuple(row.as_layer() for row in self.rows if row.ran)
        return Evidence(layers, self.inputs) if layers else None

    @cached_property
    def by_name(self) -> dict[str, Row]:
        """The rows by layer."""
        return {row.layer: row for row in self.rows}
