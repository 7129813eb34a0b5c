"""The picture of the study of rivals."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..report import plots
from .rival_cells import NAMES, OURS
from .rival_findings import Found


def over_depth(found: Found) -> Figure:
    """Which start, at which depth: mean accuracy, a panel for each classification set; ours are drawn thick."""
    sets = {setting.dataset: None for setting in found.settings if setting.shots is None}
    panels = [name for name in sets if all(v.max() > 0 for (s, _), v in found.scores.items() if s.dataset == name)][:4]
    drawn, axes = plots.figure(len(panels), size=(4.6, 4.2), label="Which start, at which depth: accuracy over depth")
    ours = {rival.name for rival in OURS}
    for axis, dataset in zip(axes[0], panels):
        depths = sorted({s.depth for s in found.settings if s.dataset == dataset and s.shots is None})
        for number, name in enumerate(NAMES):
            points = [
                (s.depth, float(found.scores[s, name].mean()))
                for s in found.settings
                if (s.dataset, s.shots) == (dataset, None) and (s, name) in found.scores
            ]
            if points:
                style = "-" if name in ours else ("--", ":")[number % 2]
                width = 2.4 if name in ours else 1.2
                line: Any = {"color": f"C{number % 10}", "linewidth": width, "marker": "o", "markersize": 3}
                axis.plot(*np.array(points).T, style, label=name, **line)
        axis.set(title=dataset, xlabel="depth", xscale="log", ylim=(0, 102))
        axis.set_xticks(depths, [f"{depth:,}" for depth in depths])
        axis.set_xticks([], minor=True)
    axes[0, 0].set_ylabel("test accuracy (%), each at its best rate")
    plots.legend(drawn, axes[0, 0])
    return drawn
