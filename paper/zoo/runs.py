"""A run of the zoo, and which runs are left.

Each initialization is tried at every rate with a seed of its own, half as long. Fresh seeds then run at its best rate,
at the next best one too where the two are closer than the margin, and ours at the author's best one, as a drop-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stiefel_init.lab.train.modules import OfTorch
from stiefel_init.recipe.search import best_first

from ..loop import Batched
from .entry import ARMS, AUTHOR, OURS, SCHEDULES, Entry, Learner, begin_

SEEDS, TUNING = 3, 1000
"""How many seeds the results have, 0, 1, …; and the seed with which rates are chosen, in shorter runs."""


class Job(NamedTuple):
    """A run: its network, initialization, rate and seed."""

    network: str
    start: str
    rate: float
    seed: int


Scores = Mapping[Job, float]


class _Ungraphed(Batched):
    """For classes of packages, which may ask the device now and then: a step runs as it is written."""

    def _capture(self) -> None: ...


class Trainer:
    """Trains an entry, one run after another, with its community's optimizer and schedule."""

    def __init__(self, entry: Entry, device: torch.device, directory: Path | None = None, *, quick: bool) -> None:
        gpu = device.type == "cuda"
        self.entry, self.big, self.batch = entry, gpu, entry.batch[gpu]
        self.steps = 6 if quick else entry.steps[gpu]
        train, test = entry.task.data(gpu, directory)
        self.train_part, self.test_part = (tuple(each.to(device) for each in part) for part in (train, test))
        torch.manual_seed(0)
        with device:  # a run brings its own values: none are drawn here that would have to travel
            self.model = Learner(entry, gpu)
        order = torch.zeros(self.steps, self.batch, dtype=torch.long, device=device)
        group = {"params": [each for each in self.model.parameters() if each.requires_grad], "lr": 1.0}
        self.slot = (_Ungraphed if entry.package else Batched)(
            self.model, order, self._loss, [group], lambda s: OfTorch(entry.optimizer(s, lr=s[0]["lr"], gpu=gpu)),
            entry.clip,
        )  # fmt: skip

    def _loss(self, model: nn.Module, rows: Tensor) -> Tensor:
        return model(tuple(each[rows] for each in self.train_part)).float()

    def fresh(self, job: Job) -> nn.Module:
        """The network as a run begins."""
        torch.manual_seed(job.seed)
        learner, example = Learner(self.entry, self.big), tuple(each[:16].cpu() for each in self.train_part)
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
                for kept in (*self.slot.stepper.state(), self.slot.place):
                    kept.zero_()
                self.slot.places[:steps].copy_(torch.cat(rows).view(-1, self.batch)[:steps])
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


def left(entry: Entry, scores: Scores, seeds: int = SEEDS) -> list[Job]:
    """The runs that can be begun now."""
    jobs = []
    for arm in ARMS:
        jobs += [Job(entry.name, arm, rate, TUNING) for rate in further(entry, arm, scores)]
        rates = {*close(entry, arm, scores), *([best_rate(entry, AUTHOR, scores)] if arm == OURS else [])}
        jobs += [Job(entry.name, arm, rate, seed) for rate in rates if rate is not None for seed in range(seeds)]
    return [job for job in jobs if job not in scores]
