"""Time of one training step, per network: as users write it, and as the laboratory's engines do it, in one run.

A step is complete: gather the batch, forward, loss, backward, Adam. The network is 784 → 64 × depth → 10 on
batches of 256. Its floor is 6 · parameters · 256 multiplications and additions at the device's float32 rate, and, for
the fused engine, the bytes of its activations, gradients, parameters and moments at the memory's rate.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from paper.networks import mlp
from paper.tables.protocol import SCHEMES

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.family import PrecisionName
from stiefel_init.lab.train.graph import GraphEngine
from stiefel_init.lab.train.network import Architecture
from stiefel_init.lab.train.problem import Problem
from stiefel_init.lab.train.stack import Stack
from stiefel_init.lab.train.training import EngineName, pick_engine

from . import timing
from .timing import Record

INPUTS, WIDTH, CLASSES, BATCH, ROWS = 784, 64, 10, 256, 60_000
Step = Callable[[], Any]
SHOWN = (
    "plain loop", "plain loop, fused Adam", "graph engine, 1", "graph engine, 12", "torch.func vmap, 12",
    "jax vmap + scan, 132", "fused engine, 1", "fused engine, 12", "fused engine, 132", "fused engine tf32, 132",
)  # fmt: skip
"""On the page; all ways and depths are in docs/tables/training-steps.csv."""


def task() -> Problem:
    rng = np.random.default_rng(0)
    features = [rng.integers(0, 256, (count, INPUTS), dtype=np.uint8) for count in (ROWS, 10_000)]
    targets = [rng.integers(0, CLASSES, count) for count in (ROWS, 10_000)]
    return Problem(features[0], targets[0], features[1], targets[1], CLASSES, "cross_entropy", 255.0)


def plain_step(depth: int, data: Problem, device: str, *, fused: bool = False, compiled: bool = False) -> Step:
    """One network as a user writes it: nn.Sequential, autograd, torch.optim.Adam."""
    model = mlp(INPUTS, CLASSES, depth + 1, WIDTH).to(device)
    adam = torch.optim.Adam(model.parameters(), fused=fused or None)
    forward = torch.compile(model, mode="reduce-overhead") if compiled else model
    loss = torch.nn.CrossEntropyLoss()
    x, y = torch.from_numpy(data.features).to(device), torch.from_numpy(data.targets).to(device)
    order = torch.randperm(len(x), device=device)
    position = 0

    def step() -> None:
        nonlocal position
        rows = order[position : position + BATCH]
        position = (position + BATCH) % (len(x) - BATCH)
        adam.zero_grad()
        loss(forward(x[rows].float() / 255), y[rows]).backward()
        adam.step()

    return step


def vmap_step(count: int, depth: int, data: Problem, device: str) -> Step:
    """`count` networks by torch.func: vmap of grad over stacked parameters, fused Adam."""
    widths = (INPUTS, *(WIDTH,) * depth, CLASSES)
    weights = [torch.randn(count, m, n, device=device) * (2 / n) ** 0.5 for n, m in itertools.pairwise(widths)]
    biases = [torch.zeros(count, m, device=device) for m in widths[1:]]
    adam = torch.optim.Adam(weights + biases, fused=True)

    def loss(weights: list[torch.Tensor], biases: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for w, b in zip(weights[:-1], biases[:-1]):
            x = torch.relu(x @ w.mT + b)
        return torch.nn.functional.cross_entropy(x @ weights[-1].mT + biases[-1], y)

    gradient = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))
    x, y = torch.from_numpy(data.features).to(device), torch.from_numpy(data.targets).to(device)
    order = torch.stack([torch.randperm(len(x), device=device)[:BATCH] for _ in range(count)])

    def step() -> None:
        slopes = gradient(weights, biases, x[order].float() / 255, y[order])
        for parameter, slope in zip(weights + biases, slopes[0] + slopes[1]):
            parameter.grad = slope
        adam.step()

    return step


def stack_step(
    count: int, depth: int, data: Problem, device: str, engine: EngineName, precision: PrecisionName = "float32"
) -> Step:
    """`count` networks as one stack of an engine."""
    rate, where = 1e-3 / depth**0.5, torch.device(device)
    own = [Cell("mnist", SCHEMES[i % 6], depth, seed=i, rate=rate, precision=precision) for i in range(count)]
    training = pick_engine(engine, own[0], data, where)(Stack(own, [data] * count, where))

    def step() -> None:
        if isinstance(training, GraphEngine):
            training.position.zero_()
        training.step(0, training.stack.batch)

    for _ in range(2):
        step()
    return step


def parameters_of(depth: int) -> int:
    return Architecture((INPUTS, *(WIDTH,) * depth, CLASSES), "relu").parameters


def traffic(depth: int, precision: str = "float32") -> float:
    """Bytes the fused engine must move for one step of one network."""
    parameters = parameters_of(depth)
    # Activations: written, and read on the way back. Parameters: read forward and back, then with both moments read
    # and written. Gradients of float32: a share of each for every 64 rows, written and read; of tf32: none leaves.
    kept = 2.0 * BATCH * WIDTH * depth
    if precision == "tf32":
        return 2 * kept + 7 * 4 * parameters + 2 * BATCH * INPUTS
    return 4 * (kept + (2 * BATCH // 64 + 8) * parameters) + 2 * BATCH * INPUTS


def ceilings(device: str) -> tuple[float, float]:
    """(float32 flop/s of a large matmul, bytes/s of a large copy) of this machine."""
    size = 8192 if device == "cuda" else 2048
    a = torch.randn(size, size, device=device)
    b = torch.empty_like(a).repeat(4, 1)
    c = torch.empty_like(b)
    ways: timing.Ways = {"matmul": lambda: a @ a, "copy": lambda: c.copy_(b)}
    seconds = timing.in_turns(ways, synchronize=timing.waiting(device), rounds=3)
    return 2 * size**3 / seconds["matmul"], 2 * b.nbytes / seconds["copy"]


def contenders(depth: int, data: Problem, device: str) -> dict[str, tuple[int, Callable[[], Step]]]:
    """Every way to take a step, by name: how many networks it trains, and how to set it up."""
    plain, stack = partial(plain_step, depth, data, device), partial(stack_step, depth=depth, data=data, device=device)
    ways: dict[str, tuple[int, Callable[[], Step]]] = {}
    if depth <= 100:
        ways |= {"plain loop": (1, plain), "plain loop, fused Adam": (1, partial(plain, fused=True))}
    if device == "cpu":
        return ways | {f"graph engine, {n}": (n, partial(stack, n, engine="graph")) for n in (1, 6, 12)}
    if depth <= 100:
        ways["torch.func vmap, 12"] = 12, partial(vmap_step, 12, depth, data, device)
    for count in (1, 12, 60, 132, 240, 528) if depth == 100 else (1, 12, 132, 528):
        if count * depth <= 60_000:
            ways[f"graph engine, {count}"] = count, partial(stack, count, engine="graph")
        ways[f"fused engine, {count}"] = count, partial(stack, count, engine="fused")
    for count in (1, 132, 528):
        ways[f"fused engine tf32, {count}"] = count, partial(stack, count, engine="fused", precision="tf32")
    if depth == 10:  # last, since it compiles for long
        ways["plain loop, torch.compile"] = 1, partial(plain, fused=True, compiled=True)
    return ways


def measure(device: str) -> Iterator[Record]:
    on_gpu, data = device == "cuda", task()
    flops, bandwidth = ceilings(device)
    record: Record = {"machine": timing.machine(device), "flops": flops, "bandwidth": bandwidth, "steps": []}
    for depth in (100, 1000, 50, 10) if on_gpu else (10, 50, 100):
        plain = None
        for name, (count, make) in contenders(depth, data, device).items():
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            step = make()
            turns = timing.in_turns({name: step}, synchronize=timing.waiting(device), rounds=3, seconds=0.1)
            seconds, memory = turns[name] / count, torch.cuda.max_memory_allocated() if on_gpu else 0
            plain = seconds if name == "plain loop" else plain
            del step
            gc.collect()  # graphs go now, not while the next one is captured
            if on_gpu:
                torch.cuda.empty_cache()
            moved = traffic(depth, "tf32" if "tf32" in name else "float32")
            record["steps"].append({
                "depth": depth, "way": name, "milliseconds": 1e3 * seconds, "steps_per_second": 1 / seconds,
                "flops_share": 6.0 * parameters_of(depth) * BATCH / seconds / flops, "peak_memory": memory,
                "memory_share": moved / seconds / bandwidth if "fused engine" in name else None,
                "speedup": plain / seconds if plain else None,
            })  # fmt: skip
        yield record


def listed(record: Record) -> timing.Listed:
    """All that was measured."""
    rows = [
        [
            str(row["depth"]), row["way"], f"{row['milliseconds']:.4g}",
            f"{row['speedup']:.{0 if row['speedup'] >= 10 else 2}f}" if row["speedup"] else "—",
            f"{row['flops_share']:.0%}", f"{row['memory_share']:.0%}" if row["memory_share"] else "—",
            f"{row['peak_memory'] / 2**30:.2f} GiB" if row["peak_memory"] else "—",
        ]
        for row in sorted(record["steps"], key=lambda row: row["depth"])
    ]  # fmt: skip
    return ["depth", "way, networks at once", "ms", "× plain loop", "of float32 rate", "of bandwidth", "memory"], rows


def tables(record: Record) -> list[str]:
    header, rows = listed(record)
    chosen = [row[1:4] for row in rows if row[0] == "100" and row[1] in SHOWN]
    few = "Few-shot: 300 networks of depth 100, 100 steps each, and a test on 10,000 images:"
    told = [f"{few} {record['few_shot_seconds']:.2f} s.", ""] if "few_shot_seconds" in record else []
    return [f"{timing.where(record)}, 100 layers:", "", *timing.markdown(header[1:4], chosen), *told]
