"""The picture of `check_depths`; imported only where matplotlib is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ._plot import STYLE

if TYPE_CHECKING:
    from ._point import Point

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
_SICK: Any = {"color": "#222222", "markersize": 9, "markeredgewidth": 1.5, "linestyle": "none", "zorder": 3}
_PANELS = (
    ("std", "std of the last layer", True),
    ("spread", "difference between inputs", True),
    ("active", "share of units that fire", False),
    ("distinct", "distinct units", True),
    ("gradient", "gradient, first / last layer", True),
)


def plot(points: Sequence[Point]) -> Figure:
    """One panel for each quantity that was measured, one line for each start."""
    panels = [panel for panel in _PANELS if any(getattr(point, panel[0]) is not None for point in points)]
    starts = list(dict.fromkeys(point.start for point in points))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.3 * len(panels), 3.6), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (name, title, logarithmic) in zip(axes, panels):
            axis.set_title(title)
            axis.set_xscale("log")
            axis.set_xlabel("depth")
            if logarithmic:
                axis.set_yscale("log")
            else:
                axis.set_ylim(-0.02, 1.04)
            for at, start in enumerate(starts):
                rows = sorted((point for point in points if point.start == start), key=lambda point: point.depth)
                at_depths = np.array([point.depth for point in rows])
                values = np.array([np.nan if (v := getattr(point, name)) is None else v for point in rows], float)
                if logarithmic:  # a dead signal has no place on a logarithmic axis
                    values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
                color = _COLORS[at % len(_COLORS)]
                axis.plot(at_depths, values, "o-", color=color, label=start, markersize=4, linewidth=1.3)
                sick = np.array([bool(point.finding) for point in rows])
                axis.plot(at_depths[sick], values[sick], "x", **_SICK)
                gone = at_depths[sick & np.isnan(values)]  # nothing is left to draw: at the lower edge
                if len(gone):
                    edge = np.full(len(gone), 0.03)
                    (marks,) = axis.plot(gone, edge, "x", transform=axis.get_xaxis_transform(), **_SICK)
                    marks.set_in_layout(False)
            depths = sorted({point.depth for point in points})
            axis.set_xticks(depths, [f"{depth:,}" for depth in depths])
            axis.minorticks_off()
            lines = [line for line in axis.get_lines() if line.get_linestyle() != "None"]
            shown = np.concatenate([line.get_ydata() for line in lines]).astype(float)
            if logarithmic and np.isfinite(shown).any() and np.nanmax(shown) < 100 * np.nanmin(shown):
                axis.set_ylim(np.nanmin(shown) / 5, np.nanmax(shown) * 5)  # small changes are to look small
        axes[0].plot([], [], "x", label="called sick", **_SICK)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure
