"""The speed of the paper's two algorithms for drawing a member of the set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from benchmarks import timing

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.record import environment
from stiefel_init.torch import stiefel_

from ..experiment import Claim, Measured, Options, held
from ..results import Results

SHAPES = ((64, 64), (64, 784), (512, 512), (1024, 1024), (512, 2048))
QUICK_SHAPES = SHAPES[:3]
ROUNDS = 7
METHODS: tuple[Literal["algorithm1", "algorithm2"], ...] = ("algorithm1", "algorithm2")


class Algorithms(Measured):
    """How much faster algorithm 2 is: matrices of each shape, drawn by both in turn, medians."""

    name = "algorithms"
    title = "The paper's algorithms"
    page = None
    of_paper = True
    files = ("algorithms",)

    def measure(self, options: Options, device: torch.device, advance: Callable[[float], None]) -> tuple[Any, int]:
        return [
            {"device": environment(place, "")["device"], **measured}
            for place in dict.fromkeys((device, torch.device("cpu")))
            for measured in _times(place, QUICK_SHAPES if options.quick else SHAPES)
        ], 0

    def evidence(self, results: Results) -> list[dict[str, Any]] | None:
        rows = results.table(self.name)
        if any(not {"device", "m", "n"} <= row.keys() or not (_of(row, 0) > 0 and _of(row, 1) > 0) for row in rows):
            raise StiefelError(f"{results.place / 'algorithms.csv'} is damaged; restore the file, or time them again.")
        return rows or None

    def tables(self, evidence: Sequence[Mapping[str, Any]]) -> list[Table]:
        rows = [
            [
                str(row["device"]), f"{row['m']} × {row['n']}", *(f"{row[name]:.3f}" for name in METHODS),
                f"{row['algorithm1'] / row['algorithm2']:.2f}",
            ]
            for row in evidence
        ]  # fmt: skip
        header = ["device", "shape", "algorithm 1 (ms)", "algorithm 2 (ms)", "times as fast"]
        return [Table("algorithms: one matrix, float32", header, rows)]

    def claims(self, evidence: Sequence[Mapping[str, Any]] | None) -> list[Claim]:
        claim = "Algorithm 2 is up to twice as fast as algorithm 1"
        if not evidence:
            return [Claim(claim)]
        ratios = {(row["device"], f"{row['m']}×{row['n']}"): row["algorithm1"] / row["algorithm2"] for row in evidence}
        top, low = max(ratios, key=lambda k: ratios[k]), min(ratios, key=lambda k: ratios[k])
        text = (
            f"Between {ratios[low]:.2f} ({low[1]}, {low[0]}) and {ratios[top]:.2f} ({top[1]}, {top[0]}) times as fast."
        )
        return [Claim(claim, held(ratios[top] >= 1.8 and ratios[low] > 0.95, part=True), text)]


def _of(row: Mapping[str, Any], method: int) -> float:
    value = row.get(METHODS[method])
    return value if isinstance(value, int | float) else 0.0


def _times(device: torch.device, shapes: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    rows = []
    for m, n in shapes:
        w = torch.empty(m, n, device=device)
        ways: timing.Ways = {name: partial(stiefel_, w, method=name) for name in METHODS}
        taken = timing.in_turns(ways, synchronize=timing.waiting(device.type), rounds=ROUNDS, seconds=0.3)
        rows.append({"m": m, "n": n} | {name: round(1e3 * value, 4) for name, value in taken.items()})
    return rows
