"""The demo: PyTorch's default, He's initialization and `initialize_` at three depths, three seeds; one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...torch import Diagnosis
from ..progress import counted
from ..report.tables import Table, plain, summary
from ..train.family import DeviceName
from ..train.record import Record
from ..train.runner import run
from . import diagnosis, files, plan
from .page import page

DATASET = "digits"
DEPTHS = (10, 50, 100)
WIDTH = 64
SEEDS = 3
NAMES = {"torch": "PyTorch's default", "he": "He's initialization", "recipe": "initialize_(model)"}
"""What is compared, by the name of its scheme; the last is ours."""


def planned(epochs: int) -> plan.Study:
    """What the demo trains."""
    depths = ",".join(map(str, DEPTHS))
    cells = plan.grid(DATASET, ",".join(NAMES), depths, "relu", width=WIDTH, epochs=epochs, batch=64)
    return plan.plan(cells, SEEDS, plan.rates("1"), {}, None)


def run_demo(out: Path, device: DeviceName, epochs: int) -> Path:
    """Train, print the tables and what they mean, and write index.html; returns its path."""
    study = planned(epochs)
    plan.check(study, out, None, device, "local")
    count, deep = len(study.settings) * SEEDS, max(DEPTHS)
    print(f"Training {count} plain ReLU networks on {DATASET}: {', '.join(NAMES.values())}; depths {DEPTHS}.")
    outcome = plan.run_study(study, lambda cells: run(cells, out=out, device=device, title="demo"))
    batch = diagnosis.batch(DATASET)
    signals = {depth: diagnosis.of_schemes(",".join(NAMES), depth, WIDTH, "relu", batch) for depth in DEPTHS}
    told = meaning(outcome.records, signals[deep])
    more = {f"The signal before training, {deep} layers": diagnosis.chart(signals[deep])}
    rows = [
        [depth, *(f"{score} ({_distinct(signals[int(depth)][name]):.1f})" for name, score in zip(NAMES, scores))]
        for depth, *scores in summary(outcome.records).rows
    ]
    words = ", ".join(f"{name} is {shown}" for name, shown in NAMES.items())
    above = f"In brackets: distinct units of {WIDTH} in the last hidden layer, untrained. {words}."
    short = [
        [depth, *(f"{cell.partition(' ±')[0]} ({cell.rpartition('(')[2]}" for cell in row)] for depth, *row in rows
    ]
    scores = Table(plain(above), ["depth", *NAMES], short)
    title = "Deep ReLU networks that train from the first step"
    path = page(outcome, files.summarized(outcome), out / files.PAGE, title, told, more, scores)
    title = f"Test accuracy (%) after {counted(epochs, 'epoch')} (in brackets: distinct units of {WIDTH}, untrained)"
    Table(f"\n{title}", ["depth", *NAMES.values()], rows).show()
    print("\n" + "\n".join(told))
    return path


def meaning(records: Sequence[Record], signals: Mapping[str, Diagnosis]) -> list[str]:
    """What the records and the signal before training show, in sentences."""
    deep = max(DEPTHS)
    scores: dict[str, list[float]] = {name: [] for name in NAMES}
    for record in records:
        if record.cell.depth == deep:
            scores[str(record.cell.scheme)].append(record.score)
    reached = {name: f"{np.mean(values):.1f} %" for name, values in scores.items()}
    *others, ours = NAMES
    distinct = {name: f"{_distinct(signals[name]):.3g}" for name in NAMES}
    return [
        f"At {deep} layers {NAMES[ours]} reaches {reached[ours]}, "
        f"{' and '.join(f'{NAMES[name]} {reached[name]}' for name in others)}; guessing reaches 10 %.",
        f"The reason can be seen before training. Of the {WIDTH} units of the last hidden layer, "
        f"{distinct[ours]} differ from each other with {NAMES[ours]}, "
        f"{' and '.join(f'{distinct[name]} with {NAMES[name]}' for name in others)}.",
        "In your own code: initialize_(model), and torch.optim.Adam(param_groups(model, 1e-3)).",
    ]


def _distinct(signal: Diagnosis) -> float:
    """How many units of the last hidden layer differ; none, where no input makes a difference there."""
    return signal.layers[-2].distinct or 0.0
