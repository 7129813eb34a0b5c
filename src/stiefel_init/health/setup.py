"""What is known of how a training is put together: the loss and what it reads, the optimizer, the modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ACTIVATIONS = {
    "Softmax": "softmax", "LogSoftmax": "log_softmax", "Sigmoid": "sigmoid", "LogSigmoid": "logsigmoid", "Relu": "relu",
    "Tanh": "tanh", "Hardtanh": "hardtanh", "Hardsigmoid": "hardsigmoid", "LeakyRelu": "leaky_relu", "Elu": "elu",
    "Gelu": "gelu", "Silu": "silu", "Softplus": "softplus", "Log": "log", "Log1P": "log1p", "Exp": "exp",
}  # fmt: skip
LOSSES = {
    "NllLoss": "nll_loss", "NllLoss2D": "nll_loss", "BinaryCrossEntropy": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits", "MseLoss": "mse_loss",
    "SmoothL1Loss": "smooth_l1_loss", "KlDiv": "kl_div",
    "HuberLoss": "huber_loss", "MultiMarginLoss": "multi_margin_loss",
}  # fmt: skip
DISTANCES = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "difference"})
LOGITS = frozenset({"cross_entropy", "binary_cross_entropy_with_logits"})
SUMS = 2  # torch's number for reduction="sum"


class Op(NamedTuple):
    """An operation between the last layer and the loss."""

    name: str  # of the graph's node, such as `"LogSoftmax"`
    shape: tuple[int, ...]  # of its result
    dim: int | None = None  # of a softmax
    reduction: int | None = None
    ignored: int | None = None  # of a loss: the class that it leaves out
    weights: tuple[float, ...] = ()  # what a loss weights its classes with
    swapped: bool = False  # whether the gradient comes by the argument that is meant for targets
    reader: str = ""  # of a softmax: the operation that reads it
    empty: bool = False  # of a softmax: whether some rows, and not all, are NaN
    outside: float | None = None  # of a binary cross-entropy: the share of its targets outside 0 … 1
    peak: float | None = None  # of a softmax over four numbers or more: the mean of the largest


class Tried(NamedTuple):
    """What copies of a network learned of its batch: shares of what the best outputs have before constant ones."""

    own: float  # by the user's optimizer, and by Adam; None: not tried
    fell: float  # by the user's: the same, from the first loss on
    adam: float | None = None
    at_last: float | None = None  # by Adam in four times as many steps
    flat: float | None = None  # where the best outputs hardly lower the loss: by which share of it
    change: str = ""  # with which a copy learns much that learned little
    weights: str = ""  # what was otherwise of weights that were initialized again


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of a batch."""

    shape: tuple[int, ...]
    whole: bool  # integers, which are classes
    low: float
    high: float
    distinct: int
    majority: float  # the share of the most frequent value, and that value
    usual: float
    counts: tuple[int, ...] = ()  # of classes from 0 on, as numbers or as rows with a one: how often each occurs
    several: bool  # whether rows of zeros and ones have several ones
    negative: float  # shares: below 0, above 1, beyond -1 … 1
    above: float
    beyond: float
    padding: float | None = None  # the value that rows of classes end with, for lengths that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a training is put together, as the rules about it say. What could not be found out is None or empty."""

    tail: tuple[Op, ...] = ()
    last: str = ""  # the operation before these: the last layer's
    softmaxes: tuple[Op, ...] = ()
    outputs: tuple[int, ...] | None = None
    targets: Targets | None = None
    broadcast: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """The shapes of outputs and targets whose difference is larger than both."""
    span: tuple[float, ...] = (0.0, 0.0)  # the least and the largest of the outputs
    zeros: float = 0.0  # the share of outputs that are exactly 0
    parameters: int = 0
    hidden: tuple[str, ...] = ()
    unregistered: int = 0  # tensors that get a gradient and are not among the model's parameters
    frozen: tuple[str, ...] = ()
    single: int = 0
    pairs: tuple[tuple[str, str], ...] = ()
    unreached: tuple[str, ...] = ()
    unoptimized: tuple[str, ...] = ()
    optimizer: str = ""
    optimized: int | None = None  # how many of the optimizer's parameters belong to the model, and how many do not
    stale: int = 0
    momentum: float = 0.0
    warms_up: bool = False  # whether the learning rate is below its initial one
    repeated: tuple[str, int] = ("", 1)
    blocks: int = 0  # skip connections, and whether something is normalized between the layers
    normalizes: bool = False
    contrary: tuple[float, float] | None = None
    """The loss of outputs that say the targets, and of outputs that say nothing."""
    opposite: bool = False  # whether it prefers outputs that say the opposite
    linear: bool = False  # whether it is linear in outputs that are to name classes
    shift: int = 0  # by how many steps it takes the targets from later ones
    copies: float = 0.0  # shares of the targets: equal to the token at their place, equal to the next one, not ignored
    ahead: float = 0.0
    counted: float = 1.0
    beside: bool = False  # whether there are other inputs beside these tokens
    contradicts: float = 0.0  # the share of the targets' variance among examples with equal inputs
    moved: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """The shapes of a view that gives an axis another place."""
    discarded: str = ""  # an activation whose result nothing reads
    doubled: bool = False  # whether a tensor is added to itself
    stairs: str = ""  # an operation whose slope is 0, such as `"Round"`
    stacked: int = 0  # the layers of the deepest recurrent one
    suspects: tuple[tuple[str, str], ...] = ()
    """Operations without a guard where they are not finite: the rule's kind, and in words."""
    broke: tuple[str, str] | None = None  # the first operation that made something infinite of finite numbers, likewise
    unseen: float = 0.0  # the share of steps that no output depends on
    padding: tuple[float, float] | None = None  # what padding and real tokens weigh, by the outputs' gradient
    one_sided: bool = False  # whether of a recurrent layer of both directions the last step alone is read
    unordered: bool = False  # whether tokens in another order give the same outputs, in a model with attention
    stalled: tuple[str, ...] = ()  # parameters whose group has a learning rate of 0
    tiny: bool = False  # whether the optimizer's epsilon is 0 in the precision of its parameters
    rounded: float = 0.0
    """The share of weights that the optimizer's next step should move, and rounding keeps where they are."""
    standardizes: bool = False  # whether the model normalizes its inputs itself
    evaluating: tuple[str, ...] = ()
    """Dropout and batch normalization in evaluation mode, in a model that is in training mode."""
    drops: bool = False
    dropout: float = 0.0
    examples: int = 0
    padded: float = 0.0  # the share of the inputs' tokens that pad the ends of rows
    normalized: tuple[str, ...] = ()
    statistics: str = ""  # what is unusual of the running ones of a batch normalization, in words
    remembers: bool = False
    mixes: float | None = None
    leaks: float | None = None
    looks_ahead: bool | None = None  # where targets are the inputs: whether outputs depend on later ones

    @property
    def loss(self) -> str:
        """The kind of loss: a name of torch.nn.functional, `"difference"`, or empty."""
        names = [op.name for op in self.tail]
        for at, name in enumerate(names):
            if name in LOSSES:
                known = LOSSES[name]
                return "cross_entropy" if known == "nll_loss" and "LogSoftmax" in names[:at] else known
        if "LogSoftmax" in names and "Mul" in names[names.index("LogSoftmax") :]:
            return "cross_entropy"  # with probabilities as targets
        if "Sub" in names and ({"Pow", "Abs", "Mul"} & set(names[names.index("Sub") :])):
            return "difference"
        return ""

    @property
    def head(self) -> Op | None:
        return next((op for op in self.tail if op.name in LOSSES), None)

    @property
    def acts(self) -> tuple[str, ...]:
        """The activations between the last layer and the loss, the loss's own included."""
        return tuple(ACTIVATIONS[op.name] for op in self.tail if op.name in ACTIVATIONS)

    @property
    def before_loss(self) -> tuple[str, ...]:
        """Those of the user: without the log-softmax of a cross-entropy."""
        acts = self.acts
        return acts[:-1] if self.loss == "cross_entropy" and acts and acts[-1] == "log_softmax" else acts
