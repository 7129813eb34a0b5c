"""The pictures of the study of training on the set: accuracy over the rate, and the rates that work over depth."""

from __future__ import annotations

from itertools import product
from typing import Any

from matplotlib.figure import Figure

from stiefel_init.lab.report import plots

from .on_set_cells import (
    ENDS,
    FREE,
    FREE_COSINE,
    FREE_ENDS,
    GAIN,
    HOW,
    ON_SET,
    ON_SET_COSINE,
    RELEASED,
    STARTS,
    TABLE,
    Way,
)
from .on_set_findings import Found
from .tuned import Setting

_STYLE: dict[str, Any] = {
    FREE: ":",
    FREE_COSINE: (0, (1, 3)),
    FREE_ENDS: "-",
    ON_SET_COSINE: "--",
    RELEASED: "-.",
}
_COLOUR = {
    FREE: "#777777",
    FREE_COSINE: "#777777",
    ON_SET: "#0072B2",
    ON_SET_COSINE: "#0072B2",
    RELEASED: "#009E73",
    GAIN: "#CC79A7",
    FREE_ENDS: "#000000",
    ENDS: "#56B4E9",
}


def _line(how: str) -> dict[str, Any]:
    return {"linestyle": _STYLE.get(how, "-"), "color": _COLOUR.get(how, "#D55E00"), "marker": "o", "markersize": 3}


def over_rates(found: Found) -> Figure:
    """Accuracy over the rate on all data: a column for each depth, a row for each data set of images and start."""
    settings = [setting for setting in found.settings if setting.shots is None and setting.dataset != TABLE]
    depths = sorted({setting.depth for setting in settings})
    rows = list(product(dict.fromkeys(setting.dataset for setting in settings), STARTS))
    drawn, axes = plots.figure(len(depths), len(rows), (3.1, 2.4), label="Accuracy over the learning rate")
    for row, (dataset, start) in zip(axes, rows):
        for axis, depth in zip(row, depths):
            setting = Setting(dataset, depth)
            for how in HOW:
                if rates := found.tuned.get((setting, Way(start, how))):
                    axis.plot(*zip(*sorted(rates.items())), label=how, **_line(how))
            axis.set(xscale="log", ylim=(0, 102))
            ticks = sorted({times for (where, _), rates in found.tuned.items() if where == setting for times in rates})
            axis.set_xticks(ticks, [f"{times:g}" for times in ticks])
            axis.set_xticks([], minor=True)
            axis.set_title(f"{setting}\n{STARTS[start]}", fontsize=9)
        row[0].set_ylabel("test accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("times 0.001/√depth")
    plots.legend(drawn, max(axes.flat, key=lambda axis: len(axis.lines)))
    return drawn


def over_depth(found: Found) -> Figure:
    """Rates that work, the highest over the lowest, over the depth: a panel for each data set and start."""
    sets = list(dict.fromkeys(setting.dataset for setting in found.settings if setting.shots is None))
    panels = [(dataset, start) for dataset in sets for start in STARTS if len(_depths(found, dataset)) > 1]
    panels = panels or [(dataset, start) for dataset in sets[:1] for start in STARTS]
    drawn, axes = plots.figure(len(panels), size=(3.3, 3.1), label="Rates that work, over the depth")
    for axis, (dataset, start) in zip(axes[0], panels):
        depths = _depths(found, dataset)
        for how in HOW:
            points = [
                (setting.depth, found.working((setting, Way(start, how))) or 0.5)
                for setting in found.settings
                if (setting.dataset, setting.shots) == (dataset, None) and (setting, Way(start, how)) in found.tuned
            ]
            if points:
                axis.plot(*zip(*points), label=how, **_line(how))
        axis.set(xscale="log", yscale="log", xlabel="depth", ylim=(0.4, 1500))
        axis.set_title(f"{dataset}, {STARTS[start]}", fontsize=9)
        axis.set_xticks(depths, [f"{depth:,}" for depth in depths])
        axis.set_xticks([], minor=True)
        axis.set_yticks([0.5, 1, 4, 16, 64, 256, 1024], ["none", "× 1", "× 4", "× 16", "× 64", "× 256", "× 1,024"])
        axis.set_yticks([], minor=True)
    axes[0, 0].set_ylabel("highest rate that works / lowest")
    plots.legend(drawn, max(axes.flat, key=lambda axis: len(axis.lines)))
    return drawn


def _depths(found: Found, dataset: str) -> list[int]:
    return sorted({s.depth for s in found.settings if (s.dataset, s.shots) == (dataset, None)})
