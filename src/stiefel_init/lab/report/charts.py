"""Charts that several studies share, made from records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..train.record import Record
from .chart import Chart, Line, Panel
from .plots import colour


def screen_colour(scheme: object) -> str:
    """The colour of a scheme on light and on dark pages."""
    found = colour(scheme)
    if found.startswith("C"):  # matplotlib's cycle
        from matplotlib.colors import to_hex

        return to_hex(found)
    return "currentColor" if found == "#000000" else found


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
