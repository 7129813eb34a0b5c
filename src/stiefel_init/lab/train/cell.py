"""Cells: the identity of one trained network, and how cells are grouped into stacks."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ...core.check import check
from ...core.errors import StiefelError, unknown
from ...core.sample import draw
from ...schemes import Position, Scheme, get
from ...theory import activations
from ...theory.moments import ActivationName
from .family import PERCEPTRON, AugmentName, OptimizerName, PrecisionName, ScheduleName, settled

OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)
_CHOICES: dict[str, tuple[str, ...]] = {
    "optimizer": OPTIMIZERS, "precision": PRECISIONS, "schedule": get_args(ScheduleName),
    "augment": get_args(AugmentName),
}  # fmt: skip


class Kept(NamedTuple):
    """How an optimizer keeps the weights between hidden layers in the set."""

    step: Literal["adam", "sgd", "muon"]
    ones: bool = True  # whether the ones direction is kept; if not, weights stay orthogonal, and no more
    gain: bool = False  # whether each layer's weights are a member times a gain of its own, which is learned


ON_SET: dict[OptimizerName, Kept] = {
    "stiefel-adam": Kept("adam"),
    "stiefel-sgd": Kept("sgd"),
    "stiefel-muon": Kept("muon"),
    "orthogonal-adam": Kept("adam", ones=False),
    "gain-adam": Kept("adam", gain=True),
}
"""The optimizers that keep the weights between hidden layers in the set."""
SMOOTH = ("gelu", "silu")  # activations that bend smoothly at 0 and have kernels of their own
MOST_DEPTH = 100_000  # ten times the deepest network known to train
ADDED = (
    "decay", "dropout", "schedule", "ends", "network", "clip", "smoothing", "augment", "warmup", "groups",
)  # fmt: skip
"""Fields younger than the first records, whose identities must not change: a default value is not in an identity."""
PROTOCOL = 2  # raised whenever a code change alters outcomes beyond rounding; records of another protocol are not taken


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything that determines one training run, by default of a plain network d → hidden … hidden → classes.

    The scheme draws every layer, including the first and the last; biases start at zero.

    >>> Cell("digits", "he", depth=4).rate == 0.001 / 4**0.5
    True
    >>> Cell("digits", network="resnet20").depth
    20
    """

    dataset: str
    scheme: Any = "stiefel"
    """A `Scheme`; may be given by its name."""
    depth: int = 10
    """Hidden layers; of convolutional networks all layers with weights."""
    width: int | tuple[int, ...] = 64
    """Units of every hidden layer, or a tuple with the units of each; channels of the first stage."""
    activation: ActivationName = "relu"
    seed: int = 0
    """Random seed for the weights, the order of the data, the split and the few shots."""
    epochs: int = 20
    """Passes over the training data; steps, if the data are one batch."""
    batch: int | None = 256
    """Batch size; None for full batch."""
    rate: Any = None
    """Learning rate; by default the paper's 0.001/√depth, which deep networks need, and 0.001 of other networks."""
    optimizer: OptimizerName = "adam"
    """Those called stiefel-… keep the weights between hidden layers in the set, gain-adam does so up to a learned gain
    for each layer, orthogonal-adam keeps them orthogonal; the rest is trained by Adam or SGD."""
    shots: int | None = None
    """Training images per class, different ones for each seed; None for all."""
    alpha: float | None = None
    """Shift of the standardized features of tabular data."""
    precision: PrecisionName = "float32"
    protocol: int = PROTOCOL
    """How it is drawn and trained, see PROTOCOL."""
    decay: float = 0.0
    """Weight decay of all parameters, decoupled from the gradient: Adam with decay is AdamW."""
    dropout: float = 0.0
    """Probability with which each output of a hidden layer is dropped in a training step."""
    schedule: ScheduleName = "constant"
    """Of the learning rate: constant; a linear warm-up and then a cosine to zero; or, for optimizers that keep weights
    in the set, constant for half of the steps, then free training at a sixteenth of the rate and a cosine to zero."""
    ends: float = 1.0
    """Learning rate of the first and the last layer, times that of the others."""
    network: str = PERCEPTRON
    """A family of `FAMILIES`, with its depth or without, as in `"vgg16"`; or the user's own."""
    clip: float | None = None
    """The largest norm of a step's gradient, of networks that are no perceptrons; so all below."""
    smoothing: float = 0.0
    """Label smoothing, in training alone."""
    augment: AugmentName = "none"
    """Whether images are cropped out of a frame that mirrors their edges, an eighth of their side wide, and flipped."""
    warmup: float | None = None
    """Epochs of the warm-up that a cosine begins with; by default a tenth of all."""
    groups: bool = False
    """Whether each layer has the rate that `param_groups` gives it for the cell's rate."""

    def __post_init__(self) -> None:
        def settle(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        settle("scheme", get(self.scheme))
        if isinstance(self.width, list):  # as JSON hands it back
            settle("width", tuple(self.width))
        if isinstance(self.width, tuple) and len(self.width) == 1:  # (5,) and 5 are one cell
            settle("width", self.width[0])
        for name in _NUMBERS:  # 2 and 2.0 are one cell
            if isinstance(getattr(self, name), numbers.Real):
                settle(name, float(getattr(self, name)))
        _positive("depth", self.depth)
        if self.depth > MOST_DEPTH:
            raise StiefelError(f"depth={self.depth} is too deep; give at most {MOST_DEPTH}.")
        network, depth = settled(self.network, self.depth)
        settle("network", network)
        settle("depth", depth)
        self._check_choices()
        self._check_network()
        if self.rate is None:
            settle("rate", 1e-3 / self.divisor)
        for width in self.width if isinstance(self.width, tuple) else (self.width,):
            _positive("width", width)
        if isinstance(self.width, tuple) and len(self.width) != self.depth:
            raise StiefelError(
                f"width={self.width} names {len(self.width)} layers, but depth={self.depth}; give one width per layer."
            )
        _positive("epochs", self.epochs)
        for name in ("batch", "shots"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        _check_seed(self.seed)
        for name, (sound, sentence) in _NUMBERS.items():
            value = getattr(self, name)
            if not (name in _NONE and value is None) and not (isinstance(value, float) and sound(value)):
                raise StiefelError(f"{name}={value!r} is not {sentence}")

    def _check_choices(self) -> None:
        """Refuse names that are not known, and those that do not go together."""
        scheme = str(self.scheme)
        if self.activation not in activations():
            raise unknown("activation", self.activation, activations())
        if self.scheme.activations and self.activation not in self.scheme.activations:
            made_for = " or ".join(map(repr, self.scheme.activations))
            raise StiefelError(f"{scheme=} needs activation={made_for}, not {self.activation!r}; give that one.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        if self.protocol != PROTOCOL:
            raise StiefelError(f"protocol={self.protocol!r} is of another version of stiefel-init; leave it out.")
        if self.optimizer in ON_SET and not _starts_on_set(self.scheme, ON_SET[self.optimizer].ones):
            kept = "in the set" if ON_SET[self.optimizer].ones else "orthogonal"
            raise StiefelError(
                f"optimizer={self.optimizer!r} keeps weights {kept}, but {scheme=} does not start "
                "them so; use a scheme such as 'stiefel' or 'permutation', or optimizer='adam'."
            )
        if self.schedule == "release" and self.optimizer not in ON_SET:
            raise StiefelError(
                f"schedule='release' lets go of weights that optimizer={self.optimizer!r} does not hold; use "
                "optimizer='stiefel-adam', or schedule='cosine'."
            )

    def _check_network(self) -> None:
        """Refuse what the engines of perceptrons do not do, and what those of other networks do not."""
        scheme = str(self.scheme)
        if self.network != PERCEPTRON:
            if self.optimizer not in ("adam", "sgd"):
                raise StiefelError(f"optimizer={self.optimizer!r} is for perceptrons here; give 'adam' or 'sgd'.")
            if self.dropout:
                raise StiefelError(f"dropout={self.dropout} is for perceptrons; put it into a network of your own.")
            if not isinstance(self.width, int):
                raise StiefelError(f"width={self.width} names layers; give the channels of the first stage.")
            if self.warmup is not None and self.schedule != "cosine":
                raise StiefelError(f"warmup={self.warmup:g} begins a cosine; give schedule='cosine' too.")
            return
        for name in _OF_MODULES:
            if (value := getattr(self, name)) != _ADDED[name]:
                raise StiefelError(f"{name}={value!r} is not for perceptrons; leave it out, or name another network.")
        if self.precision == "bfloat16":
            raise StiefelError("precision='bfloat16' is not for perceptrons; use 'float32' or 'tf32'.")
        if self.scheme.residual:
            raise StiefelError(f"{scheme=} is for residual networks; {self.network} is a plain network.")

    @property
    def divisor(self) -> float:
        """Learning rates are counted in 0.001 over this: √depth of perceptrons, 1 of other networks."""
        return math.sqrt(self.depth) if self.network == PERCEPTRON else 1.0

    @property
    def rate_unit(self) -> str:
        """What learning rates are counted in, in words."""
        return "0.001/√depth" if self.network == PERCEPTRON else "0.001"

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.width if isinstance(self.width, tuple) else (self.width,) * self.depth

    @property
    def lr_multiplier(self) -> float:
        """The learning rate in its unit."""
        return float(f"{self.rate * 1e3 * self.divisor:.6g}")

    def with_seed(self, seed: int) -> Cell:
        """The cell with another seed, in a tenth of the time of a new one: all else has been checked."""
        _check_seed(seed)
        if seed == self.seed:
            return self
        other = copy.copy(self)
        object.__setattr__(other, "seed", seed)
        return other

    @property
    def setting(self) -> Cell:
        """The cell with seed 0: what all seeds of one setting share."""
        return self.with_seed(0)

    def identity(self) -> dict[str, Any]:
        """The fields as JSON values, for `from_dict`. Those of `ADDED` are left out where they have their defaults."""
        values = {name: getattr(self, name) for name in _NAMES}
        for name, default in _ADDED.items():
            if values[name] == default:
                del values[name]
        return values | {
            "scheme": str(self.scheme),
            "width": list(self.width) if isinstance(self.width, tuple) else self.width,
        }

    @property
    def key(self) -> str:
        """The identity as text: equal for equal cells, in every process."""
        return json.dumps(self.identity(), sort_keys=True)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """The cell whose `identity` is among these values, those of a record say."""
        return cls(**{name: values[name] for name in _NAMES if name in values})


_NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {
    "rate": (lambda x: 0 < x < math.inf, "a learning rate; give a positive number."),
    "alpha": (math.isfinite, "finite; the paper's values are -2, 0, 2 and 50."),
    "decay": (lambda x: 0 <= x < math.inf, "a weight decay; give a number ≥ 0, such as 0.01."),
    "dropout": (lambda x: 0 <= x < 1, "a probability below 1; give a number from 0 up to 1, such as 0.1."),
    "ends": (lambda x: 0 < x < math.inf, "a factor of the learning rate; give a positive number (--edge-lr)."),
    "clip": (lambda x: 0 < x < math.inf, "a norm of the gradient; give a positive number, such as 1."),
    "smoothing": (lambda x: 0 <= x < 1, "a share below 1; give a number from 0 up to 1, such as 0.1."),
    "warmup": (lambda x: 0 <= x < math.inf, "a number of epochs; give 0 or more."),
}
"""The fields that are real numbers: what they must be, and the end of the sentence that says so."""
_NONE = ("alpha", "clip", "warmup")  # those that may be missing
_OF_MODULES = ("clip", "smoothing", "augment", "warmup", "groups")
_NAMES = tuple(field.name for field in fields(Cell))
_ADDED = {field.name: field.default for field in fields(Cell) if field.name in ADDED}


def _check_seed(seed: Any) -> None:
    if not isinstance(seed, int) or seed < 0:
        raise StiefelError(f"seed={seed!r} is not a whole number ≥ 0.")


@lru_cache(maxsize=256)
def _starts_on_set(scheme: Scheme, ones: bool) -> bool:
    """Whether a scheme draws members of the set between hidden layers; without `ones`, orthogonal matrices."""
    try:
        drawn = draw(scheme.at(Position()), 8, 8, seed=0)
        return bool(check(drawn)) if ones else bool(abs(drawn @ drawn.T - np.eye(8)).max() < 1e-10)
    except StiefelError:  # it needs more than sizes
        return False


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StiefelError(f"{name}={value!r} is not a whole number ≥ 1.")


def stack_key(cell: Cell) -> tuple[Any, ...]:
    """Cells with the same key can be trained as one stack, provided their data have the same shape."""
    if cell.network != PERCEPTRON:  # each has a step of its own; of one depth they end at about the same time
        return "modules", cell.depth, cell.epochs, cell.batch, cell.precision, cell.shots
    return (
        cell.hidden, cell.activation, cell.epochs, cell.batch, cell.optimizer, cell.precision, cell.shots,
        cell.dropout, cell.schedule, cell.ends,
    )  # fmt: skip


def digest(cells: Iterable[Cell]) -> str:
    """A short name for a set of cells, whatever their order."""
    return hashlib.blake2b("\n".join(sorted(cell.key for cell in cells)).encode(), digest_size=8).hexdigest()


def split_evenly(cells: Sequence[Cell], most: int) -> list[list[Cell]]:
    """Split `cells` into as few parts as possible, at most `most` each, of sizes that differ by at most one."""
    parts = math.ceil(len(cells) / most)
    edges = [round(i * len(cells) / parts) for i in range(parts + 1)]
    return [list(cells[a:b]) for a, b in itertools.pairwise(edges)]
