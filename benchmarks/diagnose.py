"""Time of `diagnose` against one forward and backward pass of the same network, and of `theory.propagate`, in one run.

The network is a plain ReLU one, 64 wide, on a batch of 256. Two figures are given for diagnose: all its time, and its
overhead beyond the forward and backward pass that it makes itself, both in units of such a pass. To reach: at most 3 at
100 layers; propagate through 1,000 layers within 50 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from paper.networks import mlp
from paper.tables.protocol import SCHEMES
from torch import nn

from stiefel_init.theory import propagate
from stiefel_init.torch import diagnose, initialize_

from . import timing
from .timing import Record, Ways

WIDTH, BATCH, LAYERS = 64, 256, 1000
DEPTHS = (10, 100, 300)


def network(depth: int, device: str) -> nn.Sequential:
    model = mlp(WIDTH, 10, depth + 1, WIDTH).to(device)
    initialize_(model, recipe="paper", seed=0)
    return model


def measure(device: str) -> Iterator[Record]:
    generator, waiting = torch.Generator().manual_seed(0), timing.waiting(device)
    x = torch.rand(BATCH, WIDTH, generator=generator).to(device)
    y = torch.randint(10, (BATCH,), generator=generator).to(device)
    record: Record = {"machine": timing.machine(device), "width": WIDTH, "batch": BATCH, "diagnose": []}
    for depth in DEPTHS:
        model = network(depth, device)

        def step(model: nn.Module = model) -> None:
            nn.functional.cross_entropy(model(x), y).backward()

        ways: Ways = {"forward and backward": step, "diagnose": partial(diagnose, model, x, y)}
        times = timing.in_milliseconds(timing.in_turns(ways, synchronize=waiting, rounds=15, seconds=0.2))
        ratio = times["diagnose"] / times["forward and backward"]
        row: Record = {"depth": depth, "milliseconds": times, "ratio": ratio, "overhead": ratio - 1}
        record["diagnose"].append(row)
    passes = {s: partial(propagate, [WIDTH] * (LAYERS + 1), mean=0.3, std=1.0, scheme=s) for s in SCHEMES}
    seconds = timing.in_turns(passes, rounds=5)
    record["propagate"] = {"layers": LAYERS, "milliseconds": timing.in_milliseconds(seconds)}
    yield record


def tables(record: Record) -> list[str]:
    rows = [
        [str(row["depth"]), *(f"{ms:.1f}" for ms in row["milliseconds"].values()), f"{row['ratio']:.1f}"]
        for row in record["diagnose"]
    ]
    lines = [f"{timing.where(record)}; {record['width']} wide, {record['batch']} inputs:", ""]
    lines += timing.markdown(["layers", *record["diagnose"][0]["milliseconds"], "ratio"], rows)
    times = record["propagate"]["milliseconds"].values()
    return [
        *lines,
        f"`theory.propagate` through {record['propagate']['layers']:,} layers takes {min(times):.0f} to "
        f"{max(times):.0f} ms, by scheme.", "",
    ]  # fmt: skip
