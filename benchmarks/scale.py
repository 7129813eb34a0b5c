"""How far a study goes on a cluster: the driver's pace, what a stack costs beyond its training, two nodes against one.

Starts Ray on this machine, one core for each node. Stacks of no work pass through the driver as real ones do: taken
from the queue, sent, returned, and written as a file of records. Ratios are of runs in turn, on a machine that others
may use.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stiefel_init.lab.train import record as record_files
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.cluster import ClusterSpec, Dispatch, NodeSettings, connected
from stiefel_init.lab.train.runner import run

from . import timing
from .timing import Record as Figures

STACKS = 10_000
STACK_SECONDS = 10
"""Of a usual stack, for the calculation of how many slots a driver serves."""


def no_work(settings: NodeSettings, identities: Any, kind: Any, cores: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Records of a stack that nobody trained, as large as real ones."""
    return [{**settings.datasets, **identity} for identity in identities], []


@contextmanager
def nodes(count: int) -> Iterator[None]:
    """A cluster of so many one-core nodes on this machine, and a connection to it."""
    from ray.cluster_utils import Cluster as Machines

    made = Machines(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(count - 1):
        made.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = made.address
    try:
        with connected(ClusterSpec(None)):
            yield
    finally:
        made.shutdown()
        del os.environ["RAY_ADDRESS"]


def pace(stacks: int) -> dict[str, float]:
    """Stacks of no work a second through the driver, of one network each, with and without writing their records."""
    import ray

    (sample,) = run([Cell("digits", depth=10, epochs=20)], device="cpu")
    rest = {name: value for name, value in sample.to_dict().items() if name not in sample.cell.identity()}
    size = len(str(sample.to_dict()))
    found: dict[str, float] = {"bytes of a record": size}
    for written in (True, False):
        cells = [Cell("digits", depth=10, seed=seed) for seed in range(stacks)]
        dispatch = Dispatch(ray, ClusterSpec(None), "cpu", no_work, print)
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            count = 0
            for records in dispatch.run([[cell] for cell in cells], NodeSettings("", "auto", None, 1.0, rest, b"")):
                count += len(records)
                if written:
                    record_files.write(Path(folder), records)
            seconds = time.perf_counter() - start
        assert count == stacks
        found["stacks a second" if written else "stacks a second, unwritten"] = stacks / seconds
    return found


def study(count: int, epochs: int) -> list[Cell]:
    """Networks for a stack of a few seconds."""
    return [Cell("digits", depth=30, seed=seed, epochs=epochs) for seed in range(count)]


def timed(cells: list[Cell], **options: Any) -> float:
    """Seconds of a run; its processes have imported everything before."""
    start = time.perf_counter()
    run(cells, **options)
    return time.perf_counter() - start


def overhead(rounds: int = 3, stacks: int = 20) -> dict[str, float]:
    """Seconds that a stack takes longer on a cluster of one core than here on one thread, Ray's start aside."""
    import torch

    torch.set_num_threads(1)
    cells = study(stacks, 2)
    timed(cells, on="ray", most=1)
    here, there = [], []
    for _ in range(rounds):
        here.append(timed(cells, device="cpu", most=1))
        there.append(timed(cells, on="ray", most=1))
    return {
        "here": statistics.median(here) / stacks,
        "on the cluster": statistics.median(there) / stacks,
        "beyond": (statistics.median(there) - statistics.median(here)) / stacks,
    }


def at_work(rounds: int = 2) -> tuple[float, float]:
    """A study on the nodes that are there: its seconds, and how many nodes were at work on average."""
    cells = study(48, 12)
    seconds, busy = [], []
    run(cells[:4], on="ray", most=1)
    for _ in range(rounds):
        start = time.perf_counter()
        records = run(cells, on="ray")
        seconds.append(time.perf_counter() - start)
        busy.append(sum(record.seconds for record in records) / seconds[-1])
    return statistics.median(seconds), statistics.median(busy)


def measure(device: str) -> Iterator[Figures]:
    record: Figures = {"machine": timing.machine("cpu"), "stacks": STACKS, "load before": os.getloadavg()[0]}
    with nodes(1):
        record["seconds of a stack"] = overhead()
        one, busy_one = at_work()
    with nodes(2):
        record["driver"] = pace(STACKS)
        two, busy_two = at_work()
    ratio = {"one": one, "two": two, "ratio": one / two}
    record["nodes"] = ratio | {"at work of one": busy_one, "of two": busy_two}
    record["load after"] = os.getloadavg()[0]
    yield record


def tables(record: Figures) -> list[str]:
    driver, stack, two = record["driver"], record["seconds of a stack"], record["nodes"]
    beyond = f"a stack on the cluster beyond the same stack here ({1e3 * stack['here']:.0f} ms)"
    rows = [
        [f"stacks of no work through the driver ({record['stacks']:,})", f"{driver['stacks a second']:.0f} a second"],
        ["the same without writing records", f"{driver['stacks a second, unwritten']:.0f} a second"],
        [beyond, f"{1e3 * stack['beyond']:.0f} ms"],
        ["two one-core nodes against one, wall-clock", f"{two['ratio']:.2f}×"],
        ["nodes at work on average, of two", f"{two['of two']:.2f}"],
        _kills(timing.kept("kills-cpu")),
    ]
    return timing.markdown(["", "measured"], rows)


def _kills(record: Figures) -> list[str]:
    """What was lost in studies whose nodes and driver were killed; tests/lab/train/test_cluster.py kills them, too."""
    killed, others = record["killed"], record["other than undisturbed"]
    return [
        f"{killed['node']} kills of nodes and {killed['driver']} of the driver",
        f"{record['lost']} networks lost, {record['twice']} twice, {others} other than undisturbed",
    ]


def part() -> list[str]:
    """The part of docs/scale.md."""
    record = timing.kept("scale-cpu")
    pace, size = record["driver"]["stacks a second"], record["driver"]["bytes of a record"]
    return [
        f"`python -m benchmarks scale --write`, {record['machine']['device']}, two cores that others used",
        f"too (load {record['load before']:.1f} before, {record['load after']:.1f} after). Two nodes cannot double the",
        "pace of cores that are taken; how many nodes were at work on average says what the driver does about it:", "",
        *tables(record),
        f"- **Slots.** At {pace:.0f} stacks a second, with stacks of {STACK_SECONDS} s, one driver keeps about "
        f"{STACK_SECONDS * pace:,.0f} slots busy. Longer stacks, more slots.",
        f"- **Records.** A record of 20 epochs is {size / 1e3:.1f} KB: a million networks are {size / 1e3:.1f} GB on "
        f"the driver's disk (more in memory), in {1e6 / 12:,.0f} files for stacks of twelve. They pass through it in "
        f"{1e6 / 12 / pace / 60:.0f} minutes, far less than their training.",
        "- **Object store.** A study needs its data sets on every node: 55 MB for MNIST, 110 MB for both image sets. "
        "Results are small and stay out of it.",
        "- **Largest study.** `train` takes a million networks; the driver's memory is what limits it.",
    ]  # fmt: skip
