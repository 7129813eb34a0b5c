"""What a diagnosis says about each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One call of one layer. What cannot be measured or predicted is None."""

    layer: str
    call: int
    """1; higher if the layer is called again."""
    kind: str
    """The layer's class."""
    shape: str
    """Of its weight, outputs × inputs."""
    activation: str | None
    """The activation that follows it, directly or after a normalization, dropout, pooling or reshaping."""
    units: int
    """Of the activation, or of the output where none follows: channels of a convolution, else the last dimension."""
    samples: int
    """Values of each unit: inputs, times places of an image or sequence."""
    pre_mean: float
    """Mean and std, over units and samples, of what enters the activation; without one, of the output."""
    pre_std: float
    pre_spread: float
    """`spread` before the activation."""
    alpha: float | None
    """pre_mean / pre_std."""
    active: float | None
    """The fraction of pre-activations above 0."""
    dead: int | None
    """For ReLU and ReLU6: units that are above 0 for no sample."""
    bend: float | None
    """How far from linear the activation acts, from 0 to 1: for ReLU the share of units that fire for some samples and
    not for others, else 1 - r², r the correlation of a unit's input and output."""
    saturated: float | None
    """For bounded activations: the fraction of outputs within 1 % of a bound."""
    post_mean: float
    """Mean and std, over units and samples, of what leaves the activation; without one, of the output."""
    post_std: float
    spread: float
    """Root mean square, over units, of a unit's std over samples: how far apart different inputs still are."""
    distinct: float | None
    """k² / Σ r_ij² over the correlations r of the k units that vary: k when all differ, 1 when all repeat one."""
    gradient: float | None
    """Norm of the loss's gradient with respect to the layer's output."""
    weight_gradient: float | None
    """Norm of the loss's gradient with respect to the layer's weights, over all its calls."""
    common_gradient: float | None
    """The share of the weights' gradient, squared, that is the same for all units: 1 if all units get one gradient."""
    update: float | None
    """If an optimizer was given: how far its next step moves the weights, over their norm."""
    signal_to_noise: float | None = None
    """If probed: the weights' gradient over its noise, both squared; below 1 it is mostly noise."""
    jacobian: float | None = None
    """If probed: root mean square singular value of the outputs' derivative with respect to the layer's output."""
    jacobian_spread: float | None = None
    """If probed: k Σσ⁴ / (Σσ²)² of its k singular values: 1 if all are equal, k if one is all there is."""
    steps: int | None
    """Of a recurrent layer that reads forward: the time steps."""
    first_step: float | None
    """The gradient with respect to its input at the first step, over that at the step where it is largest."""
    zero_weights: bool
    row_norm: float | None
    """Root mean square, over units, of the norm of a unit's weights; of the layer's matrices, the largest."""
    level: float | None
    """The share of the weights, squared, that reads the common level of the inputs: 1 if each unit adds them up."""
    bias_mean: float | None
    bias_std: float | None
    scheme: str | None
    """`"stiefel"` for members of Õ(m,n), `"lee"`, `"orthogonal"` or `"other"`."""
    orthogonality_error: float | None
    """As in `stiefel_init.check`, the worst of the layer's matrices."""
    alignment_error: float | None
    predicted_pre_mean: float | None = None
    """What the theory predicts for these columns, for linear layers."""
    predicted_pre_std: float | None = None
    predicted_alpha: float | None = None
    predicted_active: float | None = None
    predicted_post_mean: float | None = None
    predicted_post_std: float | None = None
    predicted_gradient: float | None = None

    @property
    def label(self) -> str:
        """The name, with the number of a repeated call."""
        return self.layer if self.call == 1 else f"{self.layer} (call {self.call})"

    @property
    def named(self) -> str:
        """The label, for use in sentences."""
        return f"layer {self.label}"

    @property
    def size(self) -> float:
        """Root mean square of what leaves the activation."""
        return math.hypot(self.post_mean, self.post_std)


COLUMNS = tuple(field.name for field in fields(Layer))
