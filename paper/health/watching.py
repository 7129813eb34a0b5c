"""How often `watch` is right: the trainings of its records, and what docs/diagnosis-accuracy.md says of them.

Faults: every way to break a training of training_faults.py, in five architectures; named rightly within two samples of
its onset. Healthy: trainings of varied architectures, initializations, optimizers, rates and schedules that learn, and
no event. To reach: 95 % named, 1 % false alarms.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmarks import timing
from benchmarks import watch as cost
from benchmarks.timing import markdown

from stiefel_init.health import IN_TRAINING as RULES
from stiefel_init.lab.report.tables import wrapped
from stiefel_init.torch import watch

from .training_faults import FAULTS, Training, build

Row = dict[str, Any]
EVERY, ONSET, AFTER, STEPS = 10, 155, 2, 300
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": partial(torch.optim.AdamW, weight_decay=0.1),
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}
SCHEDULES: dict[str, Callable[[int], float]] = {
    "constant": lambda step: 1.0,
    "warmup and cosine": lambda step: min(step / 30, 0.5 + 0.5 * math.cos(math.pi * step / STEPS)),
    "steps": lambda step: 0.1 ** (step // 120),
}


def faulty(row: Row) -> Row:
    """Train with the fault of a row, and tell what is said about it."""
    fault, architecture, seed = FAULTS[row["fault"]], row["architecture"], row["seed"]
    model = build(architecture, seed, tanh=fault.tanh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0)
    training = Training(architecture, model, optimizer, torch.Generator().manual_seed(seed), fault.regression)
    onset = 0 if fault.start else ONSET
    if fault.start:
        fault.plant(training)
    events: list[Any] = []
    watching = watch(model, EVERY, report=events.append)
    for step in range(onset + AFTER * EVERY + 1):
        if step == ONSET and not fault.start:
            fault.plant(training)
        watching.step(training.step())
    watching.close()
    told = [event for event in events if event.step >= onset and not event.recovered]
    place = None if fault.place is None else fault.place[architecture]
    named = [event for event in told if event.kind in fault.kinds and place in (None, event.layer)]
    return {
        "fault": row["fault"], "architecture": architecture, "seed": seed, "named": bool(named),
        "first": bool(told) and told[0] in named,
        "early": [str(event) for event in events if event.step < onset],
        "told": [f"{event.kind} {event.layer}".strip() for event in told],
        "line": str(next(iter(named or told), "")),
    }  # fmt: skip


def healthy(row: Row) -> Row:
    """Train a row without a fault, and tell what is said."""
    start = None if row["start"] == "recipe" else row["start"]
    model = build(row["architecture"], row["seed"], tanh=row["tanh"], start=start)
    optimizer = OPTIMIZERS[row["optimizer"]](model.parameters(), row["rate"])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, SCHEDULES[row["schedule"]])
    generator = torch.Generator().manual_seed(row["seed"])
    training = Training(row["architecture"], model, optimizer, generator, row["regression"], row["noise"])
    events: list[Any] = []
    watching = watch(model, EVERY, report=events.append)
    losses = []
    for _ in range(STEPS):
        loss = training.step()
        watching.step(loss)
        scheduler.step()
        losses.append(float(loss.detach()))
    watching.close()
    first, last = statistics.mean(losses[:5]), statistics.mean(losses[-20:])
    return {
        **row, "loss": [float(f"{first:.4g}"), float(f"{last:.4g}")], "trained": last < 0.9 * first,
        "events": [str(event) for event in events if not event.recovered],
    }  # fmt: skip


def rules() -> list[str]:
    header = ["finding", "measured", "found above", "samples in a row", "where the limit comes from"]
    rows = [[r.kind, r.quantity, f"{r.threshold:,g}", str(r.lasting), r.source] for r in RULES.values()]
    return markdown(header, rows)[:-1]


def accuracy() -> list[str]:
    """The part of docs/diagnosis-accuracy.md on faults in training and false alarms."""
    rows, others, runs = (timing.kept(f"watch-{name}")["trainings"] for name in ("faults", "faults-fresh", "healthy"))
    names, kinds = (list(dict.fromkeys(row[key] for row in rows)) for key in ("fault", "architecture"))
    named, first, fresh = (
        statistics.mean(row[key] for row in some) for some, key in ((rows, "named"), (rows, "first"), (others, "named"))
    )
    missed = ", ".join(f"{row['fault']} ({row['architecture']})" for row in rows if not row["named"]) or "none"
    learned = [run for run in runs if run["trained"]]
    wrong = [run for run in learned if run["events"]]
    return [
        *wrapped(
            f"Of {len(rows)} trainings with {len(names)} faults in {len(kinds)} architectures {named:.1%} were named "
            "rightly within two samples, with the layer where it is one layer's, and "
            f"{first:.1%} with the first line. Of {len(others)} with fresh seeds (`faults-fresh`) {fresh:.1%} were "
            f"named. The faults: {', '.join(names)}. Missed: {missed}."
        ), "",
        *wrapped(
            f"Of {len(runs)} trainings without a fault, {STEPS} steps each, {len(learned)} learned (the loss fell by a "
            f"tenth or more). Of these, {len(wrong)} brought an event: {len(wrong) / len(learned):.1%} false alarms."
        ), "",
        *(f"- {run['architecture']}, {run['optimizer']} at {run['rate']:g}: {run['events'][0]}" for run in wrong),
    ]  # fmt: skip


def overhead() -> list[str]:
    """The part of docs/performance.md on what watching costs."""
    return timing.tables("watch-overhead", cost.tables)
