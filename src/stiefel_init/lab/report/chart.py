"""Charts of a page: lines in panels, drawn in the browser by chart.js, to hover over, zoom into and switch off."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..train.record import Record

Numbers = Sequence[float] | np.ndarray
# One colour for each scheme in every picture, told apart by the colour-blind too (Okabe and Ito's palette).
_COLOURS = {
    "stiefel": "#0072B2", "lee": "#E69F00", "he": "#009E73", "xavier": "#CC79A7", "orthogonal": "#56B4E9",
    "random": "#777777", "permutation": "#D55E00", "identity": "#F0E442", "rotation": "#000000",
    "recipe": "#D62728",
}  # fmt: skip
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


def colour(scheme: object) -> str:
    """The colour of a scheme, by its name; those without one share a colour map."""
    name = str(scheme).split()[0]
    return _COLOURS.get(name, f"C{sum(map(ord, name)) % 10}")


def screen_colour(scheme: object) -> str:
    """The colour of a scheme on light and on dark pages."""
    name = colour(scheme)
    if name.startswith("C"):  # matplotlib's cycle
        from matplotlib.colors import to_hex

        return to_hex(name)
    return "currentColor" if name == "#000000" else name


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
