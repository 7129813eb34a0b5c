"""`audit`: what the parameters of a model hold, found out from their values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import StiefelError
from ...core.text import columns
from ...recipe.layers import Leave, Matrices
from ..initialize.layers import rule
from ..initialize.parameters import Place, is_uninitialized, places_of
from ..initialize.sharded import is_sharded
from ._accidents import equal_parameters, equal_units, never_initialized
from ._entry_laws import FALSE_ALARM, LEAST, entry_laws
from ._matrix_laws import matrix_law

UNKNOWN = "no law known here"


class Row(NamedTuple):
    """One parameter."""

    name: str
    shape: tuple[int, ...]
    law: str
    """What its values look like: `"member of the set"`, `"uniform ±0.125 (torch's own)"`, `"zeros"` …"""
    alarm: str = ""
    """What looks wrong with it."""


@dataclass(frozen=True, repr=False)
class Audit:
    """What each parameter holds; prints as a table with a sentence below."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Row:
        """The row of the parameter `name`."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    @property
    def alarms(self) -> tuple[Row, ...]:
        """The parameters with which something looks wrong."""
        return tuple(row for row in self.rows if row.alarm)

    def __str__(self) -> str:
        table = columns(("parameter", "shape", "law", "alarm"), [tuple(map(str, row)) for row in self.rows])
        count = len(self.alarms)
        verdict = f"{count} of {len(self.rows)} parameters look wrong." if count else "Nothing looks wrong."
        return "\n".join([*table, "", f"{verdict} A right law is denied with probability {FALSE_ALARM:g} at most."])

    def __repr__(self) -> str:
        return f"Audit of {len(self.rows)} parameters, {len(self.alarms)} alarms; print it for the table"


def audit(model: nn.Module) -> Audit:
    """Find out from its values which law each parameter holds, and which look as if nobody had initialized them.

    Laws of independent entries are tested by Kolmogorov and Smirnov's distance, laws of matrices up to rounding. A
    parameter raises an alarm if it has entries that are not finite, huge or subnormal, or is a weight of zeros; if it
    has the values of another; and if units of a layer are equal, which stay equal in training.

    Args:
        model: Any module with values; sharded parameters are gathered.

    Returns:
        A row for each parameter; it prints as a table.

    Raises:
        StiefelError: for something that is no module, or parameters without values.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    >>> _ = nn.init.eye_(model[0].weight), nn.init.zeros_(model[2].weight)
    >>> _ = nn.init.ones_(model[0].bias), nn.init.zeros_(model[2].bias)
    >>> print(audit(model))
    parameter  shape   law       alarm
    0.weight   (4, 4)  identity
    0.bias     (4,)    ones
    2.weight   (4, 4)  zeros     all zeros: never initialized?
    2.bias     (4,)    zeros
    <BLANKLINE>
    1 of 4 parameters look wrong. A right law is denied with probability 0.0001 at most.
    """
    if not isinstance(model, nn.Module):
        raise StiefelError(f"model is a {type(model).__name__}; give a torch.nn.Module.")
    places: dict[Any, Place] = {}
    for place in places_of(list(model.named_modules(remove_duplicate=False))):
        places.setdefault(place.key, place)  # tied weights count once
    values = {place.name: _values(place) for place in places.values()}
    twins = equal_parameters(values)
    rows = [_row(place, values, twins.get(place.name)) for place in places.values()]
    return Audit(tuple(rows))


def _values(place: Place) -> np.ndarray:
    tensor: Any = place.tensor.detach()
    if is_uninitialized(place.tensor) or tensor.is_meta:
        raise StiefelError(f"{place.name} has no values yet; initialize the model first.")
    whole: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
    return whole.cpu().to(torch.float64).numpy()


def _row(place: Place, values: dict[str, np.ndarray], twin: str | None) -> Row:
    value = values[place.name]
    kind = torch.finfo(place.tensor.dtype)
    held = rule(place.module, place.leaf, place.shape, "delta") if len(place.shape) > 1 else None
    is_weight = isinstance(held, Matrices)
    alarm = never_initialized(value, kind.smallest_normal, is_weight=is_weight)
    if not np.isfinite(value).all():
        return Row(place.name, place.shape, UNKNOWN, alarm)
    law = _law(value, held, kind.eps)
    if not alarm and twin is not None and not law.startswith("identit"):
        alarm = f"equal to {twin}"
    if not alarm and is_weight and isinstance(held, Matrices) and not held.order and len(value) > 1:
        bias = values.get(place.name.removesuffix(place.leaf) + "bias")
        if repeated := equal_units(value, bias):
            alarm = f"{repeated} of {len(value)} units repeat another"
    return Row(place.name, place.shape, law, alarm)


def _law(value: np.ndarray, held: Any, eps: float) -> str:
    if not value.size:
        return "empty"
    if value.min() == value.max():
        return {0.0: "zeros", 1.0: "ones"}.get(float(value.min()), f"all {value.min():.4g}")
    matrices = held.otherwise if isinstance(held, Leave) else held
    fans = (math.prod(value.shape[1:]) or 1, value.shape[0])
    if isinstance(matrices, Matrices) and value.ndim > 1:
        receptive = math.prod(value.shape[2:])
        fans = (matrices.n * (receptive if matrices.tap else 1), matrices.m * (receptive if matrices.tap else 1))
        if exact := _matrix_law(value, matrices, eps):
            return exact
    fits = entry_laws(value, *fans)
    if not fits:
        return UNKNOWN if value.size >= LEAST else "too few entries to tell"
    return " or ".join(fit.text for fit in fits)


def _matrix_law(value: np.ndarray, matrices: Matrices, eps: float) -> str | None:
    """The law of the matrices that a weight holds; of a kernel, at its centre or as a whole."""
    if matrices.tap:
        around = value.copy()
        matrices.places(around)[...] = 0
        if around.any():
            return matrix_law(value.reshape(1, len(value), -1), eps) if not matrices.order else None
    blocks = matrices.places(value)
    if matrices.order:
        blocks = blocks.transpose(0, *(1 + axis for axis in matrices.order))
    found = matrix_law(np.ascontiguousarray(blocks).reshape(matrices.count, matrices.m, matrices.n), eps)
    return f"{found} at the centre" if found and matrices.tap else found
