"""Time of `diagnose` against one forward and backward pass of the same network, and of `theory.propagate`, in one run.

    python benchmarks/diagnose.py [--device cpu|cuda] [--write]

The network is a plain ReLU one, 64 wide, on a batch of 256. Two figures are given for diagnose: all its time, and its
overhead beyond the forward and backward pass that it makes itself, both in units of such a pass. To reach: at most 3 at
100 layers; propagate through 1,000 layers within 50 ms.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from _timing import in_turns, machine, write_record
from torch import nn

from stiefel_init.lab.paper.protocol import SCHEMES
from stiefel_init.theory import propagate
from stiefel_init.torch import diagnose, initialize_

WIDTH, BATCH, LAYERS = 64, 256, 1000
DEPTHS = (10, 100, 300)


def network(depth: int, device: str) -> nn.Sequential:
    layers = [module for _ in range(depth) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10)).to(device)
    initialize_(model, recipe="paper", seed=0)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    device = options.device
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, WIDTH, generator=generator).to(device)
    y = torch.randint(10, (BATCH,), generator=generator).to(device)

    record: dict[str, Any] = {"machine": machine(device), "width": WIDTH, "batch": BATCH, "diagnose": []}
    print(f"{record['machine']['device']}, {record['machine']['threads']} threads, milliseconds")
    for depth in DEPTHS:
        model = network(depth, device)

        def step(model: nn.Module = model) -> None:
            nn.functional.cross_entropy(model(x), y).backward()

        def diagnosis(model: nn.Module = model) -> None:
            diagnose(model, x, y)

        seconds = in_turns(
            {"forward and backward": step, "diagnose": diagnosis}, synchronize=synchronize, rounds=15, seconds=0.2
        )
        ratio = seconds["diagnose"] / seconds["forward and backward"]
        times = {name: 1e3 * value for name, value in seconds.items()}
        record["diagnose"].append({"depth": depth, "milliseconds": times, "ratio": ratio, "overhead": ratio - 1})
        cells = ", ".join(f"{name} {value:.2f}" for name, value in times.items())
        print(f"depth {depth:>4}: {cells}; {ratio:.2f} times, {ratio - 1:.2f} beyond its own pass", flush=True)

    seconds = in_turns(
        {s: partial(propagate, [WIDTH] * (LAYERS + 1), mean=0.3, std=1.0, scheme=s) for s in SCHEMES}, rounds=5
    )
    record["propagate"] = {"layers": LAYERS, "milliseconds": {name: 1e3 * value for name, value in seconds.items()}}
    print(f"propagate, {LAYERS} layers: {', '.join(f'{k} {1e3 * v:.1f}' for k, v in seconds.items())}")
    if options.write:
        print(f"wrote {write_record(f'diagnose-{device}', record)}")


if __name__ == "__main__":
    main()
