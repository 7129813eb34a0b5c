"""What initializing a model does to each parameter, as a table: `Plan`, and its rows in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..core.text import below, beside, columns, ending, folded, span

# By module: the scheme `recipe` is one of the package, and is made of what is here.
from ..schemes.base import Scheme
from ..schemes.entrywise import Random
from ..schemes.on_set import Blend
from ..schemes.transformer import MimeticFactor
from .layers import Constant, Matrices, Shape
from .rules import Draw

EMBEDDING = Random(1.0)  # as torch draws its own
CONSTANT = "zeros", "ones"
MOST, LINES = 14, 25
"""Groups of a plan beyond which layers of one scheme are one line whatever their sizes; and lines beyond which those of
one name are, wherever they stand."""
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
    """The rows of all parameters, in the model's order; prints as a table, in which layers that are alike are one line.

    `pandas.DataFrame(plan.to_dict())` makes a data frame of it.

    >>> print(Plan((Row("0.weight", (2, 3), "stiefel 2×3", "rows"), Row("0.bias", (2,), "zeros"))))
    1 of 2 parameters drawn, 1 zeros or ones.
    parameter  shape   what is done  orthonormal  why
    0.weight   (2, 3)  stiefel 2×3   rows
    0.bias     (2,)    zeros         —
    """

    rows: tuple[Row, ...]
    note: str = ""
    """The line to write next, for a plain deep network: its optimizer, by `param_groups`."""

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
        alone = sum(row.action == "left alone" for row in self.rows)
        constant = sum(row.action.startswith(("zeros", "ones", "all ")) for row in self.rows)
        told = [f"{len(self) - alone - constant:,} of {len(self):,} parameters drawn"]
        told += [f"{constant:,} zeros or ones"] * (constant > 0) + [f"{alone:,} left alone"] * (alone > 0)
        first, note = f"{', '.join(told)}.", ["", self.note] if self.note else []
        groups = folded(self.rows, _alike)
        lines = _table(groups if len(groups) <= MOST else folded(self.rows, _of_a_kind))
        room = LINES - 1 - len(note)
        if len(lines) > room:
            lines = _table(folded(self.rows, _by_name))
        if len(lines) > room:
            half = (room - 1) // 2
            lines = [*lines[:half], "…    to_dict() has every parameter", *lines[-half:]]
        return "\n".join([first, *lines, *note])

    def __repr__(self) -> str:
        return f"Plan of {len(self)} parameters; print it for the table"


def _table(groups: list[tuple[str, list[Row]]]) -> list[str]:
    """Its lines; a reason that does not fit stands below its row."""
    header = "parameter", "shape", "what is done", "orthonormal", "why"
    cells = [_cells(rows) for _, rows in groups]
    names = [name if len(rows) > 1 else rows[0].name for name, rows in groups]
    names = beside(names, [*zip(header[1:], *cells)][:-1])
    return below(columns(header, [(name, *rest) for name, rest in zip(names, cells)]), "why")


def _cells(rows: list[Row]) -> tuple[str, str, str, str]:
    """Shape, action, orthonormal side and reason of rows that are one line; of sizes that differ, nothing."""
    shapes, actions, sides = (list(dict.fromkeys(column)) for column in list(zip(*rows))[1:4])
    action, to, other = actions[0].partition(" to ")  # what a weight is tied to is long, and stands with the reasons
    first, last = rows[0].reason, rows[-1].reason
    why = span(first, last) if re.sub(r"\d+", "*", first) == re.sub(r"\d+", "*", last) else first
    reason = " ".join(filter(None, (to.strip(), other, why)))
    action = action if len(actions) == 1 else f"{_scheme(rows[0])}, {len(actions)} kinds"
    return str(shapes[0]) if len(shapes) == 1 else "", action, sides[0] if len(sides) == 1 else "", reason


def _scheme(row: Row) -> str:
    return re.sub(r" [\d+].*", "", row.action)


def _of_a_kind(row: Row) -> tuple[str, tuple[object, ...]]:
    """Coarser than `_alike`, for models of many shapes: rows of one scheme, whatever their sizes."""
    return _alike(row) if row.action in CONSTANT else (row.name, (_scheme(row), re.sub(r"\d+", "*", row.reason)))


def _by_name(row: Row) -> tuple[str, tuple[object, ...]]:
    """Coarser still, for models of many parts: rows of one scheme by the end of their names, others by their reason."""
    reason = re.sub(r"\S*\.\S*", "…", row.reason)
    if row.orthonormal == NEITHER:
        return f"*.{row.name.rpartition('.')[2]}", (row.action.partition(" to ")[0], reason)
    return ending(row.name), (ending(row.name), _scheme(row), re.sub(r"\d+", "*", reason))


def _alike(row: Row) -> tuple[str, tuple[object, ...]]:
    """Rows with the same key are one line: constants by the end of their names, others by all but their numbers."""
    if row.action in CONSTANT and not row.reason:
        return f"*.{row.name.rpartition('.')[2]}", (row.action,)
    return row.name, (*row[1:-1], re.sub(r"\d+", "*", row.reason))


def row_of(name: str, shape: Shape, draws: list[Draw]) -> Row:
    """One row of the plan for all that is drawn into a weight."""
    first = draws[0]
    if len(draws) == 1:
        return Row(name, shape, *_described(first.what, first.scheme), first.reason)
    filled = [(draw.scheme, draw.what.m, draw.what.n) for draw in draws if isinstance(draw.what, Matrices)]
    kinds = [
        (_label(scheme), f"{count} of " if count > 1 else "", f"{m}×{n}")
        for (scheme, m, n), count in Counter(filled).items()
    ]
    side = NEITHER if any(_neither(scheme) for scheme, _, _ in filled) else "both"
    text = ", ".join(f"{label} {many}{size}" for label, many, size in kinds)
    scale = _times(first.what) if isinstance(first.what, Matrices) else ""
    return Row(name, shape, text + scale, side, first.reason)


@lru_cache
def _described(chosen: Matrices | Constant, scheme: Scheme) -> tuple[str, str]:
    """What is done and which side is orthonormal."""
    if isinstance(chosen, Constant):
        if chosen.ones is not None:
            return "zeros, the forget gate ones", NEITHER
        return {0.0: "zeros", 1.0: "ones"}.get(chosen.value, f"all {chosen.value:g}"), NEITHER
    if scheme is EMBEDDING:
        return "N(0, 1)", NEITHER
    m, n = chosen.m, chosen.n
    many = f"{chosen.count} of " if chosen.count > 1 else ""
    centre = " at the centre" if chosen.tap else ""
    side = NEITHER if _neither(scheme) else "rows" if m < n else "columns" if m > n else "both"
    return f"{_label(scheme.resolve(m, n))} {many}{m}×{n}{centre}{_times(chosen)}", side


def _times(filled: Matrices) -> str:
    return "" if filled.scale == 1 else f" × {filled.scale:.3g}"


def _neither(scheme: Scheme) -> bool:
    return scheme.entrywise or isinstance(scheme, Blend | MimeticFactor)


def _label(scheme: Scheme) -> str:
    """The scheme's text with numbers to three digits; blends and factors in words."""
    if isinstance(scheme, MimeticFactor):
        return f"mimetic {scheme.projection}"
    if isinstance(scheme, Blend):
        return "patches" if scheme.spread >= 1 else f"permutation + {scheme.spread:.3g} patches"
    return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3g}", str(scheme))
