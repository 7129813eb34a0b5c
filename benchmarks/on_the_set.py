"""One optimizer step that keeps weights on the set, beside torch's fused Adam and libraries for other manifolds.

    python benchmarks/on_the_set.py [--device cpu|cuda] [--peers FOLDER] [--no-distances] [--write]

100 layers of 64 × 64 and 24 of 1024 × 1024, float32. Every contender steps in turn. Parametrizations are charged with
what they add to a training step: computing the weights and the gradients of what is behind them, then fused Adam. On a
GPU our step is measured as called, and as replayed from a CUDA graph. The distances are those after 10,000 steps of the
largest size that there is.

geotorch and geoopt are measured if they can be imported, for example from a folder made by
`pip install --no-deps --target FOLDER geotorch geoopt`; they are peers for orthogonal matrices, which need not keep the
ones direction.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _timing import RECORDS, in_turns, machine, write_record
from torch import Tensor, nn

import stiefel_init
from stiefel_init.torch import sample
from stiefel_init.torch.optim import StiefelAdam, StiefelMuon, StiefelSGD

SIZES = {"100 of 64×64": (100, 64), "24 of 1024×1024": (24, 1024)}
SHAPES = {
    "64×64": (64, 64),
    "64×784": (64, 784),
    "784×64": (784, 64),
    "4 of 8×8": (4, 8, 8),
    "1×64": (1, 64),
    "64×1": (64, 1),
}
OURS: dict[str, Callable[..., Any]] = {
    "StiefelAdam": lambda params, lr=1e-3: StiefelAdam(params, lr),
    "StiefelSGD": lambda params, lr=1e-2: StiefelSGD(params, lr, momentum=0.9),
    "StiefelMuon": lambda params, lr=2e-2: StiefelMuon(params, lr),
}
PRODUCTS = {"StiefelAdam": 3, "StiefelSGD": 3, "StiefelMuon": 13}
"""Products of n × n matrices in one step, a symmetric one counted as a half: DWᵀ, WWᵀ, ZZᵀ, the result, and 10 in
Muon's polynomial. Long turns take half a product more, and small matrices whole ones for halves."""
STEPS = 10_000
ALONE = 512  # on a CPU, peers step on one layer above this width, and their time is multiplied: they go layer by layer
PAGE = Path(__file__).parents[1] / "docs" / "on-the-set.md"
MARK, END = "<!-- steps: made by `python benchmarks/on_the_set.py --docs` -->", "<!-- end -->"


def parameters(count: int, n: int, device: str) -> list[nn.Parameter]:
    weights = sample(n, n, batch=count, dtype=torch.float32, device=device).unbind()
    params = [nn.Parameter(weight.clone()) for weight in weights]
    for parameter in params:
        parameter.grad = torch.randn_like(parameter)
    return params


def graphed(step: Callable[[], Any]) -> Callable[[], Any]:
    """A step as a CUDA graph."""
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


def contenders(count: int, n: int, device: str) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Every way to step on `count` layers of n × n, and why some are absent."""
    makers: dict[str, Callable[[], Callable[[], Any]]] = {
        "fused Adam": lambda: torch.optim.Adam(parameters(count, n, device), lr=1e-3, fused=True).step,
    }
    for name, make in OURS.items():
        makers[name] = lambda make=make: make(parameters(count, n, device)).step  # type: ignore[misc]
        if device == "cuda":
            makers[f"{name}, graph"] = lambda make=make: graphed(make(parameters(count, n, device)).step)  # type: ignore[misc]

    def one_product() -> Callable[[], Any]:
        a, b = (torch.randn(count, n, n, device=device) for _ in range(2))
        return lambda: a @ b

    return made({**makers, "one product": one_product})


def made(makers: dict[str, Callable[[], Callable[[], Any]]]) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Those that can be made and called, and why the others cannot: these are measured all the same."""
    ways: dict[str, Callable[[], Any]] = {}
    absent: dict[str, str] = {}
    for name, make in makers.items():
        try:
            ways[name] = make()
            ways[name]()
        except Exception as error:
            ways.pop(name, None)
            absent[name] = (f"{type(error).__name__}: {error}".splitlines() or [type(error).__name__])[0]
    return ways, absent


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


def peers(count: int, n: int, device: str) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """What other libraries offer, and why some are absent."""

    def layers() -> list[nn.Module]:
        return [nn.Linear(n, n, bias=False, device=device) for _ in range(count)]

    def torch_orthogonal() -> Callable[[], Any]:
        return parametrized([nn.utils.parametrizations.orthogonal(layer) for layer in layers()])

    def geotorch() -> Callable[[], Any]:
        import geotorch

        ready = layers()
        for layer in ready:
            geotorch.orthogonal(layer, "weight")
        return parametrized(ready)

    def geoopt() -> Callable[[], Any]:
        import geoopt

        params = [
            geoopt.ManifoldParameter(parameter.detach(), manifold=geoopt.EuclideanStiefel())
            for parameter in parameters(count, n, device)
        ]
        for parameter in params:
            parameter.grad = torch.randn_like(parameter)
        return geoopt.optim.RiemannianAdam(params, lr=1e-3).step

    return made({"torch orthogonal": torch_orthogonal, "geotorch": geotorch, "geoopt RiemannianAdam": geoopt})


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


