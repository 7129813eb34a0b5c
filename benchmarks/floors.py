"""What the machine allows: how much faster than `orthogonal_` any sampler could be, beside what ours is.

A member of p rows and q columns, p ≤ q, needs at least p(p+1)/2 + p(q-p) normals, 2p²(q - p/3) operations for the first
p rows of the product of p reflections, and to be written once. The floor of a draw is the sum of the three at the rates
measured in the same run, each as fast as the machine does it on large arrays, and one call of PyTorch for each of the
three. No order of operations is faster; small products reach a fraction of the large ones' rate, so real limits are
lower.

On a CPU, and for a network, the parts that no such draw can do without are measured one by one in the same turns, at
the sizes that it has: its numbers, its products and solves, in memory that is there, and so many calls that do nothing;
for a network besides, to read what each parameter is and to write all weights at once. Of all times the least of 15
rounds counts: what the machine allows is what it does when nobody disturbs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from stiefel_init.core import stream as _stream
from stiefel_init.torch import initialize_, sample, stiefel_
from stiefel_init.torch.sampling._householder import _BLOCK, _LAPACK_ROWS

from . import timing
from .timing import Record, Ways

SHAPES = [(64, 64), (64, 784), (512, 512), (1024, 1024), (1024, 4096), (2048, 2048), (4096, 4096)]
DEPTH, WIDTH, PANEL = 100, 64, 16
ROUNDS = 15
MANY, NETWORK = "100 matrices of 64×64 in one call", "a network of 100 layers"


class Rates(NamedTuple):
    """What the machine does in a second, and the seconds of a call that does nothing."""

    normals: float
    operations: float
    bytes: float
    call: float

    def floor(self, p: int, q: int, count: int = 1) -> float:
        """Seconds that `count` members of p rows and q columns take at least."""
        normals, operations = p * (p + 1) / 2 + p * (q - p), 2 * p * p * (q - p / 3)
        each = normals / self.normals + operations / self.operations + 4 * p * q / self.bytes
        return count * each + 3 * self.call


def rates(device: str) -> Rates:
    """As measured on arrays of 16 million numbers, and on one of one."""
    large, one = torch.empty(1 << 24, device=device), torch.zeros(1, device=device)
    a = torch.randn(4096, 4096, device=device)
    ways: Ways = {"normals": large.normal_, "product": lambda: a @ a, "fill": lambda: large.fill_(1.0)}
    seconds = timing.in_turns(ways, synchronize=timing.waiting(device), rounds=ROUNDS, seconds=0.1, pick=min)
    call = timing.in_turns({"call": lambda: one.add_(1)}, rounds=ROUNDS, pick=min)["call"]
    normals, operations = large.numel() / seconds["normals"], 2 * 4096**3 / seconds["product"]
    return Rates(normals, operations, large.nbytes / seconds["fill"], call)


def compared(title: str, wanted: float, ways: Ways, floor: float, least: Ways, call: float, device: str) -> Record:
    """Ours and the loop of `orthogonal_`, and the parts that there are at `least`, timed in turns; and the floor."""
    seconds = timing.in_turns(ways | least, synchronize=timing.waiting(device), rounds=ROUNDS, seconds=0.03, pick=min)
    times = timing.in_milliseconds(seconds)
    row: Record = {
        "what": title, "wanted": wanted, "ours": times["ours"], "orthogonal_": times["orthogonal_"],
        "floor": 1e3 * floor,
    }  # fmt: skip
    if least:
        row["parts"] = {name: times[name] for name in least} | {"calls": 1e3 * call}
    return row


class Calls(TorchDispatchMode):
    """Counts the operations of PyTorch that compute or write anything."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view and "empty" not in func.__name__
        return func(*args, **(kwargs or {}))


def calls_of(run: Callable[[], Any]) -> int:
    """How many operations a call of `run` takes."""
    with Calls() as counted:
        run()
    return counted.count


def products(p: int, q: int, width: int, batch: tuple[int, ...] = ()) -> Callable[[], Any]:
    """The products and solves of members by panels of `width` reflectors, in memory that is there; or LAPACK's one."""
    whole = torch.zeros(*batch, p, q)
    if width == p and not batch:
        reflectors, tau = torch.zeros(q, p), torch.zeros(p)
        return lambda: torch.ormqr(reflectors, tau, whole.mT, out=whole.mT)
    triangle = torch.eye(width).repeat(*batch, 1, 1)
    eye = torch.eye(width).expand_as(triangle)
    steps = []
    for start in reversed(range(0, p, width)):
        vectors, tall = torch.zeros(*batch, width, q - start), torch.zeros(*batch, p - start, width)
        result = torch.empty(*batch, p - start, q - start)
        steps.append((vectors, tall, torch.empty_like(tall), result, whole[..., start:, start:]))

    def run() -> None:
        for vectors, tall, scaled, result, target in steps:
            vectors @ vectors.mT
            if target.shape[-2] > width:
                target[..., width:, width:] @ vectors[..., width:].mT
            if batch:
                inverse = torch.linalg.solve_triangular(triangle, eye, upper=False)
                torch.matmul(tall, inverse, out=scaled)
                target -= torch.matmul(scaled, vectors, out=result)
            else:
                target.addmm_(torch.linalg.solve_triangular(triangle, tall, upper=False, left=False), vectors, alpha=-1)

    return run


def numbers(p: int, q: int, width: int, batch: tuple[int, ...] = (), seed: int | None = None) -> Callable[[], Any]:
    """Their numbers, from PyTorch's generator or from the streams of a seed."""
    starts = range(0, p, width)
    if seed is None:
        held = [torch.empty(*batch, width, q - start) for start in starts]
        return lambda: [x.normal_() for x in held]
    keys = _stream.keys(seed, map(str, range(math.prod(batch))))
    return lambda: [_stream.normals(keys, (start, start + width), (start, q), np.float32) for start in starts]


