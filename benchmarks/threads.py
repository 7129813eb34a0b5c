"""A stack on a CPU of several cores: every thread its own networks, beside all threads sharing every product.

It was measured once, for docs/scale.md; the engine has since done what came out best.
"""

from __future__ import annotations

from . import timing
from .timing import Record


def tables(record: Record) -> list[str]:
    rows = [
        [
            f"{row['networks']} × {row['depth']} layers, {row['width']} wide",
            *(f"{row[way]:.2f}" for way in ("shared", "own")),
            *(f"{row[f'{way}, as with one thread']} of {row['networks']}" for way in ("shared", "own")),
        ]
        for row in record["seconds"]
    ]
    header = ["stack", "shared, s", "own, s", "shared: bits of one thread", "own: bits of one thread"]
    return [
        f"Measured once with `OMP_WAIT_POLICY=passive`, {timing.where(record)}, load {record['load']:.1f}:",
        "",
        *timing.markdown(header, rows),
    ]


def part() -> list[str]:
    return tables(timing.kept("threads-cpu"))[:-1]
