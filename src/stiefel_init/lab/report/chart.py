"""Charts of a page: lines in panels, drawn in the browser by chart.js, to hover over, zoom into and switch off."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Numbers = Sequence[float] | np.ndarray
SCRIPT = Path(__file__).with_name("chart.js").read_text(encoding="utf-8")


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

    label: str
    """What it shows, for those who do not see it."""
    panels: Sequence[Panel]

    def html(self) -> str:
        """The chart as HTML, for a page with `SCRIPT`; numbers to five digits, those that are not finite left out."""
        panels = [
            {
                "title": panel.title, "x": panel.x, "y": panel.y, "logX": panel.log_x, "logY": panel.log_y,
                "dots": panel.dots,
                "lines": [
                    {"name": line.name, "colour": line.colour}
                    | {key: [_short(v) for v in values] for key in ("x", "y", "low", "high")
                       if (values := getattr(line, key)) is not None}
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


def _short(value: Any) -> float | None:
    number = float(value)
    return float(f"{number:.5g}") if math.isfinite(number) else None
