"""The speed of the paper's two algorithms for drawing a member of the set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from benchmarks import timing

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.record import environment
from stiefel_init.torch import stiefel_

from ..experiment import Claim, Measured, Options, held

SHAPES = ((64, 64), (64, 784), (512, 512), (1024, 1024), (512, 2048))
QUICK_SHAPES = SHAPES[:3]
METHODS: tuple[Literal["algorithm1", "algorithm2"], ...] = ("algorithm1", "algorithm2")


class Algorithms(Measured):
    """How much faster algorithm 2 is: matrices of each shape, drawn by both in turn, medians."""

    name = "algorithms"
    title = "The paper's algorithms"
    page = None
    of_paper = True
    files = ("algorithms",)
    numbers = ("m", "n", *METHODS)

    def measure(self, options: Options, device: torch.device, advance: Callable[[float], None]) -> tuple[Any, int]:
        rows = []
        for place in dict.fromkeys((device, torch.device("cpu"))):
            for m, n in QUICK_SHAPES if options.quick else SHAPES:
                w = torch.empty(m, n, device=place)
                ways: timing.Ways = {name: partial(stiefel_, w, method=name) for name in METHODS}
                taken = timing.in_turns(ways, synchronize=timing.waiting(place.type), seconds=0.3)
                told = {name: round(1e3 * value, 4) for name, value in taken.items()}
                rows.append({"device": environment(place, "")["device"], "m": m, "n": n} | told)
        return rows, 0

    def tables(self, evidence: Sequence[Mapping[str, Any]]) -> list[Table]:
        rows = [
            [str(row["device"]), f"{row['m']} × {row['n']}", *(f"{row[name]:.3f}" for name in METHODS),
             f"{_gain(row):.2f}"]
            for row in evidence
        ]  # fmt: skip
        header = ["device", "shape", "algorithm 1 (ms)", "algorithm 2 (ms)", "times as fast"]
        return [Table("algorithms: one matrix, float32", header, rows)]

    def claims(self, evidence: Sequence[Mapping[str, Any]] | None) -> list[Claim]:
        claim = "Algorithm 2 is up to twice as fast as algorithm 1"
        if not evidence:
            return [Claim(claim)]
        low, top = min(evidence, key=_gain), max(evidence, key=_gain)
        told = (f"{_gain(row):.2f} ({row['m']}×{row['n']}, {row['device']})" for row in (low, top))
        text = f"Between {' and '.join(told)} times as fast."
        return [Claim(claim, held(_gain(top) >= 1.8 and _gain(low) > 0.95, part=True), text)]


def _gain(row: Mapping[str, Any]) -> float:
    return row["algorithm1"] / row["algorithm2"]
