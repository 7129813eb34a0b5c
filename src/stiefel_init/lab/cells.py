"""Cells: the identity of one trained network, and how cells are put together into stacks."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .._errors import StiefelError, unknown

SCHEMES = ("stiefel", "lee", "he", "xavier", "orthogonal", "random")
ACTIVATIONS = ("relu", "leaky_relu", "prelu", "elu", "selu")
OPTIMIZERS = ("adam", "sgd")
PRECISIONS = ("float32", "tf32")
MOST_DEPTH = 100_000
"""Ten times the deepest network that we know to train."""
VARIANTS = {"permutation": "permutation", "identity": "identity", "rotation": "rotation 0.1"}
"""Members of the set that stand beside the schemes by name: which variant of `stiefel` each is."""

PROTOCOL = 1
"""Raised whenever a change to the code changes what a cell's outcome is beyond rounding."""


_LEFT_OUT: Any = None


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything that decides the outcome of one training: a plain network d → hidden … hidden → classes.

    Every layer, first and last too, is drawn by the scheme; biases start at zero.
    """

    dataset: str
    scheme: str = "stiefel"
    depth: int = 10
    """Hidden layers."""
    width: int | tuple[int, ...] = 64
    """Units of every hidden layer, or the units of each."""
    activation: str = "relu"
    seed: int = 0
    """Decides the weights, the order of the data, the split and the few shots."""
    epochs: int = 20
    """Passes over the training data; steps, when the data are one batch."""
    batch: int | None = 256
    """Rows of a mini-batch; None trains on all rows at once."""
    rate: float = _LEFT_OUT
    """Learning rate; 0.001/√depth, the paper's, if left out. Deep networks need one that small."""
    optimizer: str = "adam"
    shots: int | None = None
    """Training images per class, drawn anew for each seed; None for all."""
    alpha: float | None = None
    """Shift of the standardized features of tabular data."""
    variant: str | None = None
    """Which form of the scheme.

    For `stiefel` a member by name: `permutation`, `identity`, or `rotation` and its spread, as in `rotation 0.1`; for
    `lee` its other reading, `direct`; for `orthogonal` the gain; for `random` the standard deviation.
    """
    precision: str = "float32"
    experiment: str = "train"
    protocol: int = PROTOCOL

    def __post_init__(self) -> None:
        if isinstance(self.width, list):  # as JSON hands it back
            object.__setattr__(self, "width", tuple(self.width))
        for name in ("rate", "alpha"):  # 2 and 2.0 are one cell
            if isinstance(getattr(self, name), numbers.Real):
                object.__setattr__(self, name, float(getattr(self, name)))
        for name, valid in (
            ("scheme", SCHEMES),
            ("activation", ACTIVATIONS),
            ("optimizer", OPTIMIZERS),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in valid:
                raise unknown(name, getattr(self, name), valid)
        widths = self.width if isinstance(self.width, tuple) else (self.width,)
        _positive("depth", self.depth)
        if self.depth > MOST_DEPTH:
            raise StiefelError(f"depth={self.depth} is deeper than the laboratory goes; give at most {MOST_DEPTH}.")
        if self.rate is None:
            object.__setattr__(self, "rate", 1e-3 / math.sqrt(self.depth))
        for width in widths:
            _positive("width", width)
        _positive("epochs", self.epochs)
        for name in ("batch", "shots"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        if isinstance(self.width, tuple) and len(self.width) != self.depth:
            raise StiefelError(f"width={self.width} names {len(self.width)} layers, but depth={self.depth}; name each.")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise StiefelError(f"seed={self.seed!r} is not a whole number ≥ 0.")
        if not isinstance(self.rate, float) or not 0 < self.rate < math.inf:
            raise StiefelError(f"rate={self.rate!r} is not a learning rate; give a positive number.")
        if self.alpha is not None and not (isinstance(self.alpha, float) and math.isfinite(self.alpha)):
            raise StiefelError(f"alpha={self.alpha!r} is not finite; the paper's values are -2, 0, 2 and 50.")
        if self.scheme == "lee" and self.variant not in (None, "direct"):
            raise StiefelError(f"variant={self.variant!r} is not known for lee; leave it out or give 'direct'.")
        if self.scheme in ("he", "xavier") and self.variant is not None:
            raise StiefelError(f"variant={self.variant!r}: {self.scheme} has one form only; leave it out.")
        if self.scheme == "stiefel" and self.variant is not None:
            member(self.variant)
        if self.scheme in ("random", "orthogonal") and self.variant is not None and not _is_positive(self.variant):
            what = "a standard deviation" if self.scheme == "random" else "a gain"
            raise StiefelError(f"variant={self.variant!r} is not {what} for {self.scheme}; give one like '0.1'.")

    @property
    def hidden(self) -> tuple[int, ...]:
        """The units of each hidden layer."""
        return self.width if isinstance(self.width, tuple) else (self.width,) * self.depth

    @property
    def key(self) -> str:
        """The identity as text: equal for equal cells, in every process."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Cell:
        """The cell of a record; fields that are not a cell's are passed over."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StiefelError(f"{name}={value!r} is not a whole number ≥ 1.")


def member(variant: str | None) -> tuple[str, float]:
    """Which member of the set a variant of `stiefel` names, and the spread of a rotation."""
    if variant is None:
        return "uniform", 0.0
    name, *rest = variant.split(" ") if isinstance(variant, str) else ("",)
    if name in ("permutation", "identity") and not rest:
        return name, 0.0
    if name == "rotation" and len(rest) == 1 and _is_positive(rest[0]):
        return name, float(rest[0])
    raise StiefelError(
        f"variant={variant!r} is not a member that stiefel knows; give 'permutation', 'identity' or 'rotation 0.1'."
    )


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except (TypeError, ValueError):
        return False


def initializations(text: str) -> list[str]:
    """Schemes and members of the set, comma-separated; `all` stands for the schemes.

    >>> initializations("stiefel, permutation")
    ['stiefel', 'permutation']
    """
    names = list(SCHEMES) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    known = (*SCHEMES, *VARIANTS)
    if not names:
        raise unknown("scheme", text, known)
    for name in names:
        if name not in known:
            raise unknown("scheme", name, known)
    return list(dict.fromkeys(names))


def initialization(record: Mapping[str, Any]) -> str:
    """What a record's network was initialized with, by name: a member of the set, or the scheme."""
    return record["variant"] if record["scheme"] == "stiefel" and record["variant"] else record["scheme"]


def stack_key(cell: Cell) -> tuple:
    """Cells with the same key can be trained as one stack, provided their data have the same shape."""
    return cell.hidden, cell.activation, cell.epochs, cell.batch, cell.optimizer, cell.precision, cell.shots


def digest(cells: Iterable[Cell]) -> str:
    """A short name for a set of cells, whatever their order."""
    return hashlib.blake2b("\n".join(sorted(cell.key for cell in cells)).encode(), digest_size=8).hexdigest()


def split_evenly(cells: Sequence[Cell], most: int) -> list[list[Cell]]:
    """`cells` in as few parts as fit `most` each, of sizes that differ by at most one."""
    parts = math.ceil(len(cells) / most)
    edges = [round(i * len(cells) / parts) for i in range(parts + 1)]
    return [list(cells[a:b]) for a, b in itertools.pairwise(edges)]
