"""How often `watch` is right.

    python -m paper.health.watching [--fresh] [--workers N] [--write]

Faults: every way to break a training of training_faults.py, in five architectures; named rightly within two samples of
its onset. Healthy: trainings of varied architectures, initializations, optimizers, rates and schedules that learn, and
no event. To reach: 95 % named, 1 % false alarms.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from typing import Any

import torch
from benchmarks import timing
from benchmarks import watch as cost

from stiefel_init.health import IN_TRAINING as RULES
from stiefel_init.lab.report.tables import Table
from stiefel_init.torch import watch

from .training_faults import ARCHITECTURES, FAULTS, Training, build

EVERY, ONSET, AFTER = 10, 155, 2
STEPS = 300
FRESH = 1000
STARTS = (None, "torch", "he", "orthogonal")
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": partial(torch.optim.AdamW, weight_decay=0.1),
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}
CHOICES = (
    ("adam", 3e-4), ("adam", 1e-3), ("adam", 3e-3), ("adamw", 1e-3), ("sgd", 0.01), ("sgd", 0.03), ("momentum", 0.01),
)  # fmt: skip
SCHEDULES: dict[str, Callable[[int], float]] = {
    "constant": lambda step: 1.0,
    "warmup and cosine": lambda step: min(step / 30, 0.5 + 0.5 * math.cos(math.pi * step / STEPS)),
    "steps": lambda step: 0.1 ** (step // 120),
}


def faulty(task: tuple[int, str, int]) -> dict[str, Any]:
    """Train with a fault, and tell what was said about it."""
    torch.set_num_threads(1)
    number, architecture, seed = task
    fault = FAULTS[number]
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
        "fault": fault.name,
        "architecture": architecture,
        "seed": seed,
        "named": bool(named),
        "first": bool(told) and told[0] in named,
        "early": [str(event) for event in events if event.step < onset],
        "told": [f"{event.kind} {event.layer}".strip() for event in told],
        "line": str(named[0] if named else told[0] if told else ""),
    }


def healthy(seed: int) -> dict[str, Any]:
    """Train without a fault, and tell what was said."""
    torch.set_num_threads(1)
    chosen = random.Random(seed)
    architecture = ARCHITECTURES[seed % len(ARCHITECTURES)]
    start, tanh = chosen.choice(STARTS), chosen.random() < 0.25
    kind, rate = chosen.choice(CHOICES)
    schedule, noise = chosen.choice(list(SCHEDULES)), chosen.choice((0.5, 1.0, 2.0))
    model = build(architecture, seed, tanh=tanh, start=start)
    optimizer = OPTIMIZERS[kind](model.parameters(), rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, SCHEDULES[schedule])
    generator = torch.Generator().manual_seed(seed)
    training = Training(architecture, model, optimizer, generator, chosen.random() < 0.25, noise)
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
        "seed": seed, "architecture": architecture, "start": start or "recipe", "tanh": tanh, "optimizer": kind,
        "rate": rate, "schedule": schedule, "noise": noise, "regression": training.regression,
        "loss": [float(f"{first:.4g}"), float(f"{last:.4g}")], "trained": last < 0.9 * first,
        "events": [str(event) for event in events if not event.recovered],
    }  # fmt: skip


def rules() -> list[str]:
    """The table of the rules in docs/watch.md."""
    header = ["finding", "measured", "found above", "samples in a row", "where the limit comes from"]
    rows = [[r.kind, r.quantity, f"{r.threshold:,g}", str(r.lasting), r.source] for r in RULES.values()]
    return Table("", header, rows).markdown()


def accuracy() -> list[str]:
    """The part of docs/watch.md on faults, false alarms and cost."""
    lines = ["`python -m paper.health.watching --write`, `python -m benchmarks watch --write`.", ""]
    if (faults := timing.read("watch-faults")) is not None:
        rows = faults["trainings"]
        names = list(dict.fromkeys(row["fault"] for row in rows))
        kinds = list(dict.fromkeys(row["architecture"] for row in rows))
        named, first = (sum(row[key] for row in rows) / len(rows) for key in ("named", "first"))
        lines += [
            f"{len(names)} ways to break a training were planted in {len(kinds)} small architectures, before the first",
            f"step or at step {faults['onset']}, and sampled every {faults['every']} steps. Of {len(rows)} trainings,",
            f"{named:.1%} were named rightly within two samples, with the layer where it is one layer's, and",
            f"{first:.1%} with the first line. A dash: it trains all the same.",
            "",
        ]
        if (fresh := timing.read("watch-faults-fresh")) is not None:
            others = fresh["trainings"]
            share = sum(row["named"] for row in others) / len(others)
            lines += [
                "Limits, and how hard some faults hit, were chosen with these trainings in view. Seeds that had no",
                f"part in that (`--fresh`): {share:.1%} of {len(others)} named; the faults are the same.",
                "",
            ]
        cells = {(row["fault"], row["architecture"]): row["named"] for row in rows}
        marks = {True: "named", False: "missed", None: "—"}
        table = [[name, *(marks[cells.get((name, kind))] for kind in kinds)] for name in names]
        lines += [*Table("", ["fault", *kinds], table).markdown(), ""]
    if (healthy := timing.read("watch-healthy")) is not None:
        runs = healthy["trainings"]
        learned = [run for run in runs if run["trained"]]
        wrong = [run for run in learned if run["events"]]
        lines += [
            f"{len(runs)} trainings without a fault, of random architecture, start, optimizer, rate and schedule,",
            f"took {healthy['steps']} steps each; {len(learned)} of them learned (the loss fell by a tenth or more).",
            f"Of these, {len(wrong)} brought an event: {len(wrong) / len(learned):.1%} false alarms.",
            "",
            "The limits were chosen with these trainings in view, too.",
            "",
            *(f"- {run['architecture']}, {run['optimizer']} at {run['rate']:g}: {run['events'][0]}" for run in wrong),
            *([""] if wrong else []),
        ]
    return [*lines, *(line for record in timing.on_devices("watch-overhead") for line in cost.tables(record))][:-1]


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--healthy", type=int, default=200, help="how many trainings without a fault")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="other seeds, which no rule or limit was chosen with")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    first, suffix = (FRESH, "-fresh") if options.fresh else (0, "")
    tasks = [
        (number, architecture, seed)
        for number, architecture in product(range(len(FAULTS)), ARCHITECTURES)
        for seed in range(first, first + options.seeds)
        if architecture not in FAULTS[number].harmless
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        broken = list(pool.map(faulty, tasks))
        whole = list(pool.map(healthy, range(first, first + options.healthy)))
    for row in broken:
        if not row["named"] or row["early"]:
            print("missed:", row)
    for row in whole:
        if row["events"]:
            print("events without a fault:", row)
    if options.write:
        told = {"every": EVERY, "onset": ONSET, "after": AFTER, "trainings": broken}
        timing.write(f"watch-faults{suffix}", told, "trainings")
        timing.write(f"watch-healthy{suffix}", {"every": EVERY, "steps": STEPS, "trainings": whole}, "trainings")


if __name__ == "__main__":
    main()
