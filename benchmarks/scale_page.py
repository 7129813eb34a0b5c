"""The measured parts of docs/scale.md, from benchmarks/records/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from stiefel_init.lab.report.tables import Table

HERE = Path(__file__).parent
SCALE = HERE.parent / "docs" / "scale.md"
STACK_SECONDS = 10
"""Of a usual stack, for the calculation of how many slots a driver serves."""


def _record(name: str) -> dict[str, Any]:
    return json.loads((HERE / "records" / f"{name}.json").read_text())


def scale() -> str:
    """The page, its measured parts renewed."""
    text = SCALE.read_text(encoding="utf-8")
    for mark, lines in (("threads", _threads()), ("measured", _measured())):
        text = re.sub(rf"<!-- {mark} -->.*?<!-- end -->", _block(mark, lines), text, count=1, flags=re.DOTALL)
    return text


def _block(mark: str, lines: list[str]) -> str:
    return "\n".join([f"<!-- {mark} -->", *lines, "<!-- end -->"])


def _threads() -> list[str]:
    found = _record("threads-cpu")
    rows = [
        [
            f"{row['networks']} × {row['depth']} layers, {row['width']} wide",
            f"{row['shared']:.2f}",
            f"{row['own']:.2f}",
            f"{row['shared, as with one thread']} of {row['networks']}",
            f"{row['own, as with one thread']} of {row['networks']}",
        ]
        for row in found["seconds"]
    ]
    header = ["stack", "shared, s", "own, s", "shared: bits of one thread", "own: bits of one thread"]
    where = f"{found['machine']['device']}, {found['machine']['threads']} threads"
    return [
        f"`OMP_WAIT_POLICY=passive python benchmarks/threads.py --write`, {where}, load {found['load']:.1f}:",
        "",
        *Table("", header, rows).markdown(),
    ]


def _measured() -> list[str]:
    found, kills = _record("scale-cpu"), _record("kills-cpu")
    driver, stack, nodes = found["driver"], found["seconds of a stack"], found["nodes"]
    pace, size = driver["stacks a second"], driver["bytes of a record"]
    killed = kills["killed"]
    rows = [
        [f"stacks of no work through the driver ({found['stacks']:,})", f"{pace:.0f} a second"],
        ["the same without writing records", f"{driver['stacks a second, unwritten']:.0f} a second"],
        [
            f"a stack on the cluster beyond the same stack here ({1e3 * stack['here']:.0f} ms)",
            f"{1e3 * stack['beyond']:.0f} ms",
        ],
        ["two one-core nodes against one, by the clock", f"{nodes['ratio']:.2f}×"],
        ["nodes at work on average, of two", f"{nodes['of two']:.2f}"],
        [
            f"{killed['node']} kills of nodes and {killed['driver']} of the driver",
            f"{kills['lost']} networks lost, {kills['twice']} twice, "
            f"{kills['other than undisturbed']} other than undisturbed",
        ],
    ]
    return [
        f"`python benchmarks/scale.py --write` and `kills.py --write`, {found['machine']['device']}, two cores that",
        f"others used too (load {found['load before']:.1f} before, {found['load after']:.1f} after). Two nodes cannot "
        "double the pace of cores",
        "that are taken; how many nodes were at work on average says what the driver does about it:",
        "",
        *Table("", ["", "measured"], rows).markdown(),
        "",
        f"- **Slots.** At {pace:.0f} stacks a second, with stacks of {STACK_SECONDS} s, one driver keeps about "
        f"{STACK_SECONDS * pace:,.0f} slots busy. Longer stacks, more slots.",
        f"- **Records.** A record of 20 epochs is {size / 1e3:.1f} KB: a million networks are {size / 1e3:.1f} GB on "
        f"the driver's disk (more in memory), in {1e6 / 12:,.0f} files for stacks of twelve. They pass through it in "
        f"{1e6 / 12 / pace / 60:.0f} minutes, far less than their training.",
        "- **Object store.** A study needs its data sets on every node: 55 MB for MNIST, 110 MB for both image sets. "
        "Results are small and stay out of it.",
        "- **Largest study.** `train` takes a million networks; the driver's memory is what limits it.",
    ]
