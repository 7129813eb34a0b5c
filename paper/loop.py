"""The table of the runs of the zoo, and of studies like it."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import write_whole

TUNING = 1000
"""The seed with which rates are chosen, in shorter runs; those of the results are 0, 1, …"""
COLUMNS = ("network", "start", "rate", "seed", "score", "curve")


class Job(NamedTuple):
    """A run: its network, initialization, rate and seed."""

    network: str
    start: str
    rate: float
    seed: int


Runs = dict[Job, tuple[float, ...]]
"""Of each run the scores on the way, the last one at the end."""


def read(rows: Iterable[Mapping[str, Any]], path: Path) -> Runs:
    """The runs of a table.

    Raises:
        StiefelError: for a damaged line, which is named.
    """
    found: Runs = {}
    for number, row in enumerate(rows, 2):
        try:
            curve = tuple(float(score) for score in str(row["curve"]).split())
            job = Job(str(row["network"]), str(row["start"]), float(row["rate"]), int(row["seed"]))
            if not curve or not math.isclose(curve[-1], float(row["score"])):
                raise ValueError("its score is not the end of its curve")
        except (KeyError, TypeError, ValueError) as error:
            raise StiefelError(f"{path}, line {number}, is damaged ({error}); restore or remove the file.") from error
        found[job] = curve
    return found


class Log:
    """A table of runs, a line for each, written when it ends. What a kill cut off is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: Runs = {}
        if path.exists():
            whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
            self.runs = read(csv.DictReader(whole.splitlines()), path)
            if cut:
                write_whole(path, whole + "\n")

    def add(self, job: Job, curve: list[float]) -> None:
        """Note a run, so that it is there whatever happens next."""
        self.runs[job] = tuple(curve)
        new = not self.path.exists()
        scores = [f"{score:.4f}" for score in self.runs[job]]
        try:
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([COLUMNS] if new else [])
                writer.writerow([job.network, job.start, repr(job.rate), job.seed, scores[-1], " ".join(scores)])
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StiefelError(
                f"{self.path} could not be written ({error.strerror}); free some space, then rerun: finished runs are "
                "kept."
            ) from error
