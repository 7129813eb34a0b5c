"""The picture of a diagnosis; imported only where matplotlib is."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ._layer import Layer
from ._verdict import Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MEASURED, _PREDICTED, _BAD = "#0072B2", "#222222", "#D55E00"
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 10,
}
_NAMED = 12  # so many layers are named on the axis; of more, that many spread evenly


def plot(layers: Sequence[Layer], findings: Sequence[Finding], headline: str) -> Figure:
    """One panel for each quantity that was measured."""
    panels = [
        ("post_std", "std after the activation", True),
        ("spread", "difference between inputs", True),
        ("active", "share of units that fire", False),
        ("distinct", "distinct units", True),
        ("gradient", "gradient norm", True),
    ]
    panels = [panel for panel in panels if any(getattr(layer, panel[0]) is not None for layer in layers)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.3 * len(panels), 3.9), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (name, title, logarithmic) in zip(axes, panels):
            _panel(axis, layers, findings, name, logarithmic)
            axis.set_title(title)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        shortened = textwrap.shorten(headline, 40 * len(panels), placeholder=" …")
        figure.suptitle(shortened, color=_BAD if findings else "black")
    return figure


def _panel(axis: Axes, layers: Sequence[Layer], findings: Sequence[Finding], name: str, logarithmic: bool) -> None:
    at = np.arange(1, len(layers) + 1)
    values = np.array([np.nan if (v := getattr(layer, name)) is None else v for layer in layers], float)
    expected = [getattr(layer, f"predicted_{name}", None) for layer in layers]
    lines = np.array([np.nan if v is None else v for v in expected], float)
    if logarithmic:  # nothing is drawn where there is nothing: a dead signal has no place on a logarithmic axis
        values, lines = (np.where(np.isfinite(v) & (v > 0), v, np.nan) for v in (values, lines))
        axis.set_yscale("log")
        both = np.concatenate((values, lines))
        if not np.isnan(both).all() and np.nanmax(both) < 100 * np.nanmin(both):  # small changes are to look small
            axis.set_ylim(np.nanmin(both) / 5, np.nanmax(both) * 5)
    else:
        axis.set_ylim(-0.02, 1.04)
    size = 5 if len(layers) <= 40 else 3
    axis.plot(at, values, "o", color=_MEASURED, markersize=size, label="measured")
    if not np.isnan(lines).all():
        axis.plot(at, lines, "-", color=_PREDICTED, linewidth=1.3, label="predicted")
    for finding in findings:
        places = [index for index, layer in enumerate(layers, 1) if layer.label == finding.layer]
        if places:
            axis.axvline(places[0], color=_BAD, linewidth=1, linestyle=":", zorder=0)
    named = np.unique(np.linspace(0, len(layers) - 1, min(len(layers), _NAMED)).round().astype(int))
    axis.set_xticks(at[named], [layers[place].label for place in named], rotation=60, ha="right", fontsize=8)
    axis.set_xlabel("layer")
