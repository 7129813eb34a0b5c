"""Self-contained HTML pages from Markdown: sentences, tables, pictures, and charts that chart.js draws in the browser.

A chart is lines in panels, to hover over, zoom into and switch off.
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markdown_it import MarkdownIt

from ... import __version__
from ..files import write_whole
from ..train.record import Record
from .plots import colour, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = Sequence[float] | np.ndarray
_SCRIPT = Path(__file__).with_name("chart.js").read_text(encoding="utf-8")
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Line:
    """A series: points, and the values above and below that a band covers."""

    name: str
    colour: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None


@dataclass(frozen=True)
class Panel:
    """Axes with lines."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Chart:
    """Panels side by side with one legend."""

    label: str  # what it shows, for those who do not see it
    panels: Sequence[Panel]

    def html(self) -> str:
        """The chart as HTML, for a page; numbers to five digits, those that are not finite left out."""
        panels = [
            {
                "title": panel.title, "x": panel.x, "y": panel.y, "logX": panel.log_x, "logY": panel.log_y,
                "dots": panel.dots,
                "lines": [
                    {"name": line.name, "colour": line.colour}
                    | {key: [float(f"{v:.5g}") if math.isfinite(v) else None for v in values]
                       for key in ("x", "y", "low", "high") if (values := getattr(line, key)) is not None}
                    for line in panel.lines
                ],
            }
            for panel in self.panels
        ]  # fmt: skip
        data = json.dumps(panels, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        label = html.escape(self.label)
        return (
            f'<figure class="chart" aria-label="{label}"><script type="application/json">{data}</script>'
            f"<noscript><p>{label}: drawn by a script, which is switched off here; the tables have the numbers.</p>"
            "</noscript></figure>"
        )


def screen_colour(scheme: object) -> str:
    """The colour of a scheme on light and on dark pages."""
    return "currentColor" if colour(scheme) == "#000000" else colour(scheme)


def learning(records: Sequence[Record], label: str) -> Chart:
    """Test score against the epoch: a panel for each depth, a line for each scheme, a band from worst to best seed."""
    panels = []
    for depth in sorted({record.cell.depth for record in records}):
        lines = []
        for scheme in dict.fromkeys(record.cell.scheme for record in records):
            seeds = [r for r in records if (r.cell.depth, r.cell.scheme) == (depth, scheme)]
            if not seeds:
                continue
            scores = np.array([record.test_score for record in seeds], float)
            band = (scores.min(0), scores.max(0)) if len(seeds) > 1 else (None, None)
            lines.append(Line(str(scheme), screen_colour(scheme), seeds[0].tested, scores.mean(0), *band))
        panels.append(Panel(f"depth {depth}", "epoch", label, lines, dots=len(records[0].tested) < 3))
    return Chart(f"{label} against the epoch", panels)


def write_page(path: Path, title: str, text: str, pictures: Mapping[str, Figure | Chart]) -> Path:
    """Write a page of Markdown text, with `pictures` embedded; images that are not among them are dropped."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    charts: list[str] = []
    for token in (child for block in tokens for child in block.children or ()):
        if token.type == "image" and (drawn := pictures.get(str(token.attrs["src"]))) is not None:
            if isinstance(drawn, Chart):
                token.type, token.content = "html_inline", f"<chart {len(charts)}>"
                charts.append(drawn.html())
            else:
                token.attrs["src"] = f"data:image/png;base64,{base64.b64encode(png(drawn, 110)).decode()}"
        elif token.type == "image":
            token.type = "text"
        elif token.type == "link_open" and "://" not in str(token.attrs["href"]):
            token.attrs.pop("href")  # to another page of the docs, which is not here
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    for number, chart in enumerate(charts):
        body = body.replace(f"<p><chart {number}></p>", chart)
    name = html.escape(title)
    script = f"<script>{_SCRIPT}</script>\n" if charts else ""
    return write_whole(
        path,
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n"
        f"<body>\n<h1>{name}</h1>\n{body}\n"
        f"<footer>Made by stiefel-init {__version__}. This page is self-contained.</footer>\n{script}</body></html>\n",
    )
