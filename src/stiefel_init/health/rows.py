"""What is known about a network: rows of layers, the inputs and the fit, as `Evidence` of one batch or a `Moment`."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple

from ..core.activations import DYING, SQUASHING
from .setup import Setup, Tried

ENOUGH = 16  # samples needed to judge units and features
EASY = 0.4  # the share of the targets' variance from which on a task is easy
LEARNS = 0.7  # of the best constant's loss: a network that gets there in a few steps learns
MASTERS = 0.6  # the share of what can be learned of a batch from which on nothing stands in the way
LEARNED = 0.5  # an untrained network does not get below this share of the best constant's loss
ROUNDED = 1e-6  # of their size: differences between equal activations that rounding makes
SEVERAL = 32  # batches that are compared with each other
RECENT = 8  # samples that a new one is compared with
PATIENCE, EARLY = 24, 4  # samples after which a loss should have fallen, and how many it should have fallen from
LEARNING = 0.8  # of the first loss: below it, the training works, whatever the signal looks like


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One call of one layer. What cannot be measured is None."""

    layer: str
    call: int  # 1; higher if the layer is called again
    kind: str  # the layer's class
    shape: str  # of its weight, outputs × inputs
    activation: str | None = None
    """The activation that follows it, directly or after a normalization, dropout, pooling or reshaping."""
    units: int
    """Of the activation, or of the output where none follows: channels of a convolution, else the last dimension."""
    samples: int  # values of each unit: inputs, times places of an image or sequence
    pre_mean: float  # mean and std, over units and samples, of what enters the activation; without one, of the output
    pre_std: float
    pre_spread: float  # `spread` before the activation
    alpha: float | None = None  # pre_mean / pre_std
    active: float | None = None  # the fraction of pre-activations above 0
    dead: int | None = None  # for ReLU and ReLU6: units that are above 0 for no sample
    bend: float | None = None
    """How far from linear the activation acts, from 0 to 1: for ReLU the share of units that fire for some samples and
    not for others, else 1 - r², r the correlation of a unit's input and output."""
    saturated: float | None = None  # for bounded activations: the fraction of outputs within 1 % of a bound
    post_mean: float  # mean and std, over units and samples, of what leaves the activation; without one, of the output
    post_std: float
    spread: float
    """Root mean square, over units, of a unit's std over samples: how far apart different inputs still are."""
    distinct: float | None = None
    """k² / Σ r_ij² over the correlations r of the k units that vary: k when all differ, 1 when all repeat one."""
    gradient: float | None = None  # norm of the loss's gradient with respect to the layer's output
    weight_gradient: float | None = None
    """Norm of the loss's gradient with respect to the layer's weights, over all its calls."""
    common_gradient: float | None = None
    """The share of the weights' gradient, squared, that is the same for all units: 1 if all units get one gradient."""
    update: float | None = None  # if an optimizer was given: how far its next step moves the weights, over their norm
    steps: int | None = None  # of a recurrent layer that reads forward: the time steps
    first_step: float | None = None
    """The gradient with respect to its input at the first step, over that at the step where it is largest."""
    zero_weights: bool
    row_norm: float | None = None
    """Root mean square, over units, of the norm of a unit's weights; of the layer's matrices, the largest."""
    level: float | None = None
    """The share of the weights, squared, that reads the common level of the inputs: 1 if each unit adds them up."""
    bias_mean: float | None = None
    bias_std: float | None = None
    scheme: str | None = None  # `"stiefel"` for members of Õ(m,n), `"lee"`, `"orthogonal"` or `"other"`
    orthogonality_error: float | None = None  # as in `stiefel_init.check`, the worst of the layer's matrices
    alignment_error: float | None = None

    @property
    def label(self) -> str:
        return self.layer if self.call == 1 else f"{self.layer} (call {self.call})"

    @property
    def named(self) -> str:
        return f"layer {self.label}"

    @property
    def size(self) -> float:
        return math.hypot(self.post_mean, self.post_std)

    @property
    def bias(self) -> float:
        return math.hypot(self.bias_mean or 0.0, self.bias_std or 0.0)


