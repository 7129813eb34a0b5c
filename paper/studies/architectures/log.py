"""The runs of the study as a table of text: one line each, written when the run ends."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import write_whole

from .training import Job

COLUMNS = ("network", "start", "rate", "seed", "score", "curve")
Runs = dict[Job, tuple[float, ...]]
"""Of each run the scores on the way, the last one at the end."""


def runs(rows: Iterable[Mapping[str, Any]], path: Path) -> Runs:
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
    """The table of a run of the study. What a kill cut off is dropped; the rest is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: Runs = {}
        if path.exists():
            whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
            self.runs = runs(csv.DictReader(whole.splitlines()), path)
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