def tables() -> str:
    """The committed records as Markdown."""
    lines = []
    for device in ("cpu", "cuda"):
        path = RECORDS / f"on_the_set-{device}.json"
        if not path.exists():
            continue
        record = json.loads(path.read_text())
        made = record["machine"]
        threads = f", threads of torch: {made['threads']}" if device == "cpu" else ""
        names = list(dict.fromkeys(name for rows in record["steps"].values() for name in rows["milliseconds"]))
        lines += [
            f"One step, float32, {made['device']}{threads}, torch {made['torch']}: milliseconds"
            f" ({record.get('clock', 'wall time')}), and times fused Adam.",
            "",
        ]
        lines += ["| | " + " | ".join(record["steps"]) + " |", "|---|" + "---:|" * len(record["steps"])]
        for name in names:
            cells = [_cell(rows, name) for rows in record["steps"].values()]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        if not record["distances"]:
            lines.append("")
            continue
        lines += ["", f"Distance from the set after {STEPS:,} of the largest steps of StiefelAdam, float32:"]
        lines[-1] += " " + ", ".join(f"{shape} {value:.1e}" for shape, value in record["distances"].items()) + "."
        lines.append("")
    return "\n".join([*lines, *training()]).rstrip()


def training() -> list[str]:
    """The record that compares how deep networks train with the present and the former method."""
    record = json.loads((RECORDS / "on_the_set-training.json").read_text())
    rates = record["accuracy"]
    lines = [f"{record['task']}, mean of {len(record['seeds'])} seeds. Former method: {record['former method']}.", ""]
    lines += ["| rate | " + " | ".join(rates) + " |", "|---|" + "---:|" * len(rates)]
    for name in next(iter(rates.values())):
        cells = [f"{sum(rows[name]) / len(rows[name]):.1f}" for rows in rates.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _cell(rows: dict[str, Any], name: str) -> str:
    if name not in rows["milliseconds"]:
        return "–"
    return f"{_short(rows['milliseconds'][name])} ({_short(rows['times fused Adam'][name])}×)"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def with_tables(page: str) -> str:
    """The page with its tables as the records have them."""
    head, rest = page.split(MARK, 1)
    return f"{head}{MARK}\n{tables()}\n{END}{rest.split(END, 1)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--peers", help="a folder with packages to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="how often every contender has its turn")
    parser.add_argument("--no-distances", action="store_true", help="only the times")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/on-the-set.md from the records")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    if options.docs:
        PAGE.write_text(with_tables(PAGE.read_text()))
        return
    device = options.device
    if options.peers:
        sys.path.append(options.peers)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    alone = device == "cpu" and torch.get_num_threads() == 1
    clock = (
        time.process_time if alone else time.perf_counter
    )  # of one thread, what others do to the machine is left out

    record: dict[str, Any] = {"machine": machine(device), "dtype": "float32", "steps": {}, "distances": {}}
    record["clock"] = "CPU time" if alone else "wall time"
    if options.no_distances and (path := RECORDS / f"on_the_set-{device}.json").exists():
        record["distances"] = json.loads(path.read_text())["distances"]
    print(f"{record['machine']['device']}, {record['machine']['threads']} threads of torch, float32")
    for title, (count, n) in SIZES.items():
        large = device == "cpu" and n > ALONE
        ways, absent = contenders(count, n, device)
        others, missing = peers(1 if large else count, n, device)
        absent |= missing
        # Large steps and peers take seconds; a few turns tell enough.
        rounds = 1 if large else options.rounds
        turns: dict[str, Any] = {"synchronize": synchronize, "rounds": rounds, "clock": clock}
        if device == "cuda":
            seconds = in_turns(ways, **turns)
            ways.clear()  # and their memory
            seconds |= in_turns(others, **{**turns, "rounds": 1})
        else:
            seconds = in_turns(ways | others, **turns)
            seconds |= {name: seconds[name] * (count if large else 1) for name in others}
        base = seconds["fused Adam"]
        record["steps"][title] = {
            "milliseconds": {name: 1e3 * value for name, value in seconds.items()},
            "times fused Adam": {name: value / base for name, value in seconds.items()},
            "products": PRODUCTS,
            "peers measured on one layer": large,
            "absent": absent,
        }
        print(title)
        for name, value in seconds.items():
            print(f"  {name:>24}: {1e3 * value:10.3f} ms  {value / base:7.2f} × fused Adam", flush=True)
        for name, why in absent.items():
            print(f"  {name:>24}: {why}")
        if options.write:
            write_record(f"on_the_set-{device}", record)
    if options.no_distances:
        return
    print(f"distance from the set after {STEPS:,} of the largest steps of StiefelAdam")
    for title, shape in SHAPES.items():
        record["distances"][title] = distance(shape, device)
        print(f"  {title:>24}: {record['distances'][title]:.1e}", flush=True)
        if options.write:
            write_record(f"on_the_set-{device}", record)


if __name__ == "__main__":
    main()
