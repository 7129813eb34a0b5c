"""One optimizer step that keeps weights on the set, beside torch's fused Adam and libraries for other manifolds.

100 layers of 64 × 64 and 24 of 1024 × 1024, float32. Every contender steps in turn. A parametrization is charged with
what it adds to a training step: computing the weights and the gradients of what is behind them, then fused Adam. On a
GPU our step is measured as called, and as replayed from a CUDA graph. The distances are those after 10,000 steps of the
largest size that there is. geotorch and geoopt were measured once, for orthogonal matrices, which need not keep the
ones direction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import stiefel_init
from stiefel_init.torch import sample
from stiefel_init.torch.optim import StiefelAdam, StiefelMuon, StiefelSGD

from . import timing
from .timing import Record, Ways

SIZES = {"100 of 64×64": (100, 64), "24 of 1024×1024": (24, 1024)}
SHAPES = {
    "64×64": (64, 64), "64×784": (64, 784), "784×64": (784, 64), "4 of 8×8": (4, 8, 8), "1×64": (1, 64),
    "64×1": (64, 1), "1024×1024": (1024, 1024),
}  # fmt: skip
OURS: dict[str, Callable[..., Any]] = {
    "StiefelAdam": lambda params, lr=1e-3: StiefelAdam(params, lr),
    "StiefelSGD": lambda params, lr=1e-2: StiefelSGD(params, lr, momentum=0.9),
    "StiefelMuon": lambda params, lr=2e-2: StiefelMuon(params, lr),
}
STEPS = 10_000
ALONE = 512  # on a CPU, peers step on one layer above this width, and their time is multiplied: they go layer by layer


def parameters(count: int, n: int, device: str) -> list[nn.Parameter]:
    weights = sample(n, n, batch=count, dtype=torch.float32, device=device).unbind()
    params = [nn.Parameter(weight.clone()) for weight in weights]
    for parameter in params:
        parameter.grad = torch.randn_like(parameter)
    return params


def graphed(step: Callable[[], Any]) -> Callable[[], Any]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay() -> None:
        graph.replay()

    replay.kept = step  # type: ignore[attr-defined]  # its tensors must live as long as the graph
    return replay


def contenders(count: int, n: int, device: str) -> Ways:
    """Every way to step on `count` layers of n × n."""
    a, b = (torch.randn(count, n, n, device=device) for _ in range(2))
    ways: Ways = {"fused Adam": torch.optim.Adam(parameters(count, n, device), lr=1e-3, fused=True).step}
    for name, make in OURS.items():
        ways[name] = make(parameters(count, n, device)).step
        if device == "cuda":
            ways[f"{name}, graph"] = graphed(make(parameters(count, n, device)).step)
    return {**ways, "one product": lambda: a @ b}


def parametrized(layers: list[nn.Module]) -> Callable[[], Any]:
    """The weights of parametrized layers, their gradients from random ones, and a step of fused Adam."""
    free = [parameter for layer in layers for parameter in layer.parameters()]
    optimizer = torch.optim.Adam(free, lr=1e-3, fused=True)
    given: list[Tensor] = [torch.randn_like(layer.weight) for layer in layers]  # type: ignore[arg-type]

    def step() -> None:
        optimizer.zero_grad()
        weights: Any = [layer.weight for layer in layers]
        torch.autograd.backward(weights, given)
        optimizer.step()

    return step


def torch_orthogonal(count: int, n: int, device: str) -> Callable[[], Any]:
    """What torch offers for orthogonal matrices."""
    layers = [nn.Linear(n, n, bias=False, device=device) for _ in range(count)]
    return parametrized([nn.utils.parametrizations.orthogonal(layer) for layer in layers])


def distance(shape: tuple[int, ...], device: str) -> float:
    """From the set after 10,000 steps of Adam that turn as far as a step may; all three retract alike."""
    *batch, m, n = shape
    torch.manual_seed(0)
    w = nn.Parameter(sample(m, n, batch=tuple(batch), dtype=torch.float32, device=device))
    optimizer = StiefelAdam([w], lr=1.0)
    given = torch.randn(64, *shape, device=device) + torch.randn(64, *batch, m, 1, device=device)
    w.grad = given[0].clone()
    step = graphed(optimizer.step) if device == "cuda" else optimizer.step
    for number in range(STEPS):
        w.grad.copy_(given[number % 64])
        step()
    found = stiefel_init.check(w)
    return max(found.orthogonality_error, found.alignment_error)


def measure(device: str) -> Iterator[Record]:
    # Of one thread, what others do to the machine is left out.
    alone = device == "cpu" and torch.get_num_threads() == 1
    turns: dict[str, Any] = {"synchronize": timing.waiting(device)}
    turns["clock"] = time.process_time if alone else time.perf_counter
    record: Record = {"machine": timing.machine(device), "dtype": "float32", "steps": {}, "distances": {}}
    record["clock"] = "CPU time" if alone else "wall time"
    for title, (count, n) in SIZES.items():
        large = device == "cpu" and n > ALONE
        ways = contenders(count, n, device)
        others: Ways = {"torch orthogonal": torch_orthogonal(1 if large else count, n, device)}
        rounds = 1 if large else 5  # large steps and peers take seconds; a few turns tell enough
        if device == "cuda":
            seconds = timing.in_turns(ways, rounds=rounds, **turns)
            ways.clear()  # and their memory
            seconds |= timing.in_turns(others, rounds=1, **turns)
        else:
            seconds = timing.in_turns(ways | others, rounds=rounds, **turns)
            seconds |= {name: seconds[name] * (count if large else 1) for name in others}
        record["steps"][title] = {
            "milliseconds": timing.in_milliseconds(seconds),
            "times fused Adam": {name: value / seconds["fused Adam"] for name, value in seconds.items()},
            "peers measured on one layer": large,
        }
        yield record
    for title, shape in SHAPES.items():
        if device == "cpu" and min(shape[-2:]) > ALONE:
            continue
        record["distances"][title] = distance(shape, device)
        yield record


def tables(record: Record) -> list[str]:
    steps, told = record["steps"], record["machine"]
    names = dict.fromkeys(name for rows in steps.values() for name in rows["milliseconds"])
    threads = "" if "H200" in told["device"] else f", threads of torch: {told['threads']}"
    lines = [
        f"One step, float32, {told['device']}{threads}, torch {told['torch']}: milliseconds"
        f" ({record.get('clock', 'wall time')}), and times fused Adam.",
        "",
        *timing.markdown(["", *steps], [[name, *(_cell(rows, name) for rows in steps.values())] for name in names]),
    ]
    if record["distances"]:
        found = ", ".join(f"{shape} {value:.1e}" for shape, value in record["distances"].items())
        lines += [f"Distance from the set after {STEPS:,} of the largest steps of StiefelAdam, float32: {found}.", ""]
    return lines


def _cell(rows: Record, name: str) -> str:
    if name not in rows["milliseconds"]:
        return "–"
    return f"{timing.short(rows['milliseconds'][name])} ({timing.short(rows['times fused Adam'][name])}×)"


def part() -> list[str]:
    """The part of docs/on-the-set.md: all records, and how deep networks train with the present and a former method."""
    return [*timing.tables("on_the_set", tables), "", *timing.once("on_the_set-training-cpu")]
