"""Cells: the identity of one trained network, and how cells are put together into stacks."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from ..._errors import StiefelError, unknown
from ...schemes import get
from ...theory._moments import ActivationName, resolve

OptimizerName = Literal["adam", "sgd"]
PrecisionName = Literal["float32", "tf32"]
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)
MOST_DEPTH = 100_000
"""Ten times the deepest network that we know to train."""
PROTOCOL = 1
"""Raised whenever a change to the code changes what a cell's outcome is beyond rounding."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything that decides the outcome of one training: a plain network d → hidden … hidden → classes.

    Every layer, first and last too, is drawn by the scheme; biases start at zero.
    """

    dataset: str
    scheme: Any = "stiefel"
    """A `Scheme`; may be given by its name."""
    depth: int = 10
    """Hidden layers."""
    width: int | tuple[int, ...] = 64
    """Units of every hidden layer, or the units of each."""
    activation: ActivationName = "relu"
    seed: int = 0
    """Random seed for the weights, the order of the data, the split and the few shots."""
    epochs: int = 20
    """Passes over the training data; steps, when the data are one batch."""
    batch: int | None = 256
    """Rows of a mini-batch; None trains on all rows at once."""
    rate: Any = None
    """Learning rate; 0.001/√depth, the paper's, if left out. Deep networks need one that small."""
    optimizer: OptimizerName = "adam"
    shots: int | None = None
    """Training images per class, drawn anew for each seed; None for all."""
    alpha: float | None = None
    """Shift of the standardized features of tabular data."""
    precision: PrecisionName = "float32"
    protocol: int = PROTOCOL

    def __post_init__(self) -> None:
        def settle(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        settle("scheme", get(self.scheme))
        if isinstance(self.width, list):  # as JSON hands it back
            settle("width", tuple(self.width))
        if isinstance(self.width, tuple) and len(self.width) == 1:  # (5,) and 5 are one cell
            settle("width", self.width[0])
        for name in ("rate", "alpha"):  # 2 and 2.0 are one cell
            if isinstance(getattr(self, name), numbers.Real):
                settle(name, float(getattr(self, name)))
        resolve(self.activation, {})
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        _positive("depth", self.depth)
        if self.depth > MOST_DEPTH:
            raise StiefelError(f"depth={self.depth} is deeper than the laboratory goes; give at most {MOST_DEPTH}.")
        if self.rate is None:
            settle("rate", 1e-3 / math.sqrt(self.depth))
        for width in self.width if isinstance(self.width, tuple) else (self.width,):
            _positive("width", width)
        if isinstance(self.width, tuple) and len(self.width) != self.depth:
            raise StiefelError(f"width={self.width} names {len(self.width)} layers, but depth={self.depth}; name each.")
        _positive("epochs", self.epochs)
        for name in ("batch", "shots"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        if not isinstance(self.seed, int) or self.seed < 0:
            raise StiefelError(f"seed={self.seed!r} is not a whole number ≥ 0.")
        if not isinstance(self.rate, float) or not 0 < self.rate < math.inf:
            raise StiefelError(f"rate={self.rate!r} is not a learning rate; give a positive number.")
        if self.alpha is not None and not (isinstance(self.alpha, float) and math.isfinite(self.alpha)):
            raise StiefelError(f"alpha={self.alpha!r} is not finite; the paper's values are -2, 0, 2 and 50.")

    @property
    def hidden(self) -> tuple[int, ...]:
        """The units of each hidden layer."""
        return self.width if isinstance(self.width, tuple) else (self.width,) * self.depth

    @property
    def times(self) -> float:
        """The learning rate in units of the paper's, 0.001/√depth."""
        return round(self.rate * 1e3 * math.sqrt(self.depth), 3)

    @property
    def setting(self) -> Cell:
        """The cell with seed 0: what all seeds of one setting share."""
        return self if self.seed == 0 else replace(self, seed=0)

    def identity(self) -> dict[str, Any]:
        """The fields as JSON can say them; `from_dict` gives the cell back."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
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
        """The cell of a record, of old ones too; fields that are not a cell's are passed over."""
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        variant = values.get("variant")  # the scheme's parameter, in records of version 0.1
        if variant is not None:
            known["scheme"] = variant if values["scheme"] == "stiefel" else f"{values['scheme']} {variant}"
        return cls(**known)


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StiefelError(f"{name}={value!r} is not a whole number ≥ 1.")


def stack_key(cell: Cell) -> tuple[Any, ...]:
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