LAYER_COLUMNS = tuple(column.name for column in fields(Layer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs, over their features: the channels of images, else the last dimension."""

    mean: float
    std: float  # over all entries
    samples: int
    features: int
    largest_std: float  # the largest and the median std of a feature over the samples, of those that vary
    median_std: float
    distinct: float | None  # how many features differ, as `Layer.distinct` counts units
    same: float  # the share of the inputs' square that all samples have in common; 1 if all samples are equal
    apart: float | None = None  # the size of the largest example over that of the median one

    @property
    def size(self) -> float:
        return math.hypot(self.mean, self.std)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How the outputs meet the targets. What the loss does not tell is None."""

    loss: float
    constant_loss: float | None  # for the default losses: what the best constant output would get
    output_mean: float | None = None  # mean and std of outputs and of float targets of their shape
    output_std: float | None = None
    target_mean: float | None = None
    target_std: float | None = None
    zero_loss: float | None = None  # for other losses: what an output of zeros would get
    readable: float | None = None
    """The share of the targets' variance that the three widest directions of the inputs tell."""

    @property
    def easy(self) -> bool:
        """Whether a few directions of the inputs tell the targets, so that little has to reach the last layer."""
        return self.readable is not None and self.readable > EASY

    @property
    def learned(self) -> bool:
        """Whether the network beats every constant output by far, so that it must have been trained."""
        return self.constant_loss is not None and self.loss < LEARNED * self.constant_loss


@dataclass(frozen=True)
class Evidence:
    """What one batch told about a network."""

    layers: tuple[Layer, ...]
    inputs: Inputs | None = None
    fit: Fit | None = None
    curvature: float | None = None
    """How far the whole network is from linear, as `diagnose` measures it where no activation seems to act."""
    setup: Setup | None = None  # how its training is put together
    trial: tuple[float, ...] = ()
    """Where it was tried: the losses of a copy of the network that was trained on this batch."""
    by_heart: bool = False  # whether such a copy knew nothing of examples that were kept from it
    tried: Tried | None = None

    @property
    def breaks(self) -> bool:
        """Whether the loss or a gradient is not finite, now or after some steps of a copy."""
        gradients = (layer.weight_gradient for layer in self.layers)
        known = (*gradients, *self.trial, None if self.fit is None else self.fit.loss)
        return not all(math.isfinite(value) for value in known if value is not None)

    @property
    def masters(self) -> bool:
        """Whether the network, or with another optimizer a copy of it, learned most of its batch."""
        return self.tried is not None and max(self.tried.own, self.tried.adam or 0.0) > MASTERS

    @property
    def learns(self) -> bool:
        """Whether the network learned its batch when it was tried: nothing that was measured keeps it from that."""
        fit = self.fit
        if len(self.trial) < 2 or fit is None:
            return False
        usual = fit.constant_loss or min(self.trial[0], fit.zero_loss or math.inf)
        return self.trial[-1] < LEARNS * usual

    @property
    def easy(self) -> bool:
        """Whether the targets are known to be easy, so that networks learn them that are sick elsewhere."""
        return self.fit is not None and self.fit.easy

    @property
    def hard(self) -> bool:
        return self.fit is not None and self.fit.readable is not None and not self.fit.easy

    @cached_property
    def zeros(self) -> Layer | None:
        """A layer of zeros after which all inputs are the same; behind a zero branch or head they still differ."""
        for at, layer in enumerate(self.layers[:-1]):
            if layer.zero_weights and all(after.spread <= ROUNDED * after.size for after in self.layers[at + 1 :]):
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
        return 2 * sum(layer.activation in SQUASHING for layer in self.hidden) > len(self.hidden)

    @cached_property
    def carried(self) -> tuple[Layer, ...]:
        """The layers with a gradient. Below weights of zero it is 0 until their first step, which says nothing."""
        rows = (layer for layer in self.judged if layer.gradient is not None)
        if len(self.judged) == len(self.layers):
            return tuple(rows)
        return tuple(layer for layer in rows if layer.gradient != 0)


class Row(NamedTuple):
    """One layer at one step; what was not measured is None, and what a `Layer` has too is measured as there."""

    layer: str
    kind: str
    activation: str | None = None
    units: int = 0
    samples: int = 0
    mean: float | None = None
    std: float | None = None
    alpha: float | None = None
    active: float | None = None
    dead: float | None = None  # for ReLU and ReLU6: the share of units that are above 0 for no sample
    saturated: float | None = None
    """For bounded activations, tanh RNNs and LSTMs: the fraction of outputs within 1 % of a bound."""
    post_mean: float | None = None
    post_std: float | None = None
    spread: float | None = None
    distinct: float | None = None
    gradient: float | None = None
    """Norm of the loss's gradient with respect to the layer's output, times the scale of a GradScaler."""
    weight_gradient: float | None = None  # norm of the gradient with respect to the weights that the optimizer used
    update: float | None = None
    """How far the step moved the weights, over their norm; None for weights that were all zero."""
    inward: float | None = None  # cosine of that move and minus the weights: 1 if the step only shrinks them
    norm: float | None = None
    singular: float | None = None
    distance: float | None = None  # distance from Õ(m,n): √(‖WWᵀ - I‖² / m + ‖Wξ - ξ‖²); for m > n of Wᵀ
    bias_mean: float | None = None
    bias_std: float | None = None
    trained: bool = True  # whether the weights require a gradient

    @property
    def named(self) -> str:
        return f"layer {self.layer}"

    @property
    def ran(self) -> bool:
        return self.std is not None

    @property
    def size(self) -> float:
        return math.hypot(self.post_mean or 0.0, self.post_std or 0.0)

    @property
    def bias(self) -> float:
        return math.hypot(self.bias_mean or 0.0, self.bias_std or 0.0)

    @property
    def across(self) -> float | None:
        """The part of the update that does not shrink the weights."""
        return None if self.update is None else self.update * math.sqrt(max(0.0, 1 - max(0.0, self.inward or 0.0) ** 2))

    @property
    def label(self) -> str:
        return self.layer

    def as_layer(self) -> Layer:
        return Layer(
            layer=self.layer, call=1, kind=self.kind, shape="", activation=self.activation, units=self.units,
            samples=self.samples, pre_mean=self.mean or 0.0, pre_std=self.std or 0.0, pre_spread=self.spread or 0.0,
            alpha=self.alpha, active=self.active, dead=None if self.dead is None else round(self.dead * self.units),
            saturated=self.saturated, post_mean=self.post_mean or 0.0, post_std=self.post_std or 0.0,
            spread=self.spread or 0.0, distinct=self.distinct, gradient=self.gradient,
            weight_gradient=self.weight_gradient, update=self.update, row_norm=self.norm,
            zero_weights=self.norm == 0 or self.update is None, bias_mean=self.bias_mean, bias_std=self.bias_std,
        )  # fmt: skip


ROW_COLUMNS = Row._fields
TEXTS = ("layer", "kind", "activation")
NUMBERS = tuple(name for name in ROW_COLUMNS if name not in TEXTS)


@dataclass(frozen=True)
class Sample:
    """A sampled step."""

    step: int
    rows: tuple[Row, ...]  # the layers in the order they ran, then those that did not
    loss: float | None = None
    rate: float | None = None  # largest learning rate of the optimizer that stepped
    inputs: Inputs | None = None
    finite_inputs: bool = True
    backward: bool = False  # whether a backward pass reached a weight
    stepped: bool = False  # whether one of torch's optimizers stepped
    resting: bool = False  # whether the optimizer steps once for several batches, and not now
    parts_lost: bool = False  # whether gradients are accumulated, and those of the batch before were gone
    leftover: float = 0.0  # norm of the gradients that were there before the first backward pass of the step
    kept: float | None = None
    """How much of the gradient that arrived at the weights the optimizer used; None if it did not step."""
    signs: bool = False  # whether the signs of a gradient are left, as of one that was multiplied by 0
    heard: float | None = None  # what `backward()` was called on, where the user gave the loss beside it
    cleared: bool = False  # whether weights that got a gradient had none when the optimizer stepped
    half: bool = False  # whether layers ran in float16
    evaluating: bool = False  # whether a model with dropout or batch normalization ran in evaluation mode
    resumed: bool = False  # whether the optimizer had stepped before the first sample
    others: bool = False  # whether other optimizers step as well, so that there may be several losses
    renewed: bool = False  # whether each step is the first one of a new optimizer, whose averages are lost
    period: int = 0  # steps of the training for one of the optimizer, at most; 0 before the first
    base_rate: float | None = None  # the largest rate that an optimizer was made with, before a schedule changed it
    uphill: float | None = None
    """The least cosine of a weight's move and the gradient that arrived: 1 where steps raise the loss."""
    away: float | None = None  # how far some of the weights are from where they were at first
    severed: bool = False  # whether `backward()` was called on a tensor that no weight leads to
    suspects: tuple[tuple[str, str], ...] = ()  # operations in the loss that may become infinite or NaN, as in `Setup`
    keys: tuple[float, ...] = ()
    """A number for each of the first rows of the inputs, then whether they are no whole numbers."""
    twice: bool = False  # whether an optimizer steps again without a new gradient
    standardizes: bool = False  # whether the model normalizes its inputs itself
    searches: bool = False  # whether a step of the optimizer is a search of several, as that of LBFGS is

    @cached_property
    def evidence(self) -> Evidence | None:
        layers = tuple(row.as_layer() for row in self.rows if row.ran)
        return Evidence(layers, self.inputs) if layers else None

    @cached_property
    def by_name(self) -> dict[str, Row]:
        return {row.layer: row for row in self.rows}


@dataclass
class Past:
    """What earlier samples told, in bounded memory."""

    recent: deque[Sample] = field(default_factory=lambda: deque(maxlen=RECENT))
    first_loss: float | None = None
    inputs: float | None = None  # size of the inputs at the first sample
    norms: dict[str, float] = field(default_factory=dict)  # largest norm of each layer's weights
    moved: float = 0.0  # largest update, the median over the layers
    across: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """`Row.across` of the recent samples, the median over the layers."""
    count: int = 0
    rate: float = 0.0  # largest learning rate so far
    least_loss: float | None = None
    early: list[float] = field(default_factory=list)  # the first losses
    first_rate: float | None = None
    away: float = 0.0  # `Sample.away`, the largest so far, and the first
    first_away: float | None = None
    repeats: int = 0  # samples in a row with the inputs of the sample before
    batches: deque[tuple[float, float, int]] = field(default_factory=lambda: deque(maxlen=SEVERAL))
    """Mean, variance and number of the keys of recent samples."""
    resumed: bool = False
    last_keys: list[float] = field(default_factory=list)

    @property
    def last(self) -> Sample | None:
        return self.recent[-1] if self.recent else None

    def was(self, row: Row) -> Row | None:
        return self.recent[-1].by_name.get(row.layer) if self.recent else None

    def of(self, row: Row) -> Iterator[Row]:
        return (sample.by_name[row.layer] for sample in self.recent if row.layer in sample.by_name)

    def add(self, sample: Sample) -> None:
        self.recent.append(sample)
        self.across.append(median(row.across for row in sample.rows) or 0.0)
        self.count += 1
        self.rate = max(self.rate, sample.rate or 0.0)
        if sample.loss is not None and math.isfinite(sample.loss):
            self.first_loss = sample.loss if self.first_loss is None else self.first_loss
            self.least_loss = min(sample.loss, self.least_loss if self.least_loss is not None else math.inf)
            if len(self.early) < EARLY:
                self.early.append(sample.loss)
        self.resumed = self.resumed or sample.resumed
        self.first_rate = sample.rate if self.first_rate is None else self.first_rate
        self.away = max(self.away, sample.away or 0.0)
        self.first_away = sample.away if self.first_away is None else self.first_away
        if sample.keys:
            same = self.last_keys == sorted(sample.keys)
            self.repeats, self.last_keys = self.repeats + 1 if same else 0, sorted(sample.keys)
            rows = sample.keys[:-1]
            self.batches.append((statistics.fmean(rows), statistics.variance(rows), len(rows)))
        if self.inputs is None and sample.inputs is not None:
            self.inputs = sample.inputs.size
        self.moved = max(self.moved, median(row.update for row in sample.rows if row.trained) or 0.0)
        for row in sample.rows:
            if row.norm is not None and math.isfinite(row.norm):
                self.norms[row.layer] = max(self.norms.get(row.layer, 0.0), row.norm)

    def fallen(self, *now: Sample, after: int = PATIENCE) -> float | None:
        """By which share of itself the loss has fallen since the first samples, once there are enough of them."""
        late = [then.loss for then in (*self.recent, *now) if then.loss is not None][-RECENT:]
        if self.count < after or len(self.early) < EARLY or len(late) < RECENT:
            return None
        early = statistics.fmean(self.early)
        return (early - statistics.fmean(late)) / abs(early) if early and all(map(math.isfinite, late)) else None

    def falls(self, sample: Sample) -> bool:
        """Whether the loss is lower than at all recent samples."""
        known = [then.loss for then in self.recent if then.loss is not None]
        return sample.loss is not None and bool(known) and sample.loss < min(known)

    def works(self, sample: Sample) -> bool:
        """Whether the loss has come down, so that the network trains."""
        if sample.loss is None or self.first_loss is None:
            return False
        return sample.loss < self.first_loss - (1 - LEARNING) * abs(self.first_loss)


def median(values: Iterable[float | None]) -> float | None:
    """Of the finite ones."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(known) if known else None


class Moment(NamedTuple):
    """A sampled step, and what came before."""

    now: Sample
    past: Past
