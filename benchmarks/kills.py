"""A study whose nodes and driver are killed at random moments: is anything lost, or trained into two records?

Nodes are killed with their workers and replaced; the driver is killed and its command run again. At the end the records
are compared with those of one process that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.runner import run

from . import timing

NETWORKS, MOST, KILLS = 200, 2, 20
DRIVER = "import sys; from benchmarks import kills; kills.drive(sys.argv[1])"


def study() -> list[Cell]:
    return [Cell("digits", scheme, 20, seed=s, epochs=4) for s in range(NETWORKS // 2) for scheme in ("stiefel", "he")]


def drive(out: str) -> None:
    """What the driver does: the command that is run again and again."""
    run(study(), on="ray", out=out, most=MOST)


def lines(out: Path) -> list[dict[str, Any]]:
    """All lines of all files."""
    return [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]


def outcome(record: Record) -> tuple[Any, ...]:
    """What must not depend on where it was trained."""
    return record.cell, record.score, record.train_loss, record.train_score, record.test_score


def disturbed(out: Path, kills: int, moments: random.Random) -> dict[str, int]:
    """Run the study, killing at most so often; how often what was killed."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    workers = [made.add_node(num_cpus=1) for _ in range(2)]
    environment = {**os.environ, "RAY_ADDRESS": made.address, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = {"node": 0, "driver": 0}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", DRIVER, str(out)], env=environment)

    try:
        driver = start()
        while sum(done.values()) < kills and driver.poll() is None:
            before = len(lines(out)) if out.is_dir() else 0
            while driver.poll() is None and (len(lines(out)) if out.is_dir() else 0) == before:
                time.sleep(0.05)  # it is at work
            time.sleep(moments.uniform(0, 1))
            if driver.poll() is not None:
                break
            what = moments.choice(("node", "driver"))
            print(f"{len(lines(out))} of {NETWORKS} done; killing a {what}", flush=True)
            if what == "driver":
                driver.kill()
                driver.wait()
                driver = start()
            else:
                made.remove_node(workers.pop(moments.randrange(2)), allow_graceful=False)
                workers.append(made.add_node(num_cpus=1))
            done[what] += 1
        assert driver.wait() == 0, "the last driver ended well"
    finally:
        made.shutdown()
    return done


def measure(device: str) -> Iterator[dict[str, Any]]:
    expected = {outcome(record) for record in run(study(), device="cpu")}
    moments, killed = random.Random(0), {"node": 0, "driver": 0}
    lost = twice = others = studies = 0
    while sum(killed.values()) < KILLS:  # a study that ends before its last kill is followed by another
        with tempfile.TemporaryDirectory() as folder:
            done = disturbed(out := Path(folder) / "records", KILLS - sum(killed.values()), moments)
            records = [Record.from_dict(values) for values in lines(out)]
        killed = {what: killed[what] + count for what, count in done.items()}
        cells = [record.cell for record in records]
        lost += len(set(study()) - set(cells))
        twice += len(cells) - len(set(cells))
        others += len(expected ^ set(map(outcome, records)))
        studies += 1
    yield {
        "machine": timing.machine("cpu"), "killed": killed, "studies": studies, "networks of a study": NETWORKS,
        "lost": lost, "twice": twice, "other than undisturbed": others,
    }  # fmt: skip


def row(record: dict[str, Any]) -> list[str]:
    """What docs/scale.md says of it."""
    killed, others = record["killed"], record["other than undisturbed"]
    return [
        f"{killed['node']} kills of nodes and {killed['driver']} of the driver",
        f"{record['lost']} networks lost, {record['twice']} twice, {others} other than undisturbed",
    ]


def tables(record: dict[str, Any]) -> list[str]:
    return timing.markdown(["", "measured"], [row(record)])
