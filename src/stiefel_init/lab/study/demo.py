"""The demo: six initializations, three depths, three seeds, one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..files import prepare
from ..progress import counted
from ..report.page import Chart, Line, Panel, learning, screen_colour, write_page
from ..report.tables import summary
from ..train.cell import Cell
from ..train.evaluation import SignalProfile, measure_signal
from ..train.problem import Problems
from ..train.record import Record
from ..train.runner import DeviceName, pick_device, run
from . import SCHEMES

DATASET = "digits"
DEPTHS = (10, 50, 100)
WIDTH = 64
SEEDS = 3
BATCH = 64
CHANCE = 10.0
FADED = 1e-3
"""The spread in the last layer, as a share of that in the first, below which a signal has faded."""
_PANELS = (
    ("std", "spread of the signal", True),
    ("distinct", "distinct units", False),
    ("active", "share of units that fire", False),
    ("gradient", "gradient norm", True),
)


def networks(epochs: int) -> list[Cell]:
    """What the demo trains."""
    return [
        Cell(DATASET, scheme, depth, WIDTH, epochs=epochs, batch=BATCH, seed=seed)
        for depth in DEPTHS
        for scheme in SCHEMES
        for seed in range(SEEDS)
    ]


def run_demo(out: Path, device: DeviceName, epochs: int) -> Path:
    """Train, print the table and what it means, and write index.html; returns its path."""
    pick_device(device)
    prepare(out)
    cells = networks(epochs)
    print(f"Training {len(cells)} plain ReLU networks on {DATASET}: {len(SCHEMES)} initializations, depths {DEPTHS}.")
    records = run(cells, out=out, device=device, title="demo")
    task, deep = Problems()(cells[0]), max(DEPTHS)
    signals = {
        scheme: measure_signal([Cell(DATASET, scheme, deep, WIDTH, seed=seed) for seed in range(SEEDS)], task)
        for scheme in SCHEMES
    }
    table = summary(records)
    sentences = meaning(records, signals)
    text = f"""{" ".join(sentences)}

## Test accuracy (%) after {counted(epochs, "epoch")}, by depth

Mean ± standard deviation of {SEEDS} networks with different seeds.

{chr(10).join(table.marked().markdown())}

## Learning curves

The band reaches from the worst to the best seed.

![curves](curves)

## The signal before training, {deep} layers

![signal](signal)

## Protocol

Networks of {DEPTHS[0]}, {DEPTHS[1]} and {DEPTHS[2]} hidden layers of {WIDTH} units, no skip connections, no
normalization; Adam, learning rate 0.001/√depth for every initialization, batch size {BATCH}, {SEEDS} seeds. The signal
is that of 256 training images, mean of {SEEDS} seeds. Every number on this page was computed when it was made.
"""
    charts = {"curves": learning(records, "test accuracy (%)"), "signal": signal_chart(signals)}
    path = write_page(out / "index.html", "Deep ReLU networks that train from the first step", text, charts)
    replace(table, title=f"Test accuracy (%) after {counted(epochs, 'epoch')}, by depth").show()
    print("\n" + "\n".join(sentences))
    return path


def meaning(records: Sequence[Record], signals: Mapping[str, SignalProfile]) -> list[str]:
    """What the records and the signal before training show, in sentences."""
    scores: dict[tuple[str, int], list[float]] = {}
    for record in records:
        scores.setdefault((str(record.cell.scheme), record.cell.depth), []).append(record.score)
    mean = {key: float(np.mean(values)) for key, values in scores.items()}
    shallow, deep = min(DEPTHS), max(DEPTHS)
    others = {scheme: mean[scheme, deep] for scheme in SCHEMES if scheme != "stiefel"}
    second = max(others, key=lambda scheme: others[scheme])
    low, high = min(scores["stiefel", deep]), max(scores["stiefel", deep])
    spread = {s: float((signal.std[:, -1] / signal.std[:, 0]).mean()) for s, signal in signals.items()}
    distinct = {scheme: float(signal.distinct[:, -1].mean()) for scheme, signal in signals.items()}
    sentences = [
        f"At {shallow} layers {_at_chance(mean, shallow)}; at {deep} layers {_at_chance(mean, deep)}.",
        f"Stiefel weights, aligned with the all-ones direction, reach {mean['stiefel', deep]:.1f} % at {deep} layers "
        f"({low:.1f} to {high:.1f} over {SEEDS} seeds); the best other initialization ({second}) reaches "
        f"{others[second]:.1f} %.",
    ]
    if faded := [scheme for scheme in SCHEMES if spread[scheme] < FADED]:
        largest = max(spread[scheme] for scheme in faded)
        sentences.append(
            f"The reason lies in the signal before training: with {_and(faded)}, its spread fades to at most "
            f"{largest:.0e} of what it was in the first layer."
        )
    repeats = "so its units repeat each other" if distinct["he"] < distinct["stiefel"] else "as many as stiefel's"
    fades = "fades too" if spread["he"] < FADED else "does not fade"
    sentences.append(
        f"He's signal {fades} (its spread in the last layer is {spread['he']:.2g} of that in the first), but of its "
        f"{WIDTH} units there only {distinct['he']:.1f} are distinct, {repeats}; of stiefel's, "
        f"{distinct['stiefel']:.1f} are, and {100 * signals['stiefel'].active[:, -1].mean():.0f} % fire."
    )
    return sentences


def _at_chance(mean: Mapping[tuple[str, int], float], depth: int) -> str:
    lost = [scheme for scheme in SCHEMES if mean[scheme, depth] < 2 * CHANCE]
    if not lost:
        return "every initialization learns"
    return f"{_and(lost)} {'is' if len(lost) == 1 else 'are'} at chance"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def signal_chart(signals: Mapping[str, SignalProfile]) -> Chart:
    """Spread, distinct units, share of firing units and gradient over the layers; one line for each scheme."""
    panels = []
    for name, label, logarithmic in _PANELS:
        lines = []
        for scheme, measured in signals.items():
            values = getattr(measured, name).mean(0)
            shown = np.where(values > 0, values, np.nan) if logarithmic else values
            lines.append(Line(scheme, screen_colour(scheme), range(1, len(values) + 1), shown))
        panels.append(Panel(label, "layer", label, lines, log_y=logarithmic))
    return Chart("The signal before training, layer by layer", panels)
