"""Time to initialize whole models, and the rate of the seeded numbers they are made of.

The peer of a network is a loop of `torch.nn.init.orthogonal_` over its weights, which leaves out the biases that
`initialize_` sets too. With one scheme for all layers the weights are square; with the default recipe the network goes
from 784 inputs to 10 classes, and its plan, its ends and its rotations are in the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import torch
from paper.networks import chain
from torch import nn

from stiefel_init.core import stream as _stream
from stiefel_init.torch import initialize_
from stiefel_init.torch.sampling.stream import normals

from . import timing
from .timing import Record


def network(widths: list[int], recipe: Literal["best", "paper"], device: str) -> dict[str, float]:
    synchronize = timing.waiting(device)
    model = chain(widths).to(device)
    layers: Any = model[::2]
    contenders: timing.Ways = {
        "generator": lambda: initialize_(model, recipe=recipe),
        "seed": lambda: initialize_(model, recipe=recipe, seed=0),
        "orthogonal_": lambda: [nn.init.orthogonal_(layer.weight) for layer in layers],
    }
    first = {}
    for name, run in contenders.items():
        synchronize()
        start = time.perf_counter()
        run()
        synchronize()
        first[f"first call, {name}, ms"] = 1e3 * (time.perf_counter() - start)
    seconds = timing.in_turns(contenders, synchronize=synchronize, rounds=7, seconds=0.03)
    return {
        **first,
        **{f"{name}, ms": 1e3 * value for name, value in seconds.items()},
        **{f"times orthogonal_, {name}": seconds["orthogonal_"] / seconds[name] for name in ("generator", "seed")},
    }


def stream(device: str) -> dict[str, float]:
    """Seeded float32 normals, as one large matrix."""
    size = 8192 if device == "cuda" else 4096
    key = _stream.key(0, "weight")
    run = {"stream": lambda: normals(key, (0, size), (0, size), torch.float32, device)}
    seconds = timing.in_turns(run, synchronize=timing.waiting(device), rounds=3, seconds=0.1)["stream"]
    return {"numbers, millions": size * size / 1e6, "million normals/s": size * size / seconds / 1e6}


def measure(device: str) -> Iterator[Record]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    record: Record = {"machine": timing.machine(device) | {"cores": cores}, "dtype": "float32", "rows": {}}
    ways: dict[str, Callable[[str], dict[str, float]]] = {
        "100 layers of width 64, one scheme": partial(network, [64] * 101, "paper"),
        "100 layers of width 64, default recipe": partial(network, [784, *[64] * 99, 10], "best"),
        "10 layers of width 1024, default recipe": partial(network, [784, *[1024] * 9, 10], "best"),
        "seeded stream": stream,
    }
    for name, way in ways.items():
        record["rows"][name] = way(device)
        yield record


def tables(record: Record) -> list[str]:
    rows = [[name, what, f"{value:,.4g}"] for name, row in record["rows"].items() for what, value in row.items()]
    return [f"{timing.where(record)}:", "", *timing.markdown(["what", "figure", "value"], rows)]
