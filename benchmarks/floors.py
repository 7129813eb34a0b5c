"""What the machine allows: how much faster than `orthogonal_` any sampler could be, beside what ours is.

    python benchmarks/floors.py [--device cpu|cuda] [--write]

A member of p rows and q columns, p ≤ q, needs at least p(p+1)/2 + p(q-p) normals, 2p²(q - p/3) operations for the first
p rows of the product of p reflections, and to be written once. The floor of a draw is the sum of the three at the rates
measured in the same run, each as fast as the machine does it on large arrays, and one call of PyTorch for each of the
three; a model takes two calls more for each parameter, to find and to write it. No order of operations is faster; small
products reach a fraction of the large ones' rate, so real limits are lower.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from _timing import in_turns, machine, write_record
from torch import nn

from stiefel_init.torch import initialize_, sample, stiefel_

SHAPES = [(64, 64), (64, 784), (512, 512), (1024, 1024), (1024, 4096), (2048, 2048), (4096, 4096)]
DEPTH, WIDTH = 100, 64


class Rates(NamedTuple):
    """What the machine does in a second, and the seconds of a call that does nothing."""

    normals: float
    operations: float
    bytes: float
    call: float

    def floor(self, p: int, q: int, count: int = 1, calls: int = 3) -> float:
        """Seconds that `count` members of p rows and q columns take at least."""
        normals, operations = p * (p + 1) / 2 + p * (q - p), 2 * p * p * (q - p / 3)
        each = normals / self.normals + operations / self.operations + 4 * p * q / self.bytes
        return count * each + calls * self.call


def rates(device: str, synchronize: Callable[[], Any]) -> Rates:
    """As measured on arrays of 16 million numbers, and on one of one."""
    large, one = torch.empty(1 << 24, device=device), torch.zeros(1, device=device)
    a = torch.randn(4096, 4096, device=device)
    ways: dict[str, Callable[[], Any]] = {
        "normals": lambda: large.normal_(),
        "product": lambda: a @ a,
        "fill": lambda: large.fill_(1.0),
    }
    seconds = in_turns(ways, synchronize=synchronize, rounds=5, seconds=0.2)
    call = in_turns({"call": lambda: one.add_(1)}, rounds=5)["call"]
    return Rates(
        large.numel() / seconds["normals"], 2 * 4096**3 / seconds["product"], large.nbytes / seconds["fill"], call
    )


def compared(title: str, wanted: float, ways: dict[str, Callable[[], Any]], floor: float, **how: Any) -> dict[str, Any]:
    """Ours and the loop of `orthogonal_`, timed in turns, and the floor."""
    seconds = in_turns(ways, **how)
    ours, theirs = (1e3 * seconds[name] for name in ("ours", "orthogonal_"))
    row = {"what": title, "wanted": wanted, "ours": ours, "orthogonal_": theirs, "floor": 1e3 * floor}
    fast, most = theirs / ours, theirs / (1e3 * floor)
    print(f"{title:>44}: {ours:9.3f} ms, floor {1e3 * floor:9.3f}, orthogonal_ {theirs:9.3f}: ", end="")
    print(f"{fast:5.2f} times as fast, at most {most:6.2f}, wanted {wanted:g}", flush=True)
    return row


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
        rows.append(compared(f"{m}×{n}", 5 if gpu else 2.5, ways, found.floor(m, n), synchronize=synchronize))
    w = torch.empty(WIDTH, WIDTH, device=device)
    rows.append(
        compared(
            "100 matrices of 64×64 in one call", 6,
            {
                "ours": lambda: sample(WIDTH, WIDTH, batch=100, device=device),
                "orthogonal_": lambda: [nn.init.orthogonal_(w) for _ in range(100)],
            },
            found.floor(WIDTH, WIDTH, 100), synchronize=synchronize,
        )
    )  # fmt: skip
    layers = [nn.Linear(WIDTH, WIDTH, device=device) for _ in range(DEPTH)]
    model = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))
    for title, wanted, seed in (("", 20 if gpu else 5, None), (", seeded", 20 if gpu else 5, 0)):
        rows.append(
            compared(
                f"a network of 100 layers{title}", wanted,
                {
                    "ours": partial(initialize_, model, recipe="paper", seed=seed),
                    "orthogonal_": lambda: [nn.init.orthogonal_(layer.weight) for layer in layers],
                },
                found.floor(WIDTH, WIDTH, DEPTH, calls=3 + 4 * DEPTH), synchronize=synchronize,
            )
        )  # fmt: skip
    single = rows[: len(SHAPES)]
    for name, value in (("ours", "ours"), ("at most", "floor")):
        mean = math.exp(sum(math.log(row["orthogonal_"] / row[value]) for row in single) / len(single))
        print(f"geometric mean over single matrices, {name}: {mean:.2f}")
    record = {"machine": machine(device), "rates": found._asdict(), "rows": rows}
    if options.write:
        print(f"wrote {write_record(f'floors-{device}', record)}")


if __name__ == "__main__":
    main()
