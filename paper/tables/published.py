"""The published numbers: tables 1, 2, 3 and 5 and figure 1's correlation, from one data file, `paper.csv`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from stiefel_init.core.errors import unknown

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
