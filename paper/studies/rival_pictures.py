"""The picture of the study of rivals: which start, at which depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stiefel_init.lab.report import plots

from .rival_cells import FAST, MINE, STARTS
from .rival_findings import Found, Group
from .tuned import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETS = 2
"""Data sets that are drawn: the first of the study, with all their rows."""
DARK = 12.0
"""Points behind the best from which on all is one colour."""


def over_depth(found: Found) -> Figure:
    """A panel for each data set and way to train: mean accuracy of each start at each depth, ours first.

    The colour says how far a start is behind the best of its depth in the same panel; the best is bold.
    """
    panels = [(group, fast) for group in _groups(found) for fast in ("", FAST) if _depths(found, group, fast)]
    names = _ordered(found, panels)
    size = (1.3 + 0.85 * max((len(_depths(found, *panel)) for panel in panels), default=1), 1.4 + 0.27 * len(names))
    drawn, axes = plots.figure(max(len(panels), 1), size=size, label="Which start, at which depth: test accuracy")
    for place, (axis, (group, fast)) in enumerate(zip(axes[0], panels)):
        _panel(axis, found, group, fast, names)
        axis.set_yticks(range(len(names)), [f"{n} (ours)" if n in MINE else n for n in names] if not place else [])
        for label, name in zip(axis.get_yticklabels(), names):
            label.set_fontweight("bold" if name in MINE else "normal")
    title = "Mean test accuracy (%), each start at its best rate;\ndarker: further behind the best of its column"
    drawn.suptitle(title)
    return drawn


def _groups(found: Found) -> list[Group]:
    """The first sets of the study with classes and all rows."""
    whole = [group for group in found.groups if group.shots is None]
    return [g for g in whole if all(v.max() > 0 for (s, _), v in found.scores.items() if s.dataset == g.dataset)][:SETS]


def _depths(found: Found, group: Group, fast: str) -> list[int]:
    settings = {setting for setting, name in found.scores if name.endswith(FAST) == bool(fast)}
    return sorted(s.depth for s in settings if (s.dataset, s.shots) == group)


def _mean(found: Found, group: Group, depth: int, name: str) -> float:
    values = found.scores.get((Setting(group.dataset, depth, group.shots), name))
    return np.nan if values is None else float(np.maximum(values, 0).mean())


def _ordered(found: Found, panels: list[tuple[Group, str]]) -> list[str]:
    """Ours, then the rivals, each part by its mean over all that is drawn."""

    def rank(name: str) -> tuple[bool, float]:
        means = [_mean(found, g, depth, name + fast) for g, fast in panels for depth in _depths(found, g, fast)]
        known = [mean for mean in means if not np.isnan(mean)]
        return name not in MINE, -float(np.mean(known)) if known else 0.0

    return sorted((rival.name for rival in STARTS), key=rank)


def _panel(axis: Axes, found: Found, group: Group, fast: str, names: list[str]) -> None:
    depths = _depths(found, group, fast)
    means = np.array([[_mean(found, group, depth, name + fast) for depth in depths] for name in names])
    best = np.nanmax(means, axis=0)
    axis.imshow(best - means, cmap="YlGnBu", vmin=0, vmax=DARK, aspect="auto")
    for (row, column), mean in np.ndenumerate(means):
        if not np.isnan(mean):
            axis.text(
                column, row, f"{mean:.1f}", ha="center", va="center", fontsize=8,
                color="white" if best[column] - mean > 0.6 * DARK else "black",
                fontweight="bold" if mean == best[column] else "normal",
            )  # fmt: skip
    axis.set_xticks(range(len(depths)), [f"{depth:,}" for depth in depths])
    axis.set(title=f"{group}{fast}", xlabel="layers")
    axis.grid(visible=False)
    axis.tick_params(length=0)
