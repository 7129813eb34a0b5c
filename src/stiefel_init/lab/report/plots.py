"""Pictures that several experiments share, and the style of all pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from ..files import write_whole
from ..train.record import Record
from .chart import colour as colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 110,
    "savefig.bbox": "tight",
    "svg.hashsalt": "stiefel-init",  # the same picture is the same file
}


def figure(
    columns: int, rows: int = 1, size: tuple[float, float] = (4.2, 3.2), *, label: str = ""
) -> tuple[Figure, np.ndarray]:
    """Axes in rows and columns, in our style; the label is the picture's alternative text."""
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        drawn.set_label(label)
        return drawn, np.atleast_2d(drawn.subplots(rows, columns, squeeze=False))


def save(drawn: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a picture as PNG, all or nothing; the same picture is the same file."""
    return write_whole(path, png(drawn, dpi))


def png(drawn: Figure, dpi: int = 150) -> bytes:
    """A picture as the content of a PNG file."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def over_depth(records: Sequence[Record], ylabel: str = "test accuracy (%)") -> Figure:
    """Score against depth with bands of one standard deviation: one panel for each data set."""
    datasets = list(dict.fromkeys(record.cell.dataset for record in records))
    drawn, axes = figure(len(datasets), size=(5.0, 3.6), label=f"{ylabel} over depth")
    for axis, dataset in zip(axes[0], datasets):
        for scheme in dict.fromkeys(record.cell.scheme for record in records):
            chosen = [r for r in records if (r.cell.dataset, r.cell.scheme) == (dataset, scheme)]
            depths = sorted({record.cell.depth for record in chosen})
            if not depths:
                continue
            scores = [np.array([record.score for record in chosen if record.cell.depth == d]) for d in depths]
            mean, std = np.array([s.mean() for s in scores]), np.array([s.std() for s in scores])
            axis.plot(depths, mean, color=colour(scheme), label=str(scheme), linewidth=1.8, marker="o", markersize=3)
            low, high = np.maximum(mean - std, 0), np.minimum(mean + std, 100)
            axis.fill_between(depths, low, high, color=colour(scheme), alpha=0.15, linewidth=0)
        axis.set(title=dataset, xlabel="depth", ylim=(0, None))
    axes[0, 0].set_ylabel(ylabel)
    legend(drawn, axes[0, -1])
    return drawn


def legend(drawn: Figure, axis: Axes) -> None:
    """One legend for the whole figure, of what an axis shows."""
    handles, labels = axis.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside right center", frameon=False)
