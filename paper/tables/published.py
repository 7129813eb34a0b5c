"""The published numbers: tables 1, 2, 3 and 5 and figure 1's correlation, from one data file, `paper.csv`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from stiefel_init.core.errors import unknown
from stiefel_init.lab.report.tables import Table

from .protocol import SCHEMES

TableName = Literal["table1", "table2", "table3", "table5", "figure1"]
TABLES: tuple[TableName, ...] = get_args(TableName)
TITLES = {
    "table1": "Test accuracy (%) by depth",
    "table2": "Test accuracy (%) by activation, at depths 50 and 100",
    "table3": "Few-shot test accuracy (%), mean ± standard deviation of 50 repeats",
    "table5": "Tabular data: test accuracy (%) (diabetes: root mean squared error) at depths 50 and 100",
    "figure1": "Pearson correlation of alignment and one-shot accuracy over 5,000 orthogonal matrices",
}


@dataclass(frozen=True, slots=True)
class Published:
    """One published number; fields that do not apply are None."""

    table: str
    dataset: str
    scheme: str | None
    depth: int
    activation: str
    shots: int | None
    alpha: float | None
    value: float
    std: float | None

    def to_dict(self) -> dict[str, Any]:
        """The record, with the keys of the data file."""
        return asdict(self)


@cache
def published(table: str | None = None) -> tuple[Published, ...]:
    """The published numbers of one table, or of all.

    >>> len(published()), published("figure1")[0].value
    (673, 0.8178)
    """
    if table is None:
        return tuple(number for name in TABLES for number in published(name))
    if table not in TABLES:
        raise unknown("table", table, TABLES)
    text = files(__package__).joinpath("paper.csv").read_text(encoding="utf-8")
    return tuple(_parse(row) for row in csv.DictReader(text.splitlines()) if row["table"] == table)


def _parse(row: dict[str, str]) -> Published:
    def number(name: str, kind: type) -> Any:
        return kind(row[name]) if row[name] else None

    return Published(
        row["table"], row["dataset"], row["scheme"] or None, int(row["depth"]), row["activation"],
        number("shots", int), number("alpha", float), float(row["value"]), number("std", float),
    )  # fmt: skip


def layout(table: str) -> Table:
    """A table as the paper has it."""
    numbers = published(table)
    title = f"{table}: {TITLES[table]}"
    if table == "figure1":
        return Table(title, ["r"], [[f"{numbers[0].value:.4f}"]])
    names, row = _LAYOUT[table]
    if table in ("table1", "table3"):
        return Table(title, [*names, *SCHEMES], _rows(numbers, row, lambda number: number.scheme))
    columns = [f"{scheme} {depth}" for scheme in SCHEMES for depth in (50, 100)]
    return Table(title, [*names, *columns], _rows(numbers, row, lambda number: f"{number.scheme} {number.depth}"))


_LAYOUT: dict[str, tuple[list[str], Callable[[Published], tuple[str, ...]]]] = {
    "table1": (["dataset", "depth"], lambda number: (number.dataset, str(number.depth))),
    "table2": (["dataset", "activation"], lambda number: (number.dataset, number.activation)),
    "table3": (["dataset", "shots", "depth"], lambda number: (number.dataset, str(number.shots), str(number.depth))),
    "table5": (["dataset", "α"], lambda number: (number.dataset, f"{number.alpha:g}")),
}


def _rows(numbers: Sequence[Published], row: Any, column: Any) -> list[list[str]]:
    table: dict[tuple[str, ...], dict[str, str]] = {}
    for number in numbers:
        text = f"{number.value:.2f}" + (f" ± {number.std:.2f}" if number.std is not None else "")
        table.setdefault(row(number), {})[column(number)] = text
    return [[*key, *cells.values()] for key, cells in table.items()]
