"""The runs of the study: which are left, the table that keeps them, and training what is left.

Rates are chosen by runs with seeds of their own; fresh seeds are compared at the best. Two rates whose runs are closer
than the margin are run once more, at full length and with another seed. What learnt nothing at any rate is not rerun.
"""

from __future__ import annotations

import csv
import math
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import multiprocessing

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import write_whole
from stiefel_init.lab.study.rates import best_first, beyond

from .catalogue import Network, networks
from .training import SETTLING, TUNING, Job, train

MORE = 3
"""Rates at most that are tried beyond the first ones, while the best lies at an end."""
WORKERS = 4
COLUMNS = ("network", "start", "rate", "seed", "score", "curve")
Runs = dict[Job, tuple[float, ...]]
"""Of each run the scores on the way, the last one at the end."""
Advanced = Callable[[Network, int], None]


def tried(network: Network, start: str, scores: Mapping[Job, float]) -> dict[float, float]:
    """The rates that were tried, and what the first run at each reached; more is better."""
    name = network.rates_of or network.name
    jobs = (job for job in scores if job[:2] == (name, start) and job.seed == TUNING)
    return {job.rate: network.metric.sign * scores[job] for job in jobs}


def _close(network: Network, start: str, scores: Mapping[Job, float]) -> list[float]:
    """The best rate of the first seed, and the next best where it is closer than the margin."""
    reached = tried(network, start, scores)
    ranked = best_first(reached)[:2]
    return [rate for rate in ranked if reached[rate] >= reached[ranked[0]] - network.metric.margin]


def best_rate(network: Network, start: str, scores: Mapping[Job, float]) -> float | None:
    """The rate that was best with the seeds for it; None without runs."""
    close, name = _close(network, start, scores), network.rates_of or network.name
    if close and all(Job(name, start, rate, SETTLING) in scores for rate in close):
        seeds = [TUNING, SETTLING] if network.tuning_steps == network.steps else [SETTLING]  # those at full length
        close = best_first(
            {rate: network.metric.sign * mean(scores[Job(name, start, rate, seed)] for seed in seeds) for rate in close}
        )
    return close[0] if close else None


def left_of(
    network: Network, start: str, scores: Mapping[Job, float], seeds: int, *, thorough: bool = True
) -> list[Job]:
    """The runs from an initialization that can be begun now, with so many fresh seeds.

    A thorough study tries rates beyond the first ones, and settles which of two close ones is better.
    """
    if not network.rates_of:
        reached = tried(network, start, scores)
        if fresh := [rate for rate in network.rates if rate not in reached]:
            return [Job(network.name, start, rate, TUNING) for rate in fresh]
        first, *second = _close(network, start, scores)
        if not network.metric.learnt(scores[Job(network.name, start, first, TUNING)]):
            return []  # fresh seeds would be wasted on it
        further = beyond(reached, first)
        if thorough and len(reached) < len(network.rates) + MORE and further is not None:
            return [Job(network.name, start, further, TUNING)]
        settling = [Job(network.name, start, rate, SETTLING) for rate in (first, *second)] if second else []
        if thorough and (unknown := [job for job in settling if job not in scores]):
            return unknown
    best = best_rate(network, start, scores)
    wanted = [] if best is None else [Job(network.name, start, best, seed) for seed in range(seeds)]
    return [job for job in wanted if job not in scores]


def expected(network: Network, seeds: int, *, thorough: bool = True) -> float:
    """About how many full runs a network takes; a thorough study tries one rate more, on average."""
    rates = 0 if network.rates_of else len(network.rates) + thorough
    return len(network.starts) * (seeds + rates * network.tuning_steps / network.steps)


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
    """The table of a run of the study, a line for each run, written when it ends. What a kill cut off is dropped."""

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


@dataclass(frozen=True)
class Manner:
    """How the study is run."""

    quick: bool
    seeds: int
    device: torch.device
    data: Path | None
    until: float
    """The time (`time.time`) after which nothing is begun."""


def left(network: Network, runs: Runs, manner: Manner) -> list[Job]:
    """The runs of a network that can be begun now."""
    scores = {job: curve[-1] for job, curve in runs.items()}
    asked = (left_of(network, start, scores, manner.seeds, thorough=not manner.quick) for start in network.starts)
    return [job for jobs in asked for job in jobs]


def train_all(
    chosen: Sequence[Network], runs: Runs, manner: Manner, advanced: Advanced, workers: int | None = None
) -> Iterator[tuple[Job, list[float]]]:
    """Train what is left of the networks; yields runs as they end, which the caller adds to `runs`.

    On a CPU one network after another; on a GPU several at once, in a process each. `advanced` hears of steps taken.
    """
    count = (WORKERS if manner.device.type == "cuda" else 0) if workers is None else workers
    if not count:
        for network in chosen:
            yield from _train(network, runs, manner, advanced)
        return
    known, todo = networks(quick=manner.quick), [network for network in chosen if left(network, runs, manner)]
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(count, context) as pool:
        messages = manager.Queue()
        for later in (False, True):  # those that use the rates of others come after them
            here = sorted((n for n in todo if bool(n.rates_of) == later), key=lambda n: -n.work)
            waiting = {pool.submit(_work, n.name, dict(runs), manner, messages): n for n in here}
            while waiting or not messages.empty():
                try:
                    name, steps, done = messages.get(timeout=0.2)
                    if done is not None:
                        yield done
                    else:
                        advanced(known[name], steps)
                except queue.Empty:
                    for future in [future for future in waiting if future.done()]:
                        name = waiting.pop(future).name
                        try:
                            future.result()
                        except (Exception, BrokenProcessPool) as error:
                            pool.shutdown(cancel_futures=True)
                            reason = f"{type(error).__name__}: {error}"
                            raise StiefelError(
                                f"Training {name} failed ({reason}); rerun: finished runs are kept."
                            ) from None


def _work(name: str, runs: Runs, manner: Manner, messages: Any) -> None:
    """What a process does: train what is left of one network."""
    network = networks(quick=manner.quick)[name]
    for job, curve in _train(network, runs, manner, lambda _, steps: messages.put((name, steps, None))):
        runs[job] = tuple(curve)
        messages.put((name, 0, (job, curve)))


def _train(network: Network, runs: Runs, manner: Manner, advanced: Advanced) -> Iterator[tuple[Job, list[float]]]:
    """Train what is left of one network."""
    begun: set[Job] = set()

    def todo() -> Job | None:
        job = next((job for job in left(network, runs, manner) if job not in begun), None)
        if job is None or time.time() > manner.until:
            return None
        begun.add(job)
        return job

    if left(network, runs, manner):
        if manner.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True
        problem = network.problem(manner.device, manner.data)
        yield from train(network, problem, manner.device, todo, lambda steps: advanced(network, steps))
