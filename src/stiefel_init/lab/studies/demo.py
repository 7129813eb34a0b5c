"""The demo: six initializations, three depths, one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..files import prepare
from ..paper.protocol import SCHEMES
from ..report import plots
from ..report.page import write_page
from ..report.summary import summary
from ..train.cell import Cell
from ..train.record import Record
from ..train.runner import DeviceName, pick_device, run
from ..train.signal import Signal, measure
from ..train.task import Tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASET = "digits"
DEPTHS = (10, 50, 100)
BATCH = 64
CHANCE = 10.0


def run_demo(out: Path, device: DeviceName, epochs: int) -> Path:
    """Train, print the table, and write learning-curves.png, signal.png and index.html; returns the page's path."""
    pick_device(device)
    prepare(out)
    cells = [
        Cell(DATASET, scheme, depth, epochs=epochs, batch=BATCH, rate=1e-3 / math.sqrt(depth))
        for depth in DEPTHS
        for scheme in SCHEMES
    ]
    print(f"Training {len(cells)} plain ReLU networks on {DATASET}: {len(SCHEMES)} initializations, depths {DEPTHS}.")
    records = run(cells, out=out, device=device, title="demo")
    task = Tasks()(cells[0])
    deep = max(DEPTHS)
    signals = {scheme: measure([Cell(DATASET, scheme, deep)], task) for scheme in SCHEMES}
    curves = plots.learning_curves(records, f"Learning {DATASET}: plain ReLU networks, 64 wide")
    signal = _signal_picture(signals, f"The signal at initialization, {deep} layers")
    plots.save(curves, out / "learning-curves.png")
    plots.save(signal, out / "signal.png")

    table = summary(records)
    sentences = meaning(records, signals[SCHEMES[0]].active[0, -1])
    text = f"""{" ".join(sentences)}

## Test accuracy (%) after {epochs} epochs, by depth

{chr(10).join(table.marked().markdown())}

## Learning curves

![Test accuracy against epoch for six initializations at three depths](curves)

## The signal before training

![Spread, share of firing units and gradient over the layers at initialization](signal)

Networks of {DEPTHS[0]}, {DEPTHS[1]} and {DEPTHS[2]} hidden layers of 64 units, no skip connections, no normalization;
Adam, learning rate 0.001/√depth for every initialization, batch size {BATCH}, one seed. Every number on this page was
computed when the page was made.
"""
    title = "Deep ReLU networks that train from the first step"
    path = write_page(out / "index.html", title, text, {"curves": curves, "signal": signal})

    print(f"\nTest accuracy (%) after {epochs} epochs:")
    for row in [table.header, *table.rows]:
        print("  " + row[0].ljust(8) + "".join(cell.rjust(13) for cell in row[1:]))
    print("\n" + "\n".join(sentences))
    print(f"\nPictures: {out / 'learning-curves.png'}, {out / 'signal.png'}")
    return path


def meaning(records: Sequence[Record], firing: float) -> list[str]:
    """Three sentences that say what the records show."""
    score = {(str(record.cell.scheme), record.cell.depth): record.score for record in records}
    shallow, deep = min(DEPTHS), max(DEPTHS)
    others = {s: score[s, deep] for s in SCHEMES if s != "stiefel"}
    rival = max(others, key=lambda s: others[s])
    return [
        f"At {shallow} layers {_at_chance(score, shallow)}; at {deep} layers {_at_chance(score, deep)}.",
        f"Stiefel weights, aligned with the all-ones direction, reach {score['stiefel', deep]:.1f} % at {deep} layers; "
        f"the best other initialization ({rival}) reaches {others[rival]:.1f} %.",
        f"The pictures show why: {firing:.0%} of the units in the last layer fire, and neither signal nor gradient "
        "fades with depth.",
    ]


def _at_chance(score: Mapping[tuple[str, int], float], depth: int) -> str:
    lost = [scheme for scheme in SCHEMES if score[scheme, depth] < 2 * CHANCE]
    if not lost:
        return "every initialization learns"
    return f"{_and(lost)} {'is' if len(lost) == 1 else 'are'} at chance"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _signal_picture(signals: Mapping[str, Signal], title: str) -> Figure:
    """Spread, share of firing units and gradient over the layers, at initialization; one line for each scheme."""
    drawn, axes = plots.figure(3)
    panels = (
        ("std", "spread of the pre-activations", True),
        ("active", "share of units that fire", False),
        ("gradient", "gradient norm", True),
    )
    for axis, (name, label, logarithmic) in zip(axes[0], panels):
        for scheme, measured in signals.items():
            values = getattr(measured, name).mean(0)
            layers = np.arange(1, len(values) + 1)
            shown = np.where(values > 0, values, np.nan) if logarithmic else values
            axis.plot(layers, shown, color=plots.colour(scheme), label=scheme, linewidth=1.8)
        axis.set(title=label, xlabel="layer")
        if logarithmic:
            axis.set_yscale("log")
        else:
            axis.set_ylim(0, 1.03)
    plots.legend(drawn, axes[0, -1])
    drawn.suptitle(title)
    return drawn
