"""Do forecasts hold? What `--dry-run` says of ten studies of different kinds, beside how long they take.

Every forecast and every study is a process of its own, in an empty folder; the forecast comes first. Also, how fast
stacks of the paper's networks train and are tested, by row.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.forecast import _measure
from stiefel_init.lab.train.problem import Problems

from . import timing
from .timing import Record

WITHIN = 1.5
STUDIES = {
    "own data, three rates": (
        "train --data customers.csv --target churn --scheme stiefel,he,orthogonal --depth 10,40 --seeds 4 --lr 0.5,1,2 "
        "--epochs 15"
    ),
    "own data, regression": (
        "train --data customers.csv --target spent --scheme all --depth 30 --seeds 4 --epochs 15 --activation gelu "
        "--decay 0.01 --dropout 0.1 --schedule cosine"
    ),
    "few images of each class": "train --data mnist --shots 8 --batch 0 --epochs 100 --depth 60 --scheme all --seeds 2",
    "best rates, auto": "train --data digits --scheme stiefel,he --depth 20 --seeds 2 --lr auto --epochs 12",
    "deep networks": "train --data digits --scheme permutation,rotation --depth 1000 --width 32 --epochs 3",
    "demo": "demo",
    "table 1, quick": "reproduce table1 --quick",
    "table 3, quick": "reproduce table3 --quick",
    "table 5, quick": "reproduce table5 --quick",
    "on the set, quick": "reproduce on-the-set --quick",
    "signal, quick": "reproduce signal --quick",
    "figure 2": "reproduce figure2",
}
"""Name → the command."""


def customers(path: Path) -> None:
    """A table as users have them: numbers with gaps, a category, a class and an amount."""
    rng = np.random.default_rng(0)
    lines = ["age,visits,region,score,churn,spent"]
    for _ in range(4000):
        age, visits, score = rng.integers(18, 90), rng.poisson(5), rng.standard_normal()
        region = rng.choice(["north", "south", "east", "west"])
        churn = "yes" if score + 0.1 * visits + rng.standard_normal() > 0.5 else "no"
        seen = "" if rng.random() < 0.05 else f"{score:.3f}"
        lines.append(f"{age},{visits},{region},{seen},{churn},{40 * visits + age + 10 * rng.standard_normal():.2f}")
    path.write_text("\n".join(lines) + "\n")


def timed(command: str) -> Record:
    """The forecast of a study, and the seconds it takes."""
    with tempfile.TemporaryDirectory() as folder:
        customers(Path(folder, "customers.csv"))
        words = [sys.executable, "-m", "stiefel_init", *command.split(), "--out", "out"]
        start = time.perf_counter()
        told = subprocess.run([*words, "--dry-run", "--json"], cwd=folder, check=True, capture_output=True, text=True)
        asked = time.perf_counter() - start
        start = time.perf_counter()
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
        real = time.perf_counter() - start
    forecast = json.loads(told.stdout)["seconds"]
    return {"command": command, "forecast": forecast, "real": real, "ratio": real / forecast, "dry_run": asked}


def by_row() -> Iterator[Record]:
    """Microseconds for each row and network, of training and of testing, in stacks of six."""
    for depth, tasks in ((d, Problems()) for d in (10, 50, 100)):
        stack = [Cell("mnist", "stiefel", depth, seed=seed) for seed in range(6)]
        cost, task = _measure(stack, tasks, torch.device("cpu")), tasks(stack[0])
        per = 1e6 / len(stack)
        training, testing = per * cost.step / (stack[0].batch or task.size), per * cost.test / len(task.test_features)
        yield {"depth": depth, "training": training, "testing": testing}


def measure(device: str) -> Iterator[Record]:
    record: Record = {"machine": timing.machine("cpu"), "rows": [], "by_row": list(by_row())}
    for name, command in STUDIES.items():
        record["rows"].append({"study": name, **timed(command)})
        yield record


def tables(record: Record) -> list[str]:
    rows = [
        [row["study"], f"`stiefel-init {row['command']}`", *(f"{row[k]:.0f}" for k in ("forecast", "real")),
         f"{row['ratio']:.2f}"]
        for row in record["rows"]
    ]  # fmt: skip
    speeds = [[str(s["depth"]), f"{s['training']:.1f}", f"{s['testing']:.1f}"] for s in record["by_row"]]
    return [
        f"{timing.where(record)}:", "",
        *timing.markdown(["study", "command", "forecast", "real", "real / forecast"], rows),
        "Microseconds of a row and a network on MNIST, in a stack of six with batches of 256:", "",
        *timing.markdown(["depth", "training", "testing"], speeds),
    ]  # fmt: skip


def section() -> list[str]:
    rows = timing.kept("forecasts-cpu")["rows"]
    held = sum(1 / WITHIN <= row["ratio"] <= WITHIN for row in rows)
    about = [
        "What `--dry-run` says, and how long the study takes; `python -m benchmarks forecasts --write`, seconds, each",
        f"command as a process of its own. {held} of {len(rows)} are within a factor of {WITHIN}.",
    ]
    return timing.section("forecasts", "Forecasts", about, tables)
