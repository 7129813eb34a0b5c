"""Experiments made of runs, each a line of a table: those of the zoo, and of studies that train networks of users."""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, get_type_hints

import torch

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import prepare, write_whole
from stiefel_init.lab.progress import progress
from stiefel_init.lab.train.record import environment
from stiefel_init.lab.train.runner import pick_device

from .experiment import Experiment, Options
from .results import Results, note_environment, write_table

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


class OfRuns(Experiment):
    """An experiment made of runs of its own, a line of a table each; rerun, it goes on where it was stopped."""

    kind: ClassVar[type[Any]]
    """A run: a named tuple of words and numbers, which are the first columns of the table."""
    engine: ClassVar[str] = "loop"

    @abstractmethod
    def wanted(self, options: Options) -> list[Any]:
        """All runs, the most important first."""

    @abstractmethod
    def train(
        self, runs: Sequence[Any], options: Options, device: torch.device, tell: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """Train runs side by side, and tell how much is done, of one for each; what their lines have besides."""

    def together(self, options: Options, device: torch.device) -> int:
        """How many runs are trained at once."""
        return 1

    def parts(self, left: Sequence[Any], options: Options, device: torch.device) -> Iterator[Sequence[Any]]:
        """What is trained side by side, one part after the other."""
        most = self.together(options, device)
        return (left[first : first + most] for first in range(0, len(left), most))

    def read(self, rows: Iterable[Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
        """The lines of a table by their runs.

        Raises:
            StiefelError: for a damaged line, which is named.
        """
        kinds, found = get_type_hints(self.kind), dict[Any, Mapping[str, Any]]()
        for number, row in enumerate(rows, 2):
            try:
                found[self.kind(*(of(row[name]) for name, of in kinds.items()))] = row
            except (KeyError, TypeError, ValueError) as error:
                told = f"the table of {self.name}, line {number}, is damaged ({error}); restore or remove the file."
                raise StiefelError(told) from error
        return found

    def evidence(self, results: Results) -> Any:
        """The lines on record by their runs."""
        return self.read(results.table(self.name)) or None

    def run(self, options: Options) -> None:
        """Train what is left, and note each run as it ends; after `minutes` none is begun."""
        device, label, begun = pick_device(options.device), self.label(options.quick), time.time()
        path = prepare(options.out) / f"{label}.csv"
        rows = Results(options.out).table(label)
        done = self.read(rows)
        left = [run for run in self.wanted(options) if run not in done]
        with progress(len(left), label) as advance:
            for some in self.parts(left, options, device):
                if options.minutes is not None and time.time() - begun > 60 * options.minutes:
                    print(f"Stopped after {options.minutes:g} minutes; finished networks are kept, rerun to resume.")
                    break
                started = time.time()
                found = self.train(some, options, device, advance)
                seconds = time.time() - started
                each = {"seconds": round(seconds / len(some), 1)}
                rows += [{**run._asdict(), **more, **each} for run, more in zip(some, found)]
                write_table(rows, path)
                note_environment(options.out, label, environment(device, self.engine), seconds, len(some), add=True)
        self.present(self.read(rows), options)


def command(
    make: Callable[..., Experiment], name: str, about: str | None, more: Mapping[str, Any],
    out: str = "stiefel-init-results",
) -> None:  # fmt: skip
    """Run an experiment from the command line, with `more` than `reproduce` offers: what `make` takes."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=about)
    for option, words in more.items():
        parser.add_argument(option, **words)
    for option, kind in {"--seeds": int, "--data": Path, "--minutes": float}.items():
        parser.add_argument(option, type=kind)
    parser.add_argument("--at-once", dest="stack", type=int)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    words = vars(parser.parse_args())
    given = {field.name: words.pop(field.name) for field in fields(Options) if field.name in words}
    try:
        make(**words).run(Options(**given))
    except StiefelError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
