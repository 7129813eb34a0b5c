"""Time to initialize whole models, and the rate of the seeded numbers they are made of.

The peer of a network is a loop of `torch.nn.init.orthogonal_` over its weights, which leaves out the biases that
`initialize_` sets too. With one scheme for all layers the weights are square; with the default recipe the network goes
from 784 inputs to 10 classes, and its plan, its ends and its rotations are in the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Literal

import torch
from paper.networks import chain
from torch import nn

from stiefel_init import check
from stiefel_init.core import stream as _stream
from stiefel_init.torch import initialize_
from stiefel_init.torch.sampling.stream import normals

from . import timing
from .timing import Record

SHOWN = "first call, generator, ms", "generator, ms", "seed, ms", "orthogonal_, ms", "times orthogonal_, generator"
"""On the page; all that was measured is in docs/tables/whole-models.csv."""


def seconds_of(run: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    synchronize()
    start = time.perf_counter()
    run()
    synchronize()
    return time.perf_counter() - start


def network(widths: list[int], recipe: Literal["best", "paper"], device: str, rounds: int = 7) -> dict[str, float]:
    synchronize = timing.waiting(device)
    model = chain(widths).to(device)
    layers: Any = model[::2]
    contenders: timing.Ways = {
        "generator": lambda: initialize_(model, recipe=recipe),
        "seed": lambda: initialize_(model, recipe=recipe, seed=0),
        "orthogonal_": lambda: [nn.init.orthogonal_(layer.weight) for layer in layers],
    }
    first = {f"first call, {name}, ms": 1e3 * seconds_of(run, synchronize) for name, run in contenders.items()}
    seconds = timing.in_turns(contenders, synchronize=synchronize, rounds=rounds, seconds=0.03)
    return {
        **first,
        **{f"{name}, ms": 1e3 * value for name, value in seconds.items()},
        **{f"times orthogonal_, {name}": seconds["orthogonal_"] / seconds[name] for name in ("generator", "seed")},
    }


class Block(nn.Module):
    """A block of a transformer as large language models have it."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        x = x + self.o(nn.functional.scaled_dot_product_attention(self.q(y), self.k(y), self.v(y)))
        y = self.between(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def language_model(blocks: int, width: int, hidden: int, words: int, device: str) -> nn.Module:
    """In bfloat16, with a table of words at its beginning and another at its end."""
    with torch.device("meta"):
        body = [Block(width, hidden) for _ in range(blocks)]
        model = nn.Sequential(nn.Embedding(words, width), *body, nn.RMSNorm(width), nn.Linear(width, words, bias=False))
    return model.bfloat16().to_empty(device=device)


@cache
def product_seconds(p: int, q: int, device: str) -> float:
    """The time of 2p²(q - p/3) operations, by a float32 product of p × p and p × q."""
    a, b = torch.randn(p, p, device=device), torch.randn(p, q, device=device)
    return min(seconds_of(lambda: a @ b, timing.waiting(device)) for _ in range(3)) * (1 - p / (3 * q))


def large(shape: tuple[int, int, int, int], device: str) -> dict[str, float]:
    """A language model, each way once, beside a loop of `normal_` and what its matrices take at least.

    A semi-orthogonal matrix of p rows and q columns takes 2p²(q - p/3) operations.
    """
    synchronize = timing.waiting(device)
    model = language_model(*shape, device)
    weights = [parameter for parameter in model.parameters() if parameter.ndim == 2]

    def normals() -> None:
        for weight in weights:
            nn.init.normal_(weight, std=0.02)

    normals()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.ones_(parameter)
    least = sum(product_seconds(*sorted(weight.shape), device) for weight in weights[1:])
    seconds, extra = {"normal_": seconds_of(normals, synchronize)}, {}
    for name, seed in (("generator", None), ("seed", 0)):
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        seconds[name] = seconds_of(partial(initialize_, model, seed=seed), synchronize)
        if device == "cuda":
            extra[f"extra memory, {name}, GiB"] = (torch.cuda.max_memory_allocated() - before) / 2**30
    error = {}
    for name in ("1.q.weight", "1.up.weight"):
        w = dict(model.named_parameters())[name].detach()
        scale = w.double().square().sum().div(min(w.shape)).sqrt()
        error[f"largest error of an orthonormal row, {name}"] = check(w.double() / scale, tol=1).orthogonality_error
    return {
        **extra,
        **error,
        "parameters, millions": sum(parameter.numel() for parameter in model.parameters()) / 1e6,
        "products alone, seconds": least,
        **{f"{name}, seconds": value for name, value in seconds.items()},
        **{f"times normal_ and products, {name}": seconds[name] / (least + seconds["normal_"])
           for name in ("generator", "seed")},
    }  # fmt: skip


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
    ways: dict[str, Callable[[str], dict[str, float]]] = {}
    if device == "cuda":
        ways["24 layers of width 4096, default recipe"] = partial(network, [784, *[4096] * 25, 10], "best", rounds=2)
        ways["32 blocks of width 4096 in bfloat16, default recipe"] = partial(large, (32, 4096, 11008, 32_000))
    ways |= {
        "100 layers of width 64, one scheme": partial(network, [64] * 101, "paper"),
        "100 layers of width 64, default recipe": partial(network, [784, *[64] * 99, 10], "best"),
        "10 layers of width 1024, default recipe": partial(network, [784, *[1024] * 9, 10], "best"),
        "16 blocks of width 2048 in bfloat16, default recipe": partial(large, (16, 2048, 5632, 32_000)),
        "seeded stream": stream,
    }
    for name, way in ways.items():
        record["rows"][name] = way(device)
        yield record


def listed(record: Record) -> timing.Listed:
    """All that was measured."""
    rows = [[name, what, f"{value:,.4g}"] for name, row in record["rows"].items() for what, value in row.items()]
    return ["what", "figure", "value"], rows


def tables(record: Record) -> list[str]:
    of_networks = {name: row for name, row in record["rows"].items() if SHOWN[0] in row}
    table = [[name, *(timing.short(row[what]) for what in SHOWN)] for name, row in of_networks.items()]
    rest = [
        f"- {name}: {', '.join(f'{what} {timing.short(value)}' for what, value in row.items())}"
        for name, row in record["rows"].items()
        if name not in of_networks
    ]
    return [f"{timing.where(record)}:", "", *timing.markdown(["", *SHOWN], table), *rest, ""]
