"""What initializing a model does to each parameter, as a table: `Plan`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..core.text import columns

NEITHER = "—"


class Row(NamedTuple):
    """One parameter."""

    name: str
    shape: tuple[int, ...]
    action: str
    """What is done: `"stiefel 64×784"`, `"zeros"`, `"ones"`, `"left alone"` …"""
    orthonormal: str = NEITHER
    """Which side of its matrices is orthonormal (up to the scale that `action` names): `"rows"`, `"columns"`, `"both"`
    or `"—"`."""
    reason: str = ""
    """Why it is left alone, or why something other than its layer's rule is done."""


@dataclass(frozen=True, repr=False, slots=True)
class Plan:
    """The rows of all parameters, in the model's order; prints as a table.

    `pandas.DataFrame(plan.to_dict())` makes a data frame of it.

    >>> print(Plan((Row("0.weight", (2, 3), "stiefel 2×3", "rows"), Row("0.bias", (2,), "zeros"))))
    parameter  shape   what is done  orthonormal  why
    0.weight   (2, 3)  stiefel 2×3   rows
    0.bias     (2,)    zeros         —
    """

    rows: tuple[Row, ...]
    note: str = ""
    """What published records advise for a network of this kind, if they know it."""

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Row:
        """The row of the parameter `name`."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, list[object]]:
        """One list for each column."""
        return {field: [getattr(row, field) for row in self.rows] for field in Row._fields}

    def __str__(self) -> str:
        header = "parameter", "shape", "what is done", "orthonormal", "why"
        table = columns(header, [tuple(map(str, row)) for row in self.rows])
        return "\n".join([*table, "", self.note] if self.note else table)

    def __repr__(self) -> str:
        return f"Plan of {len(self)} parameters; print it for the table"
