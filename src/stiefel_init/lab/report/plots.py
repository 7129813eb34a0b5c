"""Pictures by matplotlib: their style, their colours, and how they are written."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from ..files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour for each scheme in every picture, told apart by the colour-blind too (Okabe and Ito's palette).
_COLOURS = {
    "stiefel": "#0072B2", "lee": "#E69F00", "he": "#009E73", "xavier": "#CC79A7", "orthogonal": "#56B4E9",
    "random": "#777777", "permutation": "#D55E00", "identity": "#F0E442", "rotation": "#882255",
    "recipe": "#000000", "torch": "#B35900",
}  # fmt: skip
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


def colour(scheme: object) -> str:
    """The colour of a scheme, by its name; those without one share a colour map."""
    name = str(scheme).split()[0]
    return _COLOURS.get(name) or str(mpl.colors.to_hex(f"C{sum(map(ord, name)) % 10}"))


def figure(
    columns: int, rows: int = 1, size: tuple[float, float] = (4.2, 3.2), *, label: str = "", letters: int = 10
) -> tuple[Figure, np.ndarray]:
    """Axes in rows and columns, in our style; the label is the picture's alternative text."""
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    with mpl.rc_context({**STYLE, "font.size": letters}):
        drawn = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        drawn.set_label(label)
        return drawn, np.atleast_2d(drawn.subplots(rows, columns, squeeze=False))


def save(drawn: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a picture as PNG, all or nothing; the same picture is the same file."""
    return write_whole(path, png(drawn, dpi))


def png(drawn: Figure, dpi: int = 150) -> bytes:
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def column(panels: int, *, label: str, height: float = 3.0) -> tuple[Figure, np.ndarray]:
    """Axes below each other, for a page: as wide as a telephone can show with letters that can be read."""
    drawn, axes = figure(1, panels, (5.6, height), label=label, letters=13)
    return drawn, axes[:, 0]


def shade(share: float) -> Any:
    """One of an ordered family, from its first (0) to its last (1): from light to dark, in colour or without."""
    return mpl.colormaps["viridis"](0.85 * (1 - share))


def direct(axis: Axes, apart: float = 0.085) -> None:
    """Names at the ends of lines, in their colours, instead of a legend; none closer to another than `apart`."""
    ends = []
    for line in axis.lines:
        x, y = (np.asarray(values, float) for values in line.get_data())
        known = np.isfinite(y)
        if not str(line.get_label()).startswith("_") and known.any():
            end = axis.transScale.transform((x[known][-1], y[known][-1]))
            ends.append((float(np.clip(axis.transLimits.transform(end)[1], 0, 1)), line))
    heights: list[float] = []
    for height, _ in sorted(ends, key=lambda end: end[0]):
        heights.append(max(height, heights[-1] + apart) if heights else height)
    over = max(0.0, heights[-1] - 1) if heights else 0.0
    for height, (_, line) in zip(heights, sorted(ends, key=lambda end: end[0])):
        look: Any = {"va": "center", "color": line.get_color(), "annotation_clip": False, "fontsize": 12}
        axis.annotate(str(line.get_label()), (1.02, height - over), xycoords="axes fraction", **look)


def legend(drawn: Figure, axis: Axes) -> None:
    """One legend for the whole figure, of what an axis shows."""
    handles, labels = axis.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside right center", frameon=False)
