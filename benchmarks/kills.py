"""A study whose nodes and driver are killed at random moments: is anything lost, or trained into two records?

python benchmarks/kills.py [--kills 20] [--write]

Nodes are killed with their workers and replaced; the driver is killed and its command run again. At the end the records
are compared with those of one process that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _timing import machine, write_record

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.runner import run

NETWORKS, MOST = 200, 2
DRIVER = "import sys, kills; kills.drive(sys.argv[1])"


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
    environment = {**os.environ, "RAY_ADDRESS": made.address, "PYTHONPATH": os.pathsep.join(sys.path)}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    parser.add_argument("--device", default="cpu", help="only cpu")
    options = parser.parse_args()
    expected = {outcome(record) for record in run(study(), device="cpu")}
    moments, killed = random.Random(0), {"node": 0, "driver": 0}
    lost = twice = others = studies = 0
    while sum(killed.values()) < options.kills:  # a study that ends before its last kill is followed by another
        with tempfile.TemporaryDirectory() as folder:
            done = disturbed(out := Path(folder) / "records", options.kills - sum(killed.values()), moments)
            found = [Record.from_dict(values) for values in lines(out)]
        killed = {what: killed[what] + count for what, count in done.items()}
        cells = [record.cell for record in found]
        lost += len(set(study()) - set(cells))
        twice += len(cells) - len(set(cells))
        others += len(expected ^ set(map(outcome, found)))
        studies += 1
    figures = {
        "machine": machine("cpu"), "killed": killed, "studies": studies, "networks of a study": NETWORKS,
        "lost": lost, "twice": twice, "other than undisturbed": others,
    }  # fmt: skip
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.write:
        write_record("kills-cpu", figures)


if __name__ == "__main__":
    main()
