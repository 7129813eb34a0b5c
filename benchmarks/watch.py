"""How often `watch` is right, and what it costs.

    python benchmarks/watch.py [--device cpu|cuda] [--only faults,healthy,overhead] [--workers N] [--write]

Faults: every way to break a training of watch_faults.py, in five architectures; named rightly within two samples of its
onset. Healthy: trainings of varied architectures, starts, optimizers, rates and schedules that learn, and no event. To
reach: 95 % named, 1 % false alarms. Overhead: of a ReLU network of 100 layers, of ResNet-18 and of GPT-2 small, watched
every 50 steps, and of steps that are not sampled. To reach: 3 % and 1 %.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import torch
from _timing import RECORDS, write_record
from watch_cost import overhead
from watch_faults import ARCHITECTURES, FAULTS, Training, build

from stiefel_init.torch import watch

EVERY, ONSET, AFTER = 10, 155, 2
STEPS = 300
SEEDS, FRESH = 1, 1000
STARTS = (None, "torch", "he", "orthogonal")


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
    kind, rate = chosen.choice(
        [
            ("adam", 3e-4),
            ("adam", 1e-3),
            ("adam", 3e-3),
            ("adamw", 1e-3),
            ("sgd", 0.01),
            ("sgd", 0.03),
            ("momentum", 0.01),
        ]
    )
    schedule, noise = chosen.choice(("constant", "warmup and cosine", "steps")), chosen.choice((0.5, 1.0, 2.0))
    model = build(architecture, seed, tanh=tanh, start=start)
    makers = {
        "adam": lambda: torch.optim.Adam(model.parameters(), rate),
        "adamw": lambda: torch.optim.AdamW(model.parameters(), rate, weight_decay=0.1),
        "sgd": lambda: torch.optim.SGD(model.parameters(), rate),
        "momentum": lambda: torch.optim.SGD(model.parameters(), rate, momentum=0.9),
    }
    optimizer = makers[kind]()
    rates: dict[str, Any] = {
        "constant": lambda step: 1.0,
        "warmup and cosine": lambda step: min(
            step / 30, 0.5 + 0.5 * torch.cos(torch.tensor(step / STEPS * 3.14159)).item()
        ),
        "steps": lambda step: 0.1 ** (step // 120),
    }
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rates[schedule])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="faults,healthy,overhead")
    parser.add_argument("--healthy", type=int, default=200, help="how many trainings without a fault")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--fresh", action="store_true", help="other seeds, which no rule or limit was chosen with")
    parser.add_argument("--rounds", type=int, default=200, help="of the overhead, at most")
    parser.add_argument("--seconds", type=float, default=25.0, help="for the overhead of a model, about")
    parser.add_argument("--model", default="", help="overhead of models whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    parts = options.only.split(",")
    first, suffix = (FRESH, "-fresh") if options.fresh else (0, "")
    with ProcessPoolExecutor(options.workers) as pool:
        if "faults" in parts:
            tasks = [
                (number, architecture, seed)
                for number, architecture, seed in product(
                    range(len(FAULTS)), ARCHITECTURES, range(first, first + options.seeds)
                )
                if architecture not in FAULTS[number].harmless
            ]
            rows = list(pool.map(faulty, tasks))
            for row in rows:
                if not row["named"] or row["early"]:
                    print(row["fault"], row["architecture"], row["seed"], row["told"], row["line"], row["early"])
            shares = {name: sum(row[name] for row in rows) / len(rows) for name in ("named", "first")}
            print(f"{len(rows)} faults: {shares['named']:.1%} named, {shares['first']:.1%} with the first line")
            keep(
                f"watch-faults{suffix}",
                {"every": EVERY, "onset": ONSET, "after": AFTER, "trainings": rows},
                options.write,
            )
        if "healthy" in parts:
            runs = list(pool.map(healthy, range(first, first + options.healthy)))
            for run in runs:
                if run["events"]:
                    print(*(f"{key}={value}" for key, value in run.items()))
            learned = [run for run in runs if run["trained"]]
            wrong = sum(bool(run["events"]) for run in learned)
            print(f"{len(runs)} trainings without a fault, {len(learned)} learned; {wrong} false alarms on these")
            keep(f"watch-healthy{suffix}", {"every": EVERY, "steps": STEPS, "trainings": runs}, options.write)
    if "overhead" in parts:
        cost = overhead(options.device, options.rounds, options.model, options.seconds)
        print(json.dumps(cost, indent=1))
        keep(f"watch-overhead-{options.device}", cost, options.write)


def keep(name: str, record: dict[str, Any], write: bool) -> None:
    """One line for each training."""
    if not write:
        return
    trainings = record.pop("trainings", None)
    path = write_record(name, record)
    if trainings is not None:
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in trainings)
        head = json.dumps(record, indent=1)[:-2]
        path.write_text(f'{head},\n "trainings": [\n{lines}\n ]\n}}\n')
    print(f"wrote {path.relative_to(RECORDS.parent)}")


if __name__ == "__main__":
    main()
