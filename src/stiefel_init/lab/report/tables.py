"""Tables, one form for the terminal, for Markdown and for HTML pages; and `summary`, the scores of a study in one."""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..train.problem import Metric
    from ..train.record import Record


@dataclass(frozen=True)
class Table:
    """A title, a header, and rows of text.

    >>> table = Table("", ["depth", "he", "lee"], [["10", "97.5", "97.7"]])
    >>> print(*table.marked().markdown(), sep="\\n")
    | depth | he | lee |
    |---|---:|---:|
    | 10 | 97.5 | **97.7** |
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def _is_text(self, column: int) -> bool:
        cells = [row[column] for row in self.rows]
        sentences = any(len(cell) > 40 for cell in cells)
        return column == 0 or sentences or all(_leading_number(cell) is None for cell in cells)

    def markdown(self) -> list[str]:
        """The lines of the table in Markdown, without its title."""
        sides = ["---" if self._is_text(column) else "---:" for column in range(len(self.header))]
        header, *rows = (f"| {' | '.join(cells)} |" for cells in (self.header, *self.rows))
        return [header, f"|{'|'.join(sides)}|", *rows]

    def marked(self, best: Callable[[Iterable[float]], float] = max) -> Table:
        """The table with the best number of each row in bold, the largest, or with `min` the smallest."""
        rows = []
        for row in self.rows:
            numbers = [_leading_number(cell) for cell in row[1:]]
            known = [number for number in numbers if number is not None]
            top = best(known) if known else None
            cells = (f"**{c}**" if n is not None and n == top else c for c, n in zip(row[1:], numbers))
            rows.append([row[0], *cells])
        return replace(self, rows=rows)

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON values: its title, and a dict per row."""
        return {"title": self.title, "rows": [dict(zip(self.header, row)) for row in self.rows]}

    def show(self) -> None:
        """Print it to the terminal, or collect it for `as_json`; in a pipe, lines are as long as they are."""
        if _collected:
            _collected[-1].append(self)
            return
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(header_style="bold", pad_edge=False)
        for index, column in enumerate(self.header):
            text = self._is_text(index)
            table.add_column(Text(column), justify="left" if text else "right", no_wrap=not text or index == 0)
        for row in self.rows:
            table.add_row(*map(Text, row))
        console = Console(width=None if sys.stdout.isatty() else 200)
        if self.title:
            console.print(self.title, style="italic", markup=False, highlight=False)
        console.print(table)


_collected: list[list[Table]] = []


@contextmanager
def as_json(wanted: bool = True) -> Iterator[None]:
    """Tables that are shown meanwhile are collected, and all else goes to stderr; then they are printed as JSON."""
    if not wanted:
        yield
        return
    _collected.append([])
    try:
        with redirect_stdout(sys.stderr):
            yield
        print(json.dumps([table.to_dict() for table in _collected[-1]], ensure_ascii=False, indent=1))
    finally:
        _collected.pop()


def _leading_number(text: str) -> float | None:
    try:
        return float(re.split(r"[ ±(%]", text.strip("*"))[0].strip("*").replace(",", ""))
    except ValueError:
        return None


def wrapped(text: str, indent: str = "") -> list[str]:
    """A paragraph as lines of a page; all but the first are indented.

    >>> wrapped("- one two", "  ")
    ['- one two']
    """
    return textwrap.wrap(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def plain(text: object) -> str:
    """Text from a file as Markdown shows it: no markup, link, picture or cell border of its own.

    >>> plain("![x](y) a|b")
    '!\\\\[x\\\\](y) a\\\\|b'
    """
    line = " ".join(str(text).split())
    return "".join(f"\\{character}" if character in "\\[]|*_`~<>&" else character for character in line)


_SETTINGS = {"activation": "{}", "depth": "depth {}", "shots": "{}-shot", "alpha": "α {:g}"}


def summary(records: Sequence[Record], title: str = "") -> Table:
    """The score of each scheme in each setting, mean ± standard deviation over seeds.

    Of records of one data set: a row per setting, named by what varies (activation, depth, shots, α), a column per
    scheme.

    >>> from stiefel_init.lab import Cell, run
    >>> print(*summary(run([Cell("digits", "lee", 1, epochs=1)], device="cpu")).header)
    depth lee
    """
    schemes = list(dict.fromkeys(record.cell.scheme for record in records))
    names = [name for name in _SETTINGS if name == "depth" or len({getattr(r.cell, name) for r in records}) > 1]
    settings: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        settings.setdefault(tuple(getattr(record.cell, name) for name in names), []).append(record)
    rows = []
    for setting, here in settings.items():
        parts = [_SETTINGS[name].format(value) for name, value in zip(names, setting) if value is not None]
        row = [str(setting[0]) if len(names) == 1 else ", ".join(parts)]
        row += [_cell([record for record in here if record.cell.scheme == scheme]) for scheme in schemes]
        rows.append(row)
    return Table(title, ["depth" if len(names) == 1 else "setting", *map(str, schemes)], rows)


def score_text(score: float | None, metric: Metric) -> str:
    """A score as tables show it: accuracies to a tenth of a percent, errors to four digits.

    >>> from stiefel_init.lab.train.problem import ACCURACY, RMSE
    >>> score_text(97.123, ACCURACY), score_text(1234567.8, RMSE), score_text(0.00123456, RMSE)
    ('97.1', '1,234,568', '0.001235')
    """
    if score is None or not math.isfinite(score):
        return "—"
    if not metric.less_is_better:
        return f"{score:.1f}"
    if score and not 1e-4 <= abs(score) < 1e9:
        return f"{score:.3e}"
    return f"{score:,.{max(0, 3 - math.floor(math.log10(abs(score))))}f}" if score else "0"


def _cell(records: Sequence[Record]) -> str:
    finite = np.array([record.score for record in records if math.isfinite(record.score)])
    lost = sum(record.diverged is not None for record in records)
    text = "—" if not len(finite) else score_text(float(finite.mean()), records[0].metric)
    if len(finite) > 1:
        text += f" ± {score_text(float(finite.std(ddof=1)), records[0].metric)}"
    return text + (f" ({lost} diverged)" if lost else "")
