"""Text tables, for objects that print themselves."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

Line = TypeVar("Line")

WIDTH = 100
SHOWN = 24  # a longer table prints the first and last 12 rows


def folded(lines: Iterable[Line], key: Callable[[Line], tuple[str, Hashable]]) -> list[tuple[str, list[Line]]]:
    """Lines whose names differ in numbers only and that agree in the rest of their key, under one: "0…11.fc (12)"."""
    groups: dict[Hashable, list[Line]] = {}
    for line in lines:
        name, rest = key(line)
        groups.setdefault((re.sub(r"\d+", "*", name), rest), []).append(line)
    names = {each: [key(line)[0] for line in group] for each, group in groups.items()}
    count = {each: f" ({len(group)})" if len(group) > 1 else "" for each, group in groups.items()}
    return [(span(names[each][0], names[each][-1]) + count[each], group) for each, group in groups.items()]


def ending(name: str) -> str:
    """The end of a parameter's name that says what it is: "*.fc1.weight", "*.weight" of a numbered layer."""
    *_, before, last = ("", *name.split("."))
    return f"*.{last}" if not before or before.isdigit() else f"*.{before}.{last}"


def span(first: str, last: str) -> str:
    """Two texts that differ in numbers only, as one: "0…11.fc"."""
    both = zip(*(re.split(r"(\d+)", text) for text in (first, last)))
    return "".join(one if one == other else f"{one}…{other}" for one, other in both)


def beside(names: Iterable[str], others: Sequence[Sequence[str]]) -> list[str]:
    """Names as the first column of a table of `WIDTH`: of long ones the end, in what room the other columns leave."""
    room = max(24, WIDTH - sum(max(map(len, column)) + 2 for column in others))
    return [name if len(name) <= room else f"…{name[1 - room :]}" for name in names]


def below(table: Iterable[str], title: str) -> list[str]:
    """The lines of a table, with what does not fit of the last column, which has that title, below its line."""
    lines: list[str] = []
    at = 0
    for line in table:
        at = at or line.rindex(title)
        if len(line) <= WIDTH:
            lines.append(line)
            continue
        rest = textwrap.wrap(line[at:], WIDTH, initial_indent="    ", subsequent_indent="    ")
        lines += [line[:at].rstrip(), *(rest if lines else [])]
    return lines


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | None = None) -> Iterable[str]:
    """The lines of a table: the first `left` columns (all, if None) left-aligned, the others right-aligned."""
    half = SHOWN // 2
    kept = rows if left is None or len(rows) <= SHOWN else [*rows[:half], ["…"] * len(header), *rows[-half:]]
    sizes = [max(map(len, column)) for column in zip(header, *kept)]
    for line in (header, *kept):
        cells = (
            cell.ljust(size) if left is None or place < left else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(line, sizes))
        )
        yield "  ".join(cells).rstrip()


def table(
    header: Sequence[str], groups: Sequence[tuple[str, list[Any]]], cells: Callable[[list[Any]], Sequence[str]]
) -> list[str]:
    """The lines of a table of rows with names that are `folded`, and `cells` of each group."""
    rest = [cells(rows) for _, rows in groups]
    names = (name if len(rows) > 1 else rows[0].name for name, rows in groups)
    first = beside(names, [*zip(header[1:], *rest)][:-1])
    return below(columns(header, [(name, *row) for name, row in zip(first, rest)]), header[-1])
