"""What the machine allows: how much faster than `orthogonal_` any sampler could be, beside what ours is.

A member of p rows and q columns, p ≤ q, needs at least p(p+1)/2 + p(q-p) normals, 2p²(q - p/3) operations for the first
p rows of the product of p reflections, and to be written once. The floor of a draw is the sum of the three at the rates
measured in the same run, each as fast as the machine does it on large arrays, and one call of PyTorch for each of the
three. No order of operations is faster; small products reach a fraction of the large ones' rate, so real limits are
lower.

Of all times the least of 15 rounds counts: what the machine allows is what it does when nobody disturbs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from stiefel_init.torch import initialize_, sample, stiefel_

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


def measure(device: str) -> Iterator[Record]:
    speeds, rows = rates(device), []
    w = torch.empty(WIDTH, WIDTH, device=device)
    layers = [nn.Linear(WIDTH, WIDTH, device=device) for _ in range(DEPTH)]
    model = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))
    network: Ways = {"orthogonal_": lambda: [nn.init.orthogonal_(layer.weight) for layer in layers]}
    whole, single = (20, 5) if device == "cuda" else (5, 2.5)
    floor = speeds.floor(WIDTH, WIDTH, DEPTH)
    cases: list[tuple[str, float, float, Ways]] = [
        (f"{m}×{n}", single, speeds.floor(m, n), _single(m, n, device)) for m, n in SHAPES
    ]
    many = partial(sample, WIDTH, WIDTH, batch=DEPTH, device=device)
    cases += [
        (MANY, 6, floor, {"ours": many, "orthogonal_": lambda: [nn.init.orthogonal_(w) for _ in range(DEPTH)]}),
        (NETWORK, whole, floor, {"ours": partial(initialize_, model, recipe="paper"), **network}),
        (f"{NETWORK}, seeded", whole, floor, {"ours": partial(initialize_, model, recipe="paper", seed=0), **network}),
    ]
    for title, wanted, least, ways in cases:
        seconds = timing.in_turns(ways, synchronize=timing.waiting(device), rounds=ROUNDS, seconds=0.03, pick=min)
        rows.append({"what": title, "wanted": wanted, **timing.in_milliseconds(seconds), "floor": 1e3 * least})
    yield {"machine": timing.machine(device), "rates": speeds._asdict(), "rows": rows}


def _single(m: int, n: int, device: str) -> Ways:
    w = torch.empty(m, n, device=device)
    return {"ours": partial(stiefel_, w), "orthogonal_": partial(nn.init.orthogonal_, w)}


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
        *_parts(record["machine"]["device"]),
    ]  # fmt: skip


def _times(row: Record, least: float, digits: int = 2) -> list[str]:
    """How many times as fast as `orthogonal_`: ours, what was wanted, and what is possible at most."""
    theirs = row["orthogonal_"]
    return [f"{theirs / row['ours']:.2f}", f"{row['wanted']:g}", f"{theirs / least:.{digits}f}"]


def _parts(device: str) -> list[str]:
    """What draws are made of, at least, as it was measured once on this machine."""
    rows = [row for record in timing.on_devices("floors-parts") if record["machine"]["device"] == device
            for row in record["rows"]]  # fmt: skip
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
