"""One self-contained HTML page of pictures, tables and sentences."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from .records import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 70rem;
       margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.lead { font-size: 1.08rem; max-width: 50rem; } p.note, footer { color: #57606a; font-size: .9rem; }
img { max-width: 100%; height: auto; } figure { margin: 0; overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } div.table { overflow-x: auto; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid #d8dee4; text-align: right; }
th:first-child, td:first-child, .words { text-align: left; }
thead th { border-bottom: 2px solid #1b1f24; } td.best { font-weight: 700; }
footer { margin-top: 3rem; border-top: 1px solid #d8dee4; padding-top: .8rem; }
"""


class Page:
    """A page that is built from top to bottom and written in one go."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]

    def text(self, text: str, kind: str = "lead") -> None:
        """A paragraph."""
        self._parts.append(f'<p class="{kind}">{html.escape(text)}</p>')

    def heading(self, text: str) -> None:
        """A section's heading."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], best: Callable[..., Any] | None = max
    ) -> None:
        """A table; the best number of each row, the largest unless `best` says otherwise, is set in bold."""
        columns = [[row[i] for row in rows] for i in range(len(header))]
        words = [max(map(len, c), default=0) > 40 or all(_leading_number(x) is None for x in c) for c in columns]
        kinds = ["words" if left else "" for left in words]
        head = "".join(f'<th class="{kind}">{html.escape(name)}</th>' for kind, name in zip(kinds, header))
        body = []
        for row in rows:
            numbers = [_leading_number(cell) for cell in row]
            known = [n for n in numbers[1:] if n is not None]
            top = best(known) if best and known else None
            cells = []
            for place, (cell, number, kind) in enumerate(zip(row, numbers, kinds)):
                marked = "best" if place and number is not None and number == top else kind
                cells.append(f'<td class="{marked}">{_inline(cell)}</td>')
            body.append(f"<tr>{''.join(cells)}</tr>")
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        self._parts.append(f'<div class="table">{table}</div>')

    def picture(self, figure: Figure, description: str) -> None:
        """A picture, embedded in the page."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150)
        self._image(buffer.getvalue(), description)

    def _image(self, png: bytes, description: str) -> None:
        data = base64.b64encode(png).decode()
        text = html.escape(description, quote=True)
        self._parts.append(f'<figure><img alt="{text}" src="data:image/png;base64,{data}"></figure>')

    def markdown(self, text: str, folder: Path) -> None:
        """What the report writes: headings, paragraphs, tables and pictures that lie in `folder`."""
        for block in text.strip().split("\n\n"):
            lines = block.split("\n")
            if block.startswith("## "):
                self.heading(block[3:])
            elif block.startswith("|"):
                cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
                self.table(cells[0], cells[2:], best=None)
            elif picture := re.fullmatch(r"!\[(.*)\]\((.*)\)", block):
                self._image((folder / picture[2]).read_bytes(), picture[1])
            elif not block.startswith("# "):
                self._parts.append(f"<p>{_inline(' '.join(lines))}</p>")

    def write(self, path: Path) -> Path:
        """Write the page."""
        footer = f"<footer>Made by stiefel-init {__version__}. This page needs nothing but itself.</footer>"
        text = (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(self._title)}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
            f"<body>\n{chr(10).join(self._parts)}\n{footer}\n</body></html>\n"
        )
        write_whole(path, text.encode())
        return path


def _inline(text: str) -> str:
    """Bold, code and links of Markdown as HTML; links to other pages of the docs become plain text."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", html.escape(text))
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


def _leading_number(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
