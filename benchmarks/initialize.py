"""Time to initialize whole models, and the rate of the seeded numbers they are made of.

    python benchmarks/initialize.py [--device cpu|cuda] [--write]

The peer of a network is a loop of `torch.nn.init.orthogonal_` over its weights, which leaves out the biases that
`initialize_` sets too. With one scheme for all layers the weights are square; with the default recipe the network goes
from 784 inputs to 10 classes, and its plan, its ends and its rotations are in the time. The transformer of 350 million
parameters is on the meta device first, so that its memory is counted, and is measured on a GPU only.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
from _timing import in_turns, machine, write_record
from torch import nn

from stiefel_init.core import stream as _stream
from stiefel_init.torch import initialize_
from stiefel_init.torch.sampling.stream import normals

NETWORK, STREAM, TRANSFORMER = "100 layers of width 64, one scheme", "seeded stream", "transformer"
TARGETS: dict[str, dict[str, dict[str, float]]] = {
    "cpu": {
        NETWORK: {"times orthogonal_, generator": 5, "times orthogonal_, seed": 2},
        STREAM: {"million normals/s": 50},
    },
    "cuda": {
        NETWORK: {"times orthogonal_, generator": 20, "times orthogonal_, seed": 20},
        STREAM: {"million normals/s": 5000},
        TRANSFORMER: {"seconds, generator": 3, "seconds, seed": 3},
    },
}


def seconds_of(run: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    """Of one call."""
    synchronize()
    start = time.perf_counter()
    run()
    synchronize()
    return time.perf_counter() - start


def network(
    widths: list[int], recipe: Literal["best", "paper"], device: str, synchronize: Callable[[], Any]
) -> dict[str, float]:
    """Its first initialization, and later ones."""
    layers = [nn.Linear(inputs, outputs, device=device) for inputs, outputs in pairwise(widths)]
    model = nn.Sequential(*[module for layer in layers for module in (nn.ReLU(), layer)][1:])
    contenders: dict[str, Callable[[], Any]] = {
        "generator": lambda: initialize_(model, recipe=recipe),
        "seed": lambda: initialize_(model, recipe=recipe, seed=0),
        "orthogonal_": lambda: [nn.init.orthogonal_(layer.weight) for layer in layers],
    }
    first = {f"first call, {name}, ms": 1e3 * seconds_of(run, synchronize) for name, run in contenders.items()}
    seconds = in_turns(contenders, synchronize=synchronize, rounds=7, seconds=0.03)
    return {
        **first,
        **{f"{name}, ms": 1e3 * value for name, value in seconds.items()},
        **{f"times orthogonal_, {name}": seconds["orthogonal_"] / seconds[name] for name in ("generator", "seed")},
    }


class Transformer(nn.Module):
    """As large as GPT-2 medium: 24 layers of width 1024, 50,257 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50_257, 1024)
        self.positions = nn.Embedding(1024, 1024)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(1024, 16, 4096, norm_first=True) for _ in range(24))
        self.norm = nn.LayerNorm(1024)
        self.head = nn.Linear(1024, 50_257, bias=False)
        self.head.weight = self.tokens.weight


def transformer(device: str, synchronize: Callable[[], Any]) -> dict[str, float]:
    """From the meta device to initialized on the GPU: the first call of the process, then with warm libraries."""

    def once(seed: int | None) -> float:
        with torch.device("meta"):
            model = Transformer()
        seconds = seconds_of(lambda: initialize_(model, recipe="paper", seed=seed, device=device), synchronize)
        figures["parameters, millions"] = sum(p.numel() for p in model.parameters()) / 1e6
        return seconds

    figures: dict[str, float] = {}
    for seed, way in ((None, "generator"), (0, "seed")):
        figures[f"first call, {way}, seconds"] = once(seed)
        figures[f"seconds, {way}"] = once(seed)
    return figures


def stream(device: str, synchronize: Callable[[], Any]) -> dict[str, float]:
    """Seeded float32 normals, as one large matrix."""
    size = 8192 if device == "cuda" else 4096
    key = _stream.key(0, "weight")
    run = {"stream": lambda: normals(key, (0, size), (0, size), torch.float32, device)}
    seconds = in_turns(run, synchronize=synchronize, rounds=3, seconds=0.1)["stream"]
    return {"numbers, millions": size * size / 1e6, "million normals/s": size * size / seconds / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    device = options.device
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    rows: dict[str, Callable[[str, Callable[[], Any]], dict[str, float]]] = {
        NETWORK: partial(network, [64] * 101, "paper"),
        "100 layers of width 64, default recipe": partial(network, [784, *[64] * 99, 10], "best"),
        "10 layers of width 1024, default recipe": partial(network, [784, *[1024] * 9, 10], "best"),
        STREAM: stream,
    }
    if device == "cuda":
        rows[TRANSFORMER] = transformer

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    record: dict[str, Any] = {"machine": machine(device) | {"cores": cores}, "dtype": "float32", "rows": {}}
    print(f"{record['machine']['device']}, {record['machine']['threads']} threads of torch, float32")
    for name, measure in rows.items():
        try:
            figures: dict[str, Any] = measure(device, synchronize)
        except Exception as error:  # the other rows are measured all the same
            figures = {"error": f"{type(error).__name__}: {error}"}
        record["rows"][name] = figures
        print(name)
        for what, figure in figures.items():
            target = TARGETS[device].get(name, {}).get(what)
            aim = f"  (target {'at most' if 'seconds' in what else 'at least'} {target})" if target else ""
            print(f"  {what:>30}: {figure if isinstance(figure, str) else f'{figure:.4g}'}{aim}", flush=True)
        if options.write:
            path = write_record(f"initialize-{device}", record)
    if options.write:
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
