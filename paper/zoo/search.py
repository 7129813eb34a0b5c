"""How good `find_start` is: its choice for networks of the zoo, beside a full search of the same settings.

    python -m paper.zoo.search [NAMES] [--minutes 30]

Each network keeps its community's optimizer, schedule, clipping and batch; its rates are widened by a factor of 3 on
both sides, to five at least. The full search trains every setting to the end with seeds that `find_start` never sees.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stiefel_init.torch.trial import AUTHOR, GROUPS, ONE, STARTS, Setting, Trainer, Trials, find_start

from ..experiment import Options
from ..loop import OfRuns, command
from .catalogue import ENTRIES
from .entry import HE, ORTHOGONAL, OURS, SCHEDULES, Entry, Learner, begin_, half

SEEDS, FIRST = 3, 100
"""Of the full search, and the first of them; those of `find_start` begin at 0."""
FAR = 3
"""Margins; what is further behind is not trained again."""
SEARCH = "find_start"
CHOSEN = (
    "table MLP", "table regression", "graph convolutions", "Fourier features", "mixture density", "sine network",
    "graph isomorphism network", "value network", "feature grids", "deep set", "table ResNet", "ReLU RNN",
    "masked autoregressive flow", "variational autoencoder", "Q-network", "operator network", "radiance field",
    "wide and deep", "flow matching", "dueling Q-network", "distance field", "coupling flow", "LSTM recall",
    "recommendation by factors", "N-BEATS", "deep autoencoder", "PointNet", "LSTM with attention",
    "neural differential equation", "diffusion of points", "PatchTSTForPrediction", "actor and critic",
    "densely connected", "MLP-Mixer", "temporal convolutions", "depth-wise CNN",
)
"""The networks, the quickest first."""
WAYS = (ONE, GROUPS)
NAMES = {"he": HE, "orthogonal": ORTHOGONAL, "best": OURS}


class _Network(Learner):
    """A network of the zoo with its loss; what is measured on the test part, in eval mode, is turned to be one too."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry, big=False)
        self.metric, slow = entry.task.metric, self._modules.pop("slow", None)
        self.__dict__["slow"] = slow  # no part of what is initialized or has a rate
        self.follow(1.0)

    def forward(self, batch: Any) -> Tensor:
        if self.training:
            return super().forward(batch)
        score = self.score(batch).float().detach()
        learnt = self.metric.sign * (float(score) - self.metric.chance) > 0  # not so if it is no number
        return -self.metric.sign * (score if learnt else torch.tensor(self.metric.chance))


class _Batches:
    """Batches in a random order, which the seed decides, without end."""

    def __init__(self, part: Sequence[Tensor], size: int) -> None:
        self.part, self.size = part, size

    def __iter__(self) -> Iterator[Any]:
        whole = len(self.part[0])
        for rows in torch.randperm(whole)[: whole // self.size * self.size].view(-1, self.size):
            yield {"batch": tuple(each[rows] for each in self.part)}


class _Search:
    """The arguments of `find_start` for a network."""

    def __init__(self, entry: Entry) -> None:
        torch.manual_seed(0)
        train, test = entry.task.data(False, None)
        self.entry, example = entry, entry.task.inputs(tuple(each[:16] for each in train))

        def start(arm: str) -> Callable[[nn.Module], None]:
            def begin(model: Any) -> None:
                begin_(model.net, arm, entry.gain, example)
                model.follow(1.0)

            return begin

        self.given: dict[str, Any] = {
            "make_model": lambda: _Network(entry), "batches": _Batches(train, entry.batch[0]),
            "loss": lambda outputs, targets: outputs, "validation": [{"batch": test}],
            "optimizer": lambda parameters, lr: entry.optimizer(parameters, lr=lr, gpu=False),
            "schedule": lambda part: float(SCHEDULES[entry.schedule](torch.tensor(part, dtype=torch.float64))),
            "clip": entry.clip, "starts": {name: start(arm) for name, arm in NAMES.items()},
        }  # fmt: skip

    def full(self, setting: Setting, seed: int) -> float:
        """What a setting reaches with a seed of the full search, more is better."""
        given = dict(self.given)
        found = -Trainer(given.pop("make_model"), **given, device=None).train(setting, FIRST + seed, self.steps).loss
        metric = self.entry.task.metric
        return round(found, 4) if math.isfinite(found) else metric.sign * metric.chance

    @property
    def steps(self) -> int:
        """Of a full training."""
        return self.entry.steps[0]

    def found(self) -> Trials:
        """What `find_start` finds."""
        return find_start(**self.given, lrs=_lrs(self.entry), steps=self.steps)


def _lrs(entry: Entry) -> list[float]:
    ends = [float(f"{end:.2g}") for end in (min(entry.rates) / 3, 3 * max(entry.rates))]
    return sorted({*entry.rates, *ends[len(entry.rates) > 3 :]})


class Run(NamedTuple):
    """A setting of the full search, or `find_start` itself."""

    network: str
    start: str
    rates: str
    lr: float


class FullSearch(OfRuns):
    """Every setting of a network trained to the end, and `find_start`."""

    name = "find-start"
    title = "What find_start finds"
    files = ("find-start",)
    kind = Run

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = names or CHOSEN

    def wanted(self, options: Options) -> list[Run]:
        """Of each network all settings, and the search."""
        return [run for name in self.names for run in (*_settings(name), Run(name, SEARCH, "", 0.0))]

    def parts(self, left: Sequence[Run], options: Options, device: torch.device) -> Iterator[list[Run]]:
        """A network after the other."""
        return (list(runs) for _, runs in groupby(left, lambda run: run.network))

    def train(
        self, runs: Sequence[Run], options: Options, device: torch.device, tell: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """The runs of a network. Settings that the first seed finds far behind the best are not repeated."""
        torch.set_num_threads(1)
        search, found = _Search(ENTRIES[runs[0].network]), {}
        settings = [run for run in runs if run.start != SEARCH]
        for seed in range(SEEDS):
            best = max((scores[0] for scores in found.values()), default=0.0)
            far = best - FAR * search.entry.task.metric.margin
            for run in settings:
                if not seed or found[run][0] >= far:
                    found.setdefault(run, []).append(search.full(run[1:], seed))
                tell(1 / SEEDS)
        rows = {run: {"scores": " ".join(f"{score:.4f}" for score in scores), "choice": "", "steps": search.steps}
                for run, scores in found.items()}  # fmt: skip
        if len(settings) < len(runs):
            trials = search.found()
            cost, choice = sum(each.steps for each in trials.trials), "; ".join(map(str, trials.best))
            rows[runs[-1]] = {"scores": "", "choice": choice, "steps": cost}
            tell(1)
        return [rows[run] for run in runs]


def _settings(name: str) -> list[Run]:
    return [
        Run(name, start, way, lr)
        for start in STARTS for way in (WAYS if start == "best" else WAYS[:1])
        for lr in _lrs(ENTRIES[name])
    ]  # fmt: skip


if __name__ == "__main__":
    command(FullSearch, "paper.zoo.search", __doc__, {"names": {"nargs": "*"}})
