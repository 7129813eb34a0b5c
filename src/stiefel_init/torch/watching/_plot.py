"""The picture of a watched training; imported only where matplotlib is."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from ._history import History
from ._judge import Event
from ._page import LINEAR, SHOWN

_NAMED = 12  # so many layers are named on the axis


def plot(history: History, events: Sequence[Event], columns: Sequence[str]) -> Figure:
    """A heat map, layers × steps, for each column; events are marked."""
    steps, layers = history.steps, history.layers
    with mpl.rc_context({"font.size": 10}):
        figure = Figure(figsize=(4.2 * len(columns), 4.2), layout="constrained")
        axes = figure.subplots(1, len(columns), squeeze=False)[0]
        for axis, column in zip(axes, columns):
            grid = history.grid(column)
            shown = np.isfinite(grid) & ((grid > 0) if column not in LINEAR else True)
            values = np.ma.masked_where(~shown, grid)
            norm = Normalize() if column in LINEAR or not shown.any() else LogNorm(values.min(), values.max())
            edges = [*steps, steps[-1] + (steps[-1] - steps[-2] if len(steps) > 1 else 1)]
            picture = axis.pcolormesh(edges, np.arange(len(layers) + 1), values, norm=norm, cmap="viridis")
            figure.colorbar(picture, ax=axis)
            for event in events:
                if event.layer in layers and not event.recovered:
                    axis.plot(event.step, layers.index(event.layer) + 0.5, "x", color="#D55E00")
            named = np.unique(np.linspace(0, len(layers) - 1, min(len(layers), _NAMED)).round().astype(int))
            axis.set_yticks(named + 0.5, [layers[at] for at in named], fontsize=8)
            axis.invert_yaxis()
            axis.set_title(SHOWN[column])
            axis.set_xlabel("step")
    return figure
