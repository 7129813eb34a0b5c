"""What initializing a model does to each parameter, as a table: `Plan`, and its rows in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..core.text import columns
from ..schemes import Blend, MimeticFactor, Random, Scheme
from .layers import Constant, Matrices, Shape
from .rules import Draw

EMBEDDING = Random(1.0)  # as torch draws its own
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


def row_of(name: str, shape: Shape, draws: list[Draw]) -> Row:
    """One row of the plan for all that is drawn into a weight."""
    if len(draws) > 1:
        filled = [(draw.scheme, draw.what) for draw in draws if isinstance(draw.what, Matrices)]
        kinds = Counter((scheme, matrices.m, matrices.n) for scheme, matrices in filled)
        counts = {kind: f"{count} of " if count > 1 else "" for kind, count in kinds.items()}
        text = ", ".join(f"{_label(scheme)} {counts[scheme, m, n]}{m}×{n}" for scheme, m, n in kinds)
        side = NEITHER if any(map(_neither, (scheme for scheme, _, _ in kinds))) else "both"
    else:
        text, side = described(draws[0].what, draws[0].scheme)
    return Row(name, shape, text, side, draws[0].reason)


@lru_cache
def described(chosen: Matrices | Constant, scheme: Scheme) -> tuple[str, str]:
    """What is done and which side is orthonormal, for the plan."""
    if isinstance(chosen, Constant):
        if chosen.ones is not None:
            return "zeros, the forget gate ones", NEITHER
        return {0.0: "zeros", 1.0: "ones"}.get(chosen.value, f"all {chosen.value:g}"), NEITHER
    if scheme is EMBEDDING:
        return "N(0, 1)", NEITHER
    m, n = chosen.m, chosen.n
    many = f"{chosen.count} of " if chosen.count > 1 else ""
    centre = " at the centre" if chosen.tap else ""
    scale = (
        "" if chosen.scale == 1 else f" / {1 / chosen.scale:.4g}" if 0 < chosen.scale < 1 else f" × {chosen.scale:.4g}"
    )
    side = NEITHER if _neither(scheme) else "rows" if m < n else "columns" if m > n else "both"
    return f"{_label(scheme.resolve(m, n))} {many}{m}×{n}{centre}{scale}", side


def _neither(scheme: Scheme) -> bool:
    return scheme.entrywise or isinstance(scheme, Blend | MimeticFactor)


def _label(scheme: Scheme) -> str:
    """The scheme's text with numbers to three digits; blends and factors in words."""
    if isinstance(scheme, MimeticFactor):
        return f"mimetic {scheme.projection}"
    if isinstance(scheme, Blend):
        return "patches" if scheme.spread >= 1 else f"permutation + {scheme.spread:.3g} patches"
    return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3g}", str(scheme))
