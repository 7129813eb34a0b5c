"""The pictures of `diagnose`, `check_depths` and `watch`; imported only where matplotlib is."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...health.judge import Event, Finding
    from ...health.rows import Layer

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
_MEASURED, _BAD = _COLORS[:2]
_SICK: Any = {"color": "#222222", "markersize": 9, "markeredgewidth": 1.5, "linestyle": "none", "zorder": 3}
_STYLE: Any = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "font.size": 11
}  # fmt: skip
_NAMED = 12  # so many layers are named on the axis; of more, that many spread evenly
_SHARES = frozenset({"active"})  # on an axis from 0 to 1; the others on a logarithmic one


def of_layers(layers: Sequence[Layer], findings: Sequence[Finding], headline: str) -> Figure:
    """A panel over the layers for each quantity that was measured."""
    titles = {
        "post_std": "std after the activation", "spread": "difference between inputs",
        "active": "share of units that fire", "distinct": "distinct units", "gradient": "gradient norm",
    }  # fmt: skip
    with mpl.rc_context(_STYLE):
        figure, panels = _panels(titles, layers, 3.0)
        for name, axis in panels.items():
            at = np.arange(1, len(layers) + 1)
            values = _values(layers, name)
            _set_scale(axis, name, [values])
            size = 5 if len(layers) <= 40 else 3
            axis.plot(at, values, "o", color=_MEASURED, markersize=size)
            for finding in findings:
                places = [index for index, layer in enumerate(layers, 1) if layer.label == finding.layer]
                if places:
                    axis.axvline(places[0], color=_BAD, linewidth=1, linestyle=":", zorder=0)
            named = _spread_evenly(len(layers))
            axis.set_xticks(at[named], [layers[place].label for place in named], rotation=60, ha="right", fontsize=8)
            axis.set_xlabel("layer")
        shortened = textwrap.shorten(headline, 75, placeholder=" …")
        figure.suptitle(shortened, color=_BAD if findings else "black")
    return figure


def of_depths(points: Sequence[Any]) -> Figure:
    """A panel over the depth for each quantity of a `Point` that was measured, with a line for each initialization."""
    titles = {
        "std": "std of the last layer", "spread": "difference between inputs", "active": "share of units that fire",
        "distinct": "distinct units", "gradient": "gradient, first / last layer",
    }  # fmt: skip
    with mpl.rc_context(_STYLE):
        figure, lines = _over_sizes(points, titles, "start", "depth", "depth")
        for axis, rows, values in lines:
            at, sick = np.array([row.depth for row in rows]), np.array([bool(row.finding) for row in rows])
            axis.plot(at[sick], values[sick], "x", **_SICK)
            gone = at[sick & np.isnan(values)]  # nothing is left to draw: at the lower edge
            if len(gone):
                edge = np.full(len(gone), 0.03)
                (marks,) = axis.plot(gone, edge, "x", transform=axis.get_xaxis_transform(), **_SICK)
                marks.set_in_layout(False)
        figure.axes[0].plot([], [], "x", label="called sick", **_SICK)
        _legend(figure)
    return figure


def of_widths(changes: Sequence[Any], over: str) -> Figure:
    """A panel over the size for each quantity of a `Change`, with a line for each way to choose the rates."""
    titles = {
        "first": "change of the first layer", "hidden": "change of the last hidden layer",
        "output": "change of the output", "loss": "loss after over before",
    }  # fmt: skip
    with mpl.rc_context(_STYLE):
        figure, _ = _over_sizes(changes, titles, "rates", "size", over)
        _legend(figure)
    return figure


def _over_sizes(
    rows: Sequence[Any], titles: Mapping[str, str], line: str, size: str, label: str
) -> tuple[Figure, list[tuple[Axes, list[Any], np.ndarray]]]:
    """Panels over the sizes of networks; and of each line its axis, rows and values."""
    figure, panels = _panels(titles, rows, 2.7)
    sizes = sorted({getattr(row, size) for row in rows})
    drawn = []
    for name, axis in panels.items():
        for color, each in zip(itertools.cycle(_COLORS), dict.fromkeys(getattr(row, line) for row in rows)):
            own = [row for row in rows if getattr(row, line) == each]
            own.sort(key=lambda row: getattr(row, size))
            values = _values(own, name)
            at = [getattr(row, size) for row in own]
            axis.plot(at, values, "o-", color=color, label=each, markersize=4, linewidth=1.3)
            drawn.append((axis, own, values))
        _set_scale(axis, name, [values for on, _, values in drawn if on is axis])
        axis.set_xscale("log")
        axis.set_xlabel(label)
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
    return figure, drawn


def of_training(history: Any, events: Iterable[Event], titles: Mapping[str, str], linear: frozenset[str]) -> Figure:
    """A heat map, layers × steps, for each column of a `History`; events are marked."""
    steps, layers = history.steps, history.layers
    with mpl.rc_context({"font.size": 10}):
        figure = Figure(figsize=(4.2 * len(titles), 4.2), layout="constrained")
        for axis, (column, title) in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles.items()):
            grid = history.grid(column)
            shown = np.isfinite(grid) & ((grid > 0) if column not in linear else True)
            values = np.ma.masked_where(~shown, grid)
            norm = Normalize() if column in linear or not shown.any() else LogNorm(values.min(), values.max())
            edges = [*steps, steps[-1] + (steps[-1] - steps[-2] if len(steps) > 1 else 1)]
            picture = axis.pcolormesh(edges, np.arange(len(layers) + 1), values, norm=norm, cmap="viridis")
            figure.colorbar(picture, ax=axis)
            for event in events:
                if event.layer in layers and not event.recovered:
                    axis.plot(event.step, layers.index(event.layer) + 0.5, "x", color=_BAD)
            named = _spread_evenly(len(layers))
            axis.set_yticks(named + 0.5, [layers[at] for at in named], fontsize=8)
            axis.invert_yaxis()
            axis.set_title(title)
            axis.set_xlabel("step")
    return figure


def of_trials(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Training losses over the steps, a line for each trial, over a tenth of it averaged."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axis = figure.subplots()
        for color, (name, curve) in zip(_COLORS, curves.items()):
            span = max(1, len(curve) // 10)
            smooth = np.convolve(curve, np.ones(span) / span, "valid")
            axis.plot(np.arange(len(smooth)) + span, smooth, color=color, label=name, linewidth=1.3)
        axis.set_yscale("log")
        axis.set_xlabel("step")
        axis.set_title("training loss")
        axis.legend(frameon=False)
    return figure


def _panels(titles: Mapping[str, str], rows: Sequence[Any], height: float) -> tuple[Figure, dict[str, Axes]]:
    """Two side by side, so that a narrow page shows them legibly."""
    names = [name for name in titles if any(getattr(row, name) is not None for row in rows)]
    lines = math.ceil(len(names) / 2)
    figure = Figure(figsize=(6.8, height * lines), layout="constrained")
    places = figure.subplots(lines, 2, squeeze=False).flat
    panels = dict(zip(names, places))
    for empty in places[len(names) :]:
        figure.delaxes(empty)
    for name, axis in panels.items():
        axis.set_title(titles[name])
    return figure, panels


def _values(rows: Sequence[Any], name: str) -> np.ndarray:
    """A column; NaN where nothing was measured, and where a dead signal has no place on a logarithmic axis."""
    found = np.array([np.nan if (v := getattr(row, name, None)) is None else v for row in rows], float)
    if name in _SHARES:
        return found
    return np.where(np.isfinite(found) & (found > 0), found, np.nan)


def _set_scale(axis: Axes, name: str, drawn: Sequence[np.ndarray]) -> None:
    if name in _SHARES:
        axis.set_ylim(-0.02, 1.04)
        return
    axis.set_yscale("log")
    values = np.concatenate(drawn)
    if not np.isnan(values).all() and np.nanmax(values) < 100 * np.nanmin(values):  # small changes are to look small
        axis.set_ylim(np.nanmin(values) / 5, np.nanmax(values) * 5)


def _spread_evenly(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, _NAMED)).round().astype(int))


def _legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