def walk(model: nn.Module) -> list[Any]:
    """What is to be known of each parameter before it is written."""
    return [
        (tensor.shape, tensor.stride(), tensor.data_ptr(), tensor.dtype, tensor.device, tensor.requires_grad)
        for _, module in model.named_modules()
        for tensor in module._parameters.values()
        if tensor is not None
    ]


def measure(device: str) -> Iterator[Record]:
    gpu = device == "cuda"
    speeds, rows = rates(device), []
    for m, n in SHAPES:
        w = torch.empty(m, n, device=device)
        ways: Ways = {"ours": partial(stiefel_, w), "orthogonal_": partial(nn.init.orthogonal_, w)}
        panels = m, n, m if m <= _LAPACK_ROWS else _BLOCK["cpu"]
        least: Ways = {} if gpu else {"numbers": numbers(*panels), "products": products(*panels)}
        call = speeds.call * calls_of(ways["ours"])
        rows.append(compared(f"{m}×{n}", 5 if gpu else 2.5, ways, speeds.floor(m, n), least, call, device))
    w = torch.empty(WIDTH, WIDTH, device=device)
    many = partial(sample, WIDTH, WIDTH, batch=DEPTH, device=device)
    square = WIDTH, WIDTH, PANEL, (DEPTH,)
    drawn: Ways = {"numbers": numbers(*square), "products": products(*square)}
    floor, call = speeds.floor(WIDTH, WIDTH, DEPTH), speeds.call * calls_of(many)
    ways = {"ours": many, "orthogonal_": lambda: [nn.init.orthogonal_(w) for _ in range(DEPTH)]}
    rows.append(compared(MANY, 6, ways, floor, {} if gpu else drawn, call, device))
    layers = [nn.Linear(WIDTH, WIDTH, device=device) for _ in range(DEPTH)]
    model = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))
    weights, result = [layer.weight.detach() for layer in layers], many()
    for title, seed in (("", None), (", seeded", 0)):
        ways = {
            "ours": partial(initialize_, model, recipe="paper", seed=seed),
            "orthogonal_": lambda: [nn.init.orthogonal_(layer.weight) for layer in layers],
        }
        least = {"drawing": many} if gpu else {**drawn, "numbers": numbers(*square, seed)}
        least["reading the model"] = lambda: walk(model)
        least["writing"] = lambda: torch._foreach_copy_(weights, list(result.unbind()))
        wanted, extra = (20, 0.0) if gpu else (5, call)
        rows.append(compared(f"{NETWORK}{title}", wanted, ways, floor, least, extra, device))
    yield {"machine": timing.machine(device), "rates": speeds._asdict(), "rows": rows}


def tables(record: Record) -> list[str]:
    speeds = record["rates"]
    rows = [
        [
            row["what"], *(timing.short(row[name]) for name in ("ours", "orthogonal_", "floor")),
            *_times(row, row["floor"], digits=1),
        ]
        for row in record["rows"]
    ]  # fmt: skip
    return [
        f"{timing.where(record)}: {speeds['normals'] / 1e6:,.0f} million normals/s, "
        f"{speeds['operations'] / 1e9:,.0f} Gflop/s, {speeds['bytes'] / 1e9:,.0f} GB/s, "
        f"{1e6 * speeds['call']:.1f} µs a call.", "",
        *timing.markdown(["", "ours", "orthogonal_", "floor", "times as fast", "wanted", "at most"], rows),
        *_parts([row for row in record["rows"] if "parts" in row]),
    ]  # fmt: skip


def _times(row: Record, least: float, digits: int = 2) -> list[str]:
    """How many times as fast as `orthogonal_`: ours, what was wanted, and what is possible at most."""
    theirs = row["orthogonal_"]
    return [f"{theirs / row['ours']:.2f}", f"{row['wanted']:g}", f"{theirs / least:.{digits}f}"]


def _parts(rows: list[Record]) -> list[str]:
    """What draws are made of, at least, as far as that was measured."""
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row["parts"]))
    sums = [sum(row["parts"].values()) for row in rows]
    made = [
        [
            row["what"], *(timing.short(row["parts"][name]) if name in row["parts"] else "" for name in names),
            timing.short(least), *_times(row, least),
        ]
        for row, least in zip(rows, sums)
    ]  # fmt: skip
    lines = [
        "What no such draw can do without, each part measured in the same turns at the sizes that it has: the numbers,",
        "from PyTorch's generator, which is serial, or from a seed's streams; products and solves, in memory that is",
        "there already; as many calls as ours, that do nothing; to read what each parameter is, and to write them all.",
        "", *timing.markdown(["", *names, "sum", "times as fast", "wanted", "at most"], made),
    ]  # fmt: skip
    single = [(row, least) for row, least in zip(rows, sums) if "×" in row["what"] and " " not in row["what"]]
    if single:
        mean = timing.geometric_mean(row["orthogonal_"] / row["ours"] for row, _ in single)
        most = timing.geometric_mean(row["orthogonal_"] / least for row, least in single)
        lines += [
            f"Geometric mean over the {len(single)} single matrices: {mean:.2f} times as fast, at most {most:.2f}.", ""
        ]  # fmt: skip
    return lines


def section() -> list[str]:
    about = [
        "`python -m benchmarks floors --write`; float32, milliseconds, the least of 15 rounds. The floor is what a",
        "draw's numbers, its operations and the writing of its result take at least, at the rates of large arrays in",
        "the same run. Small products reach a fraction of these, so the real limits are lower.",
    ]
    return timing.section("floors", "What the machine allows", about, tables)
