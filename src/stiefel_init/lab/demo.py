"""The demo: six initializations, three depths, one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import pictures, study
from .cells import SCHEMES, Cell
from .page import Page
from .records import Record, prepare
from .runner import pick_device, run
from .signal import measure
from .tasks import Tasks

DATASET = "digits"
DEPTHS = (10, 50, 100)
BATCH = 64
CHANCE = 10.0


def run_demo(out: Path, device: str, epochs: int) -> Path:
    """Train, print the table, and write learning-curves.png, signal.png and index.html; the page's path."""
    pick_device(device)
    prepare(out)
    cells = [
        Cell(DATASET, scheme, depth, epochs=epochs, batch=BATCH, rate=1e-3 / math.sqrt(depth), experiment="demo")
        for depth in DEPTHS
        for scheme in SCHEMES
    ]
    print(f"Training {len(cells)} plain ReLU networks on {DATASET}: {len(SCHEMES)} initializations, depths {DEPTHS}.")
    records = run(cells, out=out, device=device, title="demo")
    task = Tasks()(cells[0])
    deep = max(DEPTHS)
    signals = {scheme: measure([Cell(DATASET, scheme, deep)], task) for scheme in SCHEMES}
    curves = pictures.learning_curves(records, f"Learning {DATASET}: plain ReLU networks, 64 wide")
    signal = pictures.signal(signals, f"The signal at initialization, {deep} layers")
    pictures.save(curves, out / "learning-curves.png")
    pictures.save(signal, out / "signal.png")

    header, rows = study.summary(records)
    sentences = meaning(records, signals[SCHEMES[0]].active[0, -1])
    page = Page("Deep ReLU networks that train from the first step")
    page.text(" ".join(sentences))
    page.heading(f"Test accuracy (%) after {epochs} epochs, by depth")
    page.table(header, rows)
    page.heading("Learning curves")
    page.picture(curves, "Test accuracy against epoch for six initializations at three depths")
    page.heading("The signal before training")
    page.picture(signal, "Spread, share of firing units and gradient over the layers at initialization")
    page.text(
        f"Networks of {DEPTHS[0]}, {DEPTHS[1]} and {DEPTHS[2]} hidden layers of 64 units, no skip connections, no "
        f"normalization; Adam, learning rate 0.001/√depth for every initialization, batches of {BATCH}, one seed. "
        "Every number on this page was computed when the page was made.",
        "note",
    )
    path = page.write(out / "index.html")

    print(f"\nTest accuracy (%) after {epochs} epochs:")
    for row in [header, *rows]:
        print("  " + row[0].ljust(8) + "".join(cell.rjust(13) for cell in row[1:]))
    print("\n" + "\n".join(sentences))
    print(f"\nPictures: {out / 'learning-curves.png'}, {out / 'signal.png'}")
    return path


def meaning(records: Sequence[Record], firing: float) -> list[str]:
    """Three sentences that say what the records show."""
    score = {(r["scheme"], r["depth"]): r["score"] or 0.0 for r in records}
    shallow, deep = min(DEPTHS), max(DEPTHS)
    others = {s: score[s, deep] for s in SCHEMES if s != "stiefel"}
    rival = max(others, key=lambda s: others[s])
    return [
        f"At {shallow} layers {_at_chance(score, shallow)}; at {deep} layers {_at_chance(score, deep)}.",
        f"Weights drawn on the Stiefel manifold and aligned with the ones direction reach "
        f"{score['stiefel', deep]:.1f} % at {deep} layers, against {others[rival]:.1f} % for the best other one "
        f"({rival}).",
        f"The pictures show why: with them {firing:.0%} of the units of the last layer fire, and neither the signal "
        "nor the gradient fades on its way through the layers.",
    ]


def _at_chance(score: Mapping[tuple[str, int], float], depth: int) -> str:
    lost = [scheme for scheme in SCHEMES if score[scheme, depth] < 2 * CHANCE]
    if not lost:
        return "every initialization learns"
    return f"{_and(lost)} {'is' if len(lost) == 1 else 'are'} at chance"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
