"""How good `find_start` is: its choice for networks of the zoo, beside a full search of the same settings.

    python -m paper.zoo.search [NAMES] [--minutes 30]

Each network keeps its community's optimizer, schedule, clipping and batch; its rates are widened by a factor of 3 on
both sides, to five at least. The full search trains every setting to the end with seeds that `find_start` never sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import mean, variance
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stiefel_init.lab.report.tables import Table
from stiefel_init.torch.trial import AUTHOR, GROUPS, ONE, STARTS, Setting, Trainer, Trials, find_start

from ..experiment import Options, titled
from ..loop import OfRuns, command
from ..results import Results
from .catalogue import ENTRIES
from .entry import HE, ORTHOGONAL, OURS, SCHEDULES, Entry, Learner, begin_
from .study import halves, measured

SEEDS, FIRST, FRESH = 3, 100, 10
"""Of the full search, the first of them, and the first of those that judge what was chosen; `find_start` has 0 to 3."""
FAR = 3
"""Margins; what is further behind is not trained again."""
CHOICES = FULL, SEARCH = "full search", "find_start"
CHOSEN = (
    "table MLP", "table regression", "graph convolutions", "Fourier features", "mixture density", "sine network",
    "graph isomorphism network", "value network", "feature grids", "deep set", "table ResNet", "ReLU RNN",
    "masked autoregressive flow", "variational autoencoder", "Q-network", "operator network", "radiance field",
    "wide and deep", "flow matching", "dueling Q-network", "distance field", "coupling flow", "LSTM recall",
    "recommendation by factors", "N-BEATS", "deep autoencoder", "PointNet", "LSTM with attention",
    "neural differential equation", "diffusion of points", "PatchTSTForPrediction", "actor and critic",
    "densely connected", "MLP-Mixer", "temporal convolutions", "depth-wise CNN",
)  # fmt: skip
"""The networks, the quickest first."""
NAMES = {"he": HE, "orthogonal": ORTHOGONAL, "best": OURS}


class Run(NamedTuple):
    """A setting of the full search; or a choice, which has no rates."""

    network: str
    start: str
    rates: str
    lr: float


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

    def __init__(self, entry: Entry, *, quick: bool) -> None:
        torch.manual_seed(0)
        train, test = entry.task.data(False, None)
        self.steps = 16 if quick else entry.steps[0]
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
        found = -Trainer(given.pop("make_model"), **given, device=None).train(setting, seed, self.steps).loss
        metric = self.entry.task.metric
        return round(found, 4) if math.isfinite(found) else metric.sign * metric.chance

    def found(self) -> Trials:
        """What `find_start` finds."""
        return find_start(**self.given, lrs=_lrs(self.entry), steps=self.steps)


def _lrs(entry: Entry) -> list[float]:
    ends = [float(f"{end:.2g}") for end in (min(entry.rates) / 3, 3 * max(entry.rates))]
    return sorted({*entry.rates, *ends[len(entry.rates) > 3 :]})


def _settings(name: str) -> list[Run]:
    return [
        Run(name, start, way, lr)
        for start in STARTS for way in ((ONE, GROUPS) if start == "best" else (ONE,)) for lr in _lrs(ENTRIES[name])
    ]  # fmt: skip


def _choices(name: str) -> list[Run]:
    return [Run(name, who, "", 0.0) for who in CHOICES]


class FullSearch(OfRuns):
    """Every setting of a network trained to the end, and `find_start`."""

    name = "find-start"
    title = "What find_start finds"
    page = None
    files = ("find-start",)
    kind = Run

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = names or CHOSEN

    def wanted(self, options: Options, done: Any) -> list[Run]:
        names = self.names[:1] if options.quick else self.names
        return [run for name in names for run in (*_settings(name), *_choices(name))]

    def together(self, left: list[Run], options: Options, device: torch.device) -> list[Run]:
        """All of one network."""
        return list(takewhile(lambda run: run.network == left[0].network, left))

    def train(
        self, runs: Sequence[Run], options: Options, device: torch.device, tell: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """Settings that the first seed finds far behind the best are not repeated."""
        torch.set_num_threads(1)
        search = _Search(ENTRIES[runs[0].network], quick=options.quick)
        found: dict[Run, list[float]] = {}
        settings = [run for run in runs if run.rates]
        for seed in range(SEEDS):
            top = max((scores[0] for scores in found.values()), default=0.0)
            far = top - FAR * search.entry.task.metric.margin
            for run in settings:
                if not seed or found[run][0] >= far:
                    found.setdefault(run, []).append(search.full(run[1:], FIRST + seed))
                tell(1 / SEEDS)
        rows = {run: _cells(scores, "", search.steps) for run, scores in found.items()}
        best, trials = max(found, key=lambda each: mean(found[each])), search.found()
        spent = len(settings) * SEEDS * search.steps, sum(each.steps for each in trials.trials)
        for choice, setting, steps in zip(_choices(best.network), (best[1:], trials.best), spent):
            fresh = [search.full(setting, FRESH + seed) for seed in range(SEEDS)]
            rows[choice] = _cells(fresh, "; ".join(map(str, setting)), steps)
        return [rows[run] for run in runs]

    def present(self, evidence: Any, options: Options) -> None:
        super().present(_outcomes(evidence), options)

    def evidence(self, results: Results) -> list[Outcome] | None:
        return _outcomes(super().evidence(results) or {}) or None

    def tables(self, evidence: list[Outcome]) -> list[Table]:
        columns = ["network", "measured", "full search", "`find_start`", "beyond the margin", "its steps"]
        return [Table(title, columns, [each.row for each in group]) for title, group in halves(evidence).items()]

    def section(self, evidence: list[Outcome]) -> list[str]:
        return titled(self.tables(evidence))[:-1]


class Outcome(NamedTuple):
    """The full search of a network, and what `find_start` chose."""

    entry: Entry
    scores: Mapping[Setting, list[float]]
    """Of the full search."""
    fresh: Mapping[Setting, list[float]]
    """Of both choices, with seeds that made neither."""
    choice: Setting
    best: Setting
    """What the full search chose."""
    steps: int
    """Of `find_start`."""
    length: int
    """Steps of a training."""

    def within(self, scores: Mapping[Setting, list[float]]) -> bool:
        """Whether the choice is not worse than that of the full search by more than the margin: that of the zoo."""
        one, other = scores[self.choice], scores[self.best]
        error = 2 * math.sqrt(sum(variance(each) / len(each) for each in (one, other) if len(each) > 1))
        return mean(other) - mean(one) <= max(error, self.entry.task.metric.margin)

    @property
    def share(self) -> float:
        """The steps of `find_start`, over those of a full search with all seeds."""
        return self.steps / (len(self.scores) * SEEDS * self.length)

    @property
    def row(self) -> list[str]:
        """Of the table."""
        metric = self.entry.task.metric
        told = (f"{metric.sign * mean(self.fresh[each]):.{metric.digits}f} ({_named(each)})"
                for each in (self.best, self.choice))  # fmt: skip
        beyond = "" if self.within(self.fresh) else "worse"
        return [self.entry.name, measured(metric), *told, beyond, f"{self.share:.0%}"]


def _named(setting: Setting) -> str:
    start, way, lr = setting
    return f"{'the author’s' if start == AUTHOR else start}{', groups' if way == GROUPS else ''}, {lr:g}"


def _cells(scores: Sequence[float], choice: str, steps: int) -> dict[str, Any]:
    return {"scores": " ".join(f"{score:.4f}" for score in scores), "choice": choice, "steps": steps}


def _outcomes(rows: Mapping[Run, Mapping[str, Any]]) -> list[Outcome]:
    """The networks with all settings and a choice."""

    def scores(run: Run) -> list[float]:
        return [float(score) for score in str(rows[run]["scores"]).split()]

    found = []
    for name in CHOSEN:
        settings, choices = _settings(name), _choices(name)
        if all(run in rows for run in (*settings, *choices)):
            told = (str(rows[run]["choice"]).split("; ") for run in choices)
            chosen: list[Setting] = [(start, way, float(lr)) for start, way, lr in told]
            searched, fresh = {run[1:]: scores(run) for run in settings}, dict(zip(chosen, map(scores, choices)))
            length, steps = (int(rows[run]["steps"]) for run in (settings[0], choices[1]))
            found.append(Outcome(ENTRIES[name], searched, fresh, chosen[1], chosen[0], steps, length))
    return found


def part(*, whole: bool = False) -> list[str]:
    """The part of docs/learning-rate.md, a sentence for each half; as a whole, the tables of docs/zoo.md."""
    study = FullSearch()
    evidence = study.evidence(Results()) or []
    return study.section(evidence) if whole else summaries(evidence)


def summaries(evidence: Sequence[Outcome]) -> list[str]:
    """A sentence for each half."""
    return [f"- **{title}**: {_summary(group)}" for title, group in halves(evidence).items()]


def _summary(group: Sequence[Outcome]) -> str:
    missed = ", ".join(each.entry.name for each in group if not each.within(each.fresh))
    within = sum(each.within(each.fresh) for each in group)
    run = sum(len(scores) for each in group for scores in each.scores.values())
    of_run = sum(each.steps / each.length for each in group) / run
    return (
        f"{len(group)} networks. With fresh seeds the choice is within the margin of that of the full search in "
        f"{within}{f' (not in: {missed})' if missed else ''}; by the seeds that chose the latter, which flatter it, in "
        f"{sum(each.within(each.scores) for each in group)}. It takes {mean(each.share for each in group):.1%} of the "
        f"steps of a search with {SEEDS} seeds everywhere, and {of_run:.0%} of one that repeats only what is near the "
        "best."
    )


if __name__ == "__main__":
    command(FullSearch, "paper.zoo.search", __doc__, {"names": {"nargs": "*"}})
