"""Time of one training step, per network: as a user writes it, and as the laboratory's engine does it, in one run.

    python benchmarks/engine.py [--device cpu|cuda] [--write]

A step is complete: gather the batch, forward, loss, backward, Adam. The network is 784 → 64 × depth → 10 on
batches of 256. Its floor is 6 · parameters · 256 multiplications and additions at the device's float32 rate.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _timing import in_turns, machine, write_record

from stiefel_init.lab.cells import Cell
from stiefel_init.lab.engine import Stack, Task, train
from stiefel_init.lab.networks import Architecture

INPUTS, WIDTH, CLASSES, BATCH, ROWS = 784, 64, 10, 256, 60_000
SCHEMES = ("stiefel", "lee", "he", "xavier", "orthogonal", "random")


def task(rows: int = ROWS, tests: int = 10_000) -> Task:
    """Data in the shape of MNIST."""
    rng = np.random.default_rng(0)
    features = [rng.integers(0, 256, (count, INPUTS), dtype=np.uint8) for count in (rows, tests)]
    targets = [rng.integers(0, CLASSES, count) for count in (rows, tests)]
    return Task(features[0], targets[0], features[1], targets[1], CLASSES, "cross_entropy", 255.0)


def cells(count: int, depth: int, **options: Any) -> list[Cell]:
    return [Cell("mnist", SCHEMES[i % 6], depth, seed=i, rate=1e-3 / depth**0.5, **options) for i in range(count)]


def plain_step(depth: int, data: Task, device: str, fused: bool) -> Callable[[], None]:
    """One network as a user writes it: nn.Sequential, autograd, torch.optim.Adam."""
    layers: list[torch.nn.Module] = [torch.nn.Linear(INPUTS, WIDTH), torch.nn.ReLU()]
    for _ in range(depth - 1):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CLASSES)).to(device)
    adam = torch.optim.Adam(model.parameters(), fused=fused or None)
    loss = torch.nn.CrossEntropyLoss()
    x, y = torch.from_numpy(data.features).to(device), torch.from_numpy(data.targets).to(device)
    order = torch.randperm(len(x), device=device)
    position = 0

    def step() -> None:
        nonlocal position
        rows = order[position : position + BATCH]
        position = (position + BATCH) % (len(x) - BATCH)
        adam.zero_grad()
        loss(model(x[rows].float() / 255), y[rows]).backward()
        adam.step()

    return step


def stack_step(count: int, depth: int, data: Task, device: str) -> Callable[[], None]:
    """`count` networks as one stack of the engine."""
    stack = Stack(cells(count, depth), [data] * count, torch.device(device), "graph")
    step, _ = stack.steps[0]

    def run() -> None:
        step()
        stack.warm = True
        stack.position.zero_()

    run()
    return run


def work(depth: int) -> float:
    """Multiplications and additions of one step of one network."""
    return 6.0 * Architecture((INPUTS, *(WIDTH,) * depth, CLASSES), "relu").parameters * BATCH


def few_shot_seconds(device: str, count: int = 300) -> float:
    """`count` networks of depth 100: 100 steps on ten images, then the test on 10,000."""
    data = task()
    few = Task(*(getattr(data, name) for name in ("features", "targets", "test_features", "test_targets")),
               data.outputs, data.loss, data.scale, np.arange(10))  # fmt: skip
    for _ in range(2):  # the first run compiles and takes memory
        start = time.perf_counter()
        train(cells(count, 100, shots=1, batch=None, epochs=100), [few] * count, torch.device(device))
        seconds = time.perf_counter() - start
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    device = options.device
    on_gpu = device == "cuda"
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    data = task()
    record: dict[str, Any] = {"machine": machine(device), "precision": "float32", "steps": []}
    print(f"{record['machine']['device']}: milliseconds per step of one network; x: times the speed of the plain loop")
    for depth in (10, 50, 100):
        counts = (1, 12, 60, 240) if on_gpu else (1, 6, 12)
        steps = {f"stack of {count}": stack_step(count, depth, data, device) for count in counts}
        steps["plain loop"] = plain_step(depth, data, device, fused=False)
        steps["plain loop, fused Adam"] = plain_step(depth, data, device, fused=True)
        seconds = in_turns(steps, synchronize=synchronize, rounds=5, seconds=0.2)
        per_network = {
            name: value / (int(name.split()[-1]) if "stack" in name else 1) for name, value in seconds.items()
        }
        for name, value in sorted(per_network.items(), key=lambda item: -item[1]):
            row = {
                "depth": depth,
                "way": name,
                "milliseconds": 1e3 * value,
                "speedup": per_network["plain loop"] / value,
                "teraflops": work(depth) / value / 1e12,
            }
            record["steps"].append(row)
            print(
                f"  depth {depth:>3}  {name:<24}{row['milliseconds']:>9.4f} ms {row['speedup']:>8.1f}x "
                f"{row['teraflops']:>7.2f} TFLOP/s",
                flush=True,
            )
        del steps
        gc.collect()  # the graphs now, not while the next are captured
        if on_gpu:
            torch.cuda.empty_cache()
    if on_gpu:
        record["few_shot_seconds"] = few_shot_seconds(device)
        print(
            f"few-shot, 300 networks of depth 100, 100 steps and 10,000 test images: {record['few_shot_seconds']:.2f} s"
        )
    if options.write:
        print(f"wrote {write_record(f'engine-{device}', record)}")


if __name__ == "__main__":
    main()
