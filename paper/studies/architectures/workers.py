"""The networks that are left: one after another on a CPU, several at once, in a process each, on a GPU."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing

from stiefel_init.core.errors import StiefelError

from . import plan
from .catalogue import Network, networks
from .log import Runs
from .training import Job, train

WORKERS = 4
Done = tuple[Job, list[float]]
Advanced = Callable[[Network, int], None]


@dataclass(frozen=True)
class How:
    """How the study is run."""

    quick: bool
    seeds: int
    device: torch.device
    data: Path | None
    until: float
    """The time (`time.time`) after which nothing is begun."""


def train_all(chosen: Sequence[Network], runs: Runs, how: How, advanced: Advanced) -> Iterator[Done]:
    """Train what is left of the networks; yields runs as they end, which the caller adds to `runs`.

    Args:
        chosen: The networks.
        runs: What has been run.
        how: How to run it.
        advanced: Called with a network and a number of steps taken.
    """
    if how.device.type != "cuda":
        for network in chosen:
            yield from _train(network, runs, how, advanced)
        return
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    waiting = sorted((n for n in chosen if left(n, runs, how)), key=lambda n: (bool(n.rates_of), -n.work))
    workers: dict[str, Any] = {}
    try:
        while waiting or workers:
            for network in list(waiting):
                if len(workers) < WORKERS and network.rates_of not in {*workers, *(n.name for n in waiting)}:
                    waiting.remove(network)
                    arguments = network.name, dict(runs), how, messages
                    workers[network.name] = context.Process(target=_work, args=arguments, daemon=True)
                    workers[network.name].start()
            try:
                kind, name, what = messages.get(timeout=1)
            except queue.Empty:
                for name, worker in workers.items():
                    if worker.exitcode not in (None, 0):
                        raise StiefelError(
                            f"The process that trained {name} ended with code {worker.exitcode}; rerun: finished runs "
                            "are kept."
                        ) from None
                continue
            if kind == "run":
                yield what
            elif kind == "steps":
                advanced(networks(quick=how.quick)[name], what)
            else:
                workers.pop(name).join()
                if what:
                    raise StiefelError(f"Training {name} failed ({what}); rerun: finished runs are kept.")
    finally:
        for worker in workers.values():
            worker.terminate()


def _work(name: str, runs: Runs, how: How, messages: Any) -> None:
    """What a process does."""
    trouble = ""
    try:
        network = networks(quick=how.quick)[name]
        for job, curve in _train(network, runs, how, lambda _, steps: messages.put(("steps", name, steps))):
            runs[job] = tuple(curve)
            messages.put(("run", name, (job, curve)))
    except KeyboardInterrupt:
        return
    except Exception as error:  # whatever it is, the parent says so
        trouble = f"{type(error).__name__}: {error}"
    messages.put(("end", name, trouble))


def left(network: Network, runs: Runs, how: How) -> list[Job]:
    """The runs of a network that can be begun now."""
    scores = {job: curve[-1] for job, curve in runs.items()}
    thorough = not how.quick
    return [
        job for start in plan.starts(network) for job in plan.left(network, start, scores, how.seeds, thorough=thorough)
    ]


def _train(network: Network, runs: Runs, how: How, advanced: Advanced) -> Iterator[Done]:
    """Train what is left of one network."""
    begun: set[Job] = set()

    def todo() -> Job | None:
        job = next((job for job in left(network, runs, how) if job not in begun), None)
        if job is None or time.time() > how.until:
            return None
        begun.add(job)
        return job

    if left(network, runs, how):
        if how.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True
        problem = network.problem(how.device, how.data)
        yield from train(network, problem, how.device, todo, lambda steps: advanced(network, steps))
