"""Training what is left of the zoo, with the loop that it shares.

Each initialization is tried at every rate with a seed of its own, half as long. Fresh seeds then run at its best rate,
at the next best one too where the two are closer than the margin, and ours at the author's best one, as a drop-in.
"""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor, multiprocessing, nn

from stiefel_init.lab.train.modules import OfTorch, Slot
from stiefel_init.recipe.search import best_first

from ..loop import TUNING, Job
from .catalogue import ENTRIES
from .entry import ARMS, AUTHOR, OURS, SCHEDULES, Entry, Learner, begin_

SEEDS, WORKERS = 3, 12
Scores = Mapping[Job, float]


class Scale(NamedTuple):
    """How large networks are, how long they are trained, and where."""

    big: bool
    quick: bool = False
    device: str = "cpu"
    data: Path | None = None
    graphs: bool = True
    """Whether a step is one CUDA graph."""

    def steps(self, entry: Entry) -> int:
        """Of a run."""
        return 6 if self.quick else entry.steps[self.big]


class _Ungraphed(Slot):
    """For classes that ask the device now and then: a step runs as it is written."""

    def _capture(self) -> None: ...


class _Run:
    """Trains an entry at a scale, one run after another, with its community's optimizer and schedule."""

    def __init__(self, entry: Entry, scale: Scale) -> None:
        self.entry, self.scale, device = entry, scale, torch.device(scale.device)
        self.steps, self.batch = scale.steps(entry), entry.batch[scale.big]
        train, test = entry.task.data(scale.big, scale.data)
        self.train_part, self.test_part = (tuple(each.to(device) for each in part) for part in (train, test))
        with device:  # a run brings its own values: none are drawn here that would have to travel
            self.model = Learner(entry, scale.big)
        self.order = torch.zeros(self.steps, self.batch, dtype=torch.long, device=device)
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        group = {"params": [each for each in self.model.parameters() if each.requires_grad], "lr": 1.0}
        gpu = device.type == "cuda"
        self.slot = (Slot if scale.graphs else _Ungraphed)(
            self.model, self._loss, [group], lambda s: OfTorch(entry.optimizer(s, lr=s[0]["lr"], gpu=gpu)),
            clip=entry.clip, counters=[self.counter],
        )  # fmt: skip

    def _loss(self, model: nn.Module) -> Tensor:
        rows = self.order.index_select(0, self.counter)[0]
        self.counter += 1
        return model(tuple(each[rows] for each in self.train_part)).float()

    def fresh(self, job: Job) -> nn.Module:
        """The network as a run begins."""
        torch.manual_seed(job.seed)
        learner, example = Learner(self.entry, self.scale.big), tuple(each[:16].cpu() for each in self.train_part)
        begin_(learner.net, job.start, self.entry.gain, self.entry.task.inputs(example))
        learner.follow(1.0)
        return learner

    def train(self, job: Job) -> list[float]:
        """The scores half-way and at the end; one that diverged, or is worse than chance, has that of chance."""
        generator, steps = torch.Generator().manual_seed(job.seed), self.steps
        steps = max(2, steps // 2) if job.seed == TUNING else steps
        fresh, size = self.fresh(job).state_dict(), len(self.train_part[0])
        rows = [
            torch.randperm(size, generator=generator)[: size // self.batch * self.batch]
            for _ in range(-(-steps // max(1, size // self.batch)))
        ]
        time = torch.arange(steps, dtype=torch.float64) / steps
        rates, scores = (job.rate * SCHEDULES[self.entry.schedule](time)).tolist(), []
        with self.slot.on_stream():
            with torch.no_grad():
                state = self.model.state_dict()
                torch._foreach_copy_(list(state.values()), [fresh[name] for name in state])
                for kept in (*self.slot.stepper.state(), self.counter):
                    kept.zero_()
                self.order[:steps].copy_(torch.cat(rows).view(-1, self.batch)[:steps])
            for part in (rates[: steps // 2], rates[steps // 2 :]):
                for rate in part:
                    self.slot.step(rate)
                self.model.eval()
                with torch.no_grad():
                    scores.append(float(self.model.score(self.test_part).float()))
                self.model.train()
        metric = self.entry.task.metric
        found = [score if metric.sign * (score - metric.chance) > 0 else metric.chance for score in scores]
        return [round(score, 4) for score in found]  # as they are written, so that a rerun decides as this run does


@lru_cache(maxsize=1)
def _run(name: str, scale: Scale) -> _Run:
    torch.manual_seed(0)
    return _Run(ENTRIES[name], scale)


def train(job: Job, scale: Scale) -> list[float]:
    """The scores of a run on its way."""
    return _run(job.network, scale).train(job)


def further(entry: Entry, arm: str, scores: Scores) -> list[float]:
    """The rates to try: the entry's first, then beyond the best while it lies at an end, at most two more."""
    tried = _tried(entry, arm, scores)
    if fresh := [rate for rate in entry.rates if rate not in tried]:
        return fresh
    best, order = best_first(tried)[0], sorted(tried)
    if len(tried) >= len(entry.rates) + 2 or best not in (order[0], order[-1]):
        return []
    return [float(f"{best / 3 if best == order[0] else 3 * best:.2g}")]


def close(entry: Entry, arm: str, scores: Scores) -> list[float]:
    """The best rate of the first runs, and the next best where it is closer than the margin; none until all ended."""
    if further(entry, arm, scores):
        return []
    tried = _tried(entry, arm, scores)
    first, second = best_first(tried)[:2]
    return [first, second] if tried[first] - tried[second] < entry.task.metric.margin else [first]


def best_rate(entry: Entry, arm: str, scores: Scores) -> float | None:
    """The rate that was best: of two close ones, by the fresh seeds, where both have some."""
    rates = close(entry, arm, scores)
    means = {rate: mean(seen) for rate in rates if len(seen := fresh(entry, arm, rate, scores)) > 1}
    return None if not rates else best_first(means)[0] if len(means) == len(rates) else rates[0]


def fresh(entry: Entry, arm: str, rate: float | None, scores: Scores) -> list[float]:
    """What fresh seeds reached at a rate; more is better."""
    sign = entry.task.metric.sign
    return [sign * score for job, score in scores.items() if job[:3] == (entry.name, arm, rate) and job.seed < TUNING]


def _tried(entry: Entry, arm: str, scores: Scores) -> dict[float, float]:
    sign = entry.task.metric.sign
    return {
        job.rate: sign * score for job, score in scores.items() if job[:2] == (entry.name, arm) and job.seed == TUNING
    }


def left(entry: Entry, scores: Scores, *, seeds: int = SEEDS, arms: Sequence[str] = ARMS) -> list[Job]:
    """The runs that can be begun now."""
    jobs = []
    for arm in arms:
        jobs += [Job(entry.name, arm, rate, TUNING) for rate in further(entry, arm, scores)]
        rates = {*close(entry, arm, scores), *([best_rate(entry, AUTHOR, scores)] if arm == OURS else [])}
        jobs += [Job(entry.name, arm, rate, seed) for rate in rates if rate is not None for seed in range(seeds)]
    return [job for job in jobs if job not in scores]


def train_all(
    chosen: Iterable[Entry], scores: dict[Job, float], scale: Scale, *, seeds: int = SEEDS, arms: Sequence[str] = ARMS,
    until: float = float("inf"), workers: int | None = None,
) -> Iterator[tuple[Job, list[float]]]:  # fmt: skip
    """Train what is left; yields runs as they end and notes their scores. On a GPU many networks at once."""
    todo = sorted(chosen, key=lambda entry: not entry.package)  # the longest first
    count = (0 if scale.device == "cpu" else WORKERS) if workers is None else workers
    if not count:
        for entry in todo:
            yield from _train_left(entry, scores, scale, seeds, arms, until)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    results = context.Queue()
    waiting = [(entry.name, scale) for entry in todo if left(entry, scores, seeds=seeds, arms=arms)]
    working: list[Any] = []
    while waiting or working:
        working = [process for process in working if process.is_alive()]
        while waiting and len(working) < count and time.time() < until:
            name, own = waiting.pop(0)
            known = {job: score for job, score in scores.items() if job.network == name}
            process = context.Process(target=_work, args=(name, known, results, own, seeds, arms, until), daemon=True)
            process.start()
            working.append(process)
        waiting = waiting if time.time() < until else []
        with suppress(queue.Empty):
            while True:
                job, found = results.get(timeout=0.2)
                if isinstance(found, Scale):
                    waiting.append((job, found))
                elif isinstance(found, str):
                    print(f"{job}: {found}", file=sys.stderr)
                else:
                    scores[job] = found[-1]
                    yield job, found


def _train_left(
    entry: Entry, scores: dict[Job, float], scale: Scale, seeds: int, arms: Sequence[str], until: float
) -> Iterator[tuple[Job, list[float]]]:
    """All runs of a network that are left."""
    while (jobs := left(entry, scores, seeds=seeds, arms=arms)) and time.time() < until:
        curve = train(jobs[0], scale)
        scores[jobs[0]] = curve[-1]
        yield jobs[0], curve


def _work(
    name: str, scores: dict[Job, float], results: Any, scale: Scale, seeds: int, arms: Sequence[str], until: float
) -> None:
    """A process of its own: trains what is left of a network; an error costs that network alone.

    A class that asks the device now and then cannot be a graph; it goes back, for a process that has not tried.
    """
    torch.set_num_threads(1)
    begun = False
    try:
        for found in _train_left(ENTRIES[name], scores, scale, seeds, arms, until):
            results.put(found)
            begun = True
    except Exception as error:
        if scale.graphs and scale.device != "cpu" and not begun:
            results.put((name, scale._replace(graphs=False)))
        else:
            results.put((name, f"left out: {type(error).__name__}, {str(error).partition(chr(10))[0]}"))
