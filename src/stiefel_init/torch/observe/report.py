"""How `diagnose` and `watch` print: sentences, and a table in which layers that are alike are one line; `Rows`."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...core.text import WIDTH, beside, columns, folded
from . import frame


class Rows:
    """Mixed into results that are tables: their first field holds the rows."""

    @property
    def _rows(self) -> tuple[Any, ...]:
        return tuple(next(iter(vars(self).values())))

    def __len__(self) -> int:
        return len(self._rows)

    def records(self) -> list[dict[str, Any]]:
        """The rows as dicts.

        Returns:
            One dict for each row, with its fields.
        """
        return [asdict(row) for row in self._rows]

    @property
    def table(self) -> Any:
        """The rows as a pandas DataFrame; where pandas is not installed, `records()`."""
        return frame(self.records())

    def _printed(self, records: Sequence[Mapping[str, Any]], **titles: str) -> str:
        """The records as a table, with titles for columns that are not called as their field."""
        header = [titles.get(name, name) for name in records[0]]
        return "\n".join(columns(header, [[text(value) for value in record.values()] for record in records], left=1))


def text(value: Any, digits: int = 3) -> str:
    """A number in a printed table."""
    return "—" if value is None or value != value else f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def report(sentences: Iterable[str], rows: Sequence[Any], words: Mapping[str, str], numbers: Mapping[str, str]) -> str:
    """The sentences, and a table of the rows: as many of the `numbers`, titles by attribute, as fit the width.

    Layers whose names differ by numbers only, and that agree in all `words`, are one line, from the first to the last.
    """
    groups = folded(rows, lambda row: (row.label, tuple(text(getattr(row, name)) for name in words)))
    cells = [[title, *(text(getattr(group[0], name)) for _, group in groups)] for name, title in words.items()]
    cells.insert(0, ["layer", *beside((name for name, _ in groups), cells)])
    for name, title in numbers.items():
        column = [title, *(_change([getattr(row, name) for row in group]) for _, group in groups)]
        used = sum(max(map(len, each)) + 2 for each in cells)
        if any(cell != "—" for cell in column[1:]) and used + max(map(len, column)) <= WIDTH:
            cells.append(column)
    header, *lines = zip(*cells)
    wrapped = [textwrap.fill(each, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
               for each in sentences]  # fmt: skip
    return "\n".join([*wrapped, "", *columns(header, lines, left=len(words) + 1)])


def in_html(printed: str, healthy: bool) -> str:
    """The report for a notebook."""
    color = "#2e7d32" if healthy else "#b3261e"
    return f'<pre style="border-left:4px solid {color};padding-left:0.8em">{html.escape(printed)}</pre>'


def _change(values: Sequence[Any]) -> str:
    """The first and the last of the numbers."""
    known = [value for value in values if text(value) != "—"]
    if len(known) < 2 or text(known[0], 2) == text(known[-1], 2):
        return text(known[0] if known else None)
    return f"{text(known[0], 2)} → {text(known[-1], 2)}"
