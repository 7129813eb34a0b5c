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
    return _COLOURS.get(name, f"C{sum(map(ord, name)) % 10}")


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


def legend(drawn: Figure, axis: Axes) -> None:
    """One legend for the whole figure, of what an axis shows."""
    handles, labels = axis.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside right center", frameon=False)
