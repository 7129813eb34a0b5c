"""What the machine allows: how much faster than `orthogonal_` any sampler could be, beside what ours is.

    python benchmarks/floors.py [--device cpu|cuda] [--write]

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

import argparse
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from _timing import in_turns, machine, write_record
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from stiefel_init.core import stream as _stream
from stiefel_init.torch import initialize_, sample, stiefel_
from stiefel_init.torch.sampling.householder import _BLOCK, _LAPACK_ROWS

SHAPES = [(64, 64), (64, 784), (512, 512), (1024, 1024), (1024, 4096), (2048, 2048), (4096, 4096)]
DEPTH, WIDTH, PANEL = 100, 64, 16
ROUNDS = 15
MANY, NETWORK = "100 matrices of 64×64 in one call", "a network of 100 layers"
Row = dict[str, Any]


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


def rates(device: str, synchronize: Callable[[], Any]) -> Rates:
    """As measured on arrays of 16 million numbers, and on one of one."""
    large, one = torch.empty(1 << 24, device=device), torch.zeros(1, device=device)
    a = torch.randn(4096, 4096, device=device)
    ways: dict[str, Callable[[], Any]] = {
        "normals": lambda: large.normal_(),
        "product": lambda: a @ a,
        "fill": lambda: large.fill_(1.0),
    }
    seconds = in_turns(ways, synchronize=synchronize, rounds=ROUNDS, seconds=0.1, pick=min)
    call = in_turns({"call": lambda: one.add_(1)}, rounds=ROUNDS, pick=min)["call"]
    return Rates(
        large.numel() / seconds["normals"], 2 * 4096**3 / seconds["product"], large.nbytes / seconds["fill"], call
    )


def compared(
    title: str,
    wanted: float,
    ways: dict[str, Callable[[], Any]],
    floor: float,
    *,
    synchronize: Callable[[], Any],
    least: dict[str, Callable[[], Any]] | None = None,
    calls: float = 0.0,
) -> Row:
    """Ours and the loop of `orthogonal_`, and the parts that there are at `least`, timed in turns; and the floor."""
    found = in_turns(ways | (least or {}), synchronize=synchronize, rounds=ROUNDS, seconds=0.03, pick=min)
    seconds = {name: 1e3 * value for name, value in found.items()}
    ours, theirs = seconds["ours"], seconds["orthogonal_"]
    row: Row = {"what": title, "wanted": wanted, "ours": ours, "orthogonal_": theirs, "floor": 1e3 * floor}
    print(f"{title:>44}: {ours:9.3f} ms, floor {1e3 * floor:9.3f}, orthogonal_ {theirs:9.3f}: ", end="")
    print(f"{theirs / ours:5.2f} times as fast, at most {theirs / (1e3 * floor):6.2f}, wanted {wanted:g}", flush=True)
    if least is not None:
        row["parts"] = {name: seconds[name] for name in least} | {"calls": 1e3 * calls}
        total = sum(row["parts"].values())
        print("    at least " + " + ".join(f"{value:.3f} {name}" for name, value in row["parts"].items()), end="")
        print(f" = {total:.3f} ms: at most {theirs / total:.2f} times as fast")
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


def main() -> None:
    """Measure, print, and keep the figures if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    device, gpu = options.device, options.device == "cuda"
    synchronize = torch.cuda.synchronize if gpu else lambda: None
    found = rates(device, synchronize)
    print(f"{found.normals / 1e6:,.0f} million normals/s, {found.operations / 1e9:,.0f} Gflop/s, "
          f"{found.bytes / 1e9:,.0f} GB/s, {1e6 * found.call:.1f} us a call")  # fmt: skip
    rows = []
    for m, n in SHAPES:
        w = torch.empty(m, n, device=device)
        ways: dict[str, Callable[[], Any]] = {
            "ours": partial(stiefel_, w), "orthogonal_": partial(nn.init.orthogonal_, w),
        }  # fmt: skip
        panels = m, n, m if m <= _LAPACK_ROWS else _BLOCK["cpu"]
        least = None if gpu else {"numbers": numbers(*panels), "products": products(*panels)}
        calls = found.call * calls_of(ways["ours"])
        wanted, floor = 5 if gpu else 2.5, found.floor(m, n)
        rows.append(compared(f"{m}×{n}", wanted, ways, floor, synchronize=synchronize, least=least, calls=calls))
    w = torch.empty(WIDTH, WIDTH, device=device)
    many = partial(sample, WIDTH, WIDTH, batch=DEPTH, device=device)
    square = WIDTH, WIDTH, PANEL, (DEPTH,)
    drawn = {"numbers": numbers(*square), "products": products(*square)}
    calls = found.call * calls_of(many)
    ways = {"ours": many, "orthogonal_": lambda: [nn.init.orthogonal_(w) for _ in range(DEPTH)]}
    least = None if gpu else drawn
    floor = found.floor(WIDTH, WIDTH, DEPTH)
    rows.append(compared(MANY, 6, ways, floor, synchronize=synchronize, least=least, calls=calls))
    layers = [nn.Linear(WIDTH, WIDTH, device=device) for _ in range(DEPTH)]
    model = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))
    weights, result = [layer.weight.detach() for layer in layers], many()
    for title, seed in (("", None), (", seeded", 0)):
        ways = {
            "ours": partial(initialize_, model, recipe="paper", seed=seed),
            "orthogonal_": lambda: [nn.init.orthogonal_(layer.weight) for layer in layers],
        }
        least = {"drawing": many} if gpu else {**drawn, "numbers": numbers(*square, seed)}
        least |= {
            "reading the model": lambda: walk(model),
            "writing": lambda: torch._foreach_copy_(weights, list(result.unbind())),
        }
        floor = found.floor(WIDTH, WIDTH, DEPTH)
        wanted, own = 20 if gpu else 5, 0.0 if gpu else calls
        rows.append(
            compared(f"{NETWORK}{title}", wanted, ways, floor, synchronize=synchronize, least=least, calls=own)
        )  # fmt: skip
    single = rows[: len(SHAPES)]
    ways_of: dict[str, Callable[[Row], float]] = {
        "ours": lambda row: row["ours"],
        "at most, by the floors": lambda row: row["floor"],
        "at most, by the parts": lambda row: sum(row["parts"].values()),
    }
    for name, value in ways_of.items():
        if name != "at most, by the parts" or not gpu:
            mean = math.exp(sum(math.log(row["orthogonal_"] / value(row)) for row in single) / len(single))
            print(f"geometric mean over single matrices, {name}: {mean:.2f}")
    record = {"machine": machine(device), "rates": found._asdict(), "rows": rows}
    if options.write:
        print(f"wrote {write_record(f'floors-{device}', record)}")


if __name__ == "__main__":
    main()
