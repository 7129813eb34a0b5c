"""How good `find_start` is: its choice for networks of the zoo, beside a full search of the same settings.

    python -m paper.zoo.search [NAMES] [--minutes 30]

Each network keeps its community's optimizer, schedule, clipping and batch; its rates are widened by a factor of 3 on
both sides, to five at least. The full search trains every setting to the end with seeds that `find_start` never sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
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

SEEDS, FIRST = 3, 100
"""Of the full search, and the first of them; those of `find_start` begin at 0."""
FAR = 3
"""Margins; what is further behind is not trained again."""
SEARCH, COMMA = "find_start", ", "
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
        found = -Trainer(given.pop("make_model"), **given, device=None).train(setting, FIRST + seed, self.steps).loss
        metric = self.entry.task.metric
        return round(found, 4) if math.isfinite(found) else metric.sign * metric.chance

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
    page = None
    files = ("find-start",)
    kind = Run

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = names or CHOSEN

    def wanted(self, options: Options) -> list[Run]:
        """Of each network all settings, and the search."""
        names = self.names[:1] if options.quick else self.names
        return [run for name in names for run in (*_settings(name), Run(name, SEARCH, "", 0.0))]

    def parts(self, left: Sequence[Run], options: Options, device: torch.device) -> Iterator[list[Run]]:
        """A network after the other."""
        return (list(runs) for _, runs in groupby(left, lambda run: run.network))

    def train(
        self, runs: Sequence[Run], options: Options, device: torch.device, tell: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """The runs of a network. Settings that the first seed finds far behind the best are not repeated."""
        torch.set_num_threads(1)
        search = _Search(ENTRIES[runs[0].network], quick=options.quick)
        found: dict[Run, list[float]] = {}
        settings = [run for run in runs if run.start != SEARCH]
        for seed in range(SEEDS):
            best = max((scores[0] for scores in found.values()), default=0.0)
            far = best - FAR * search.entry.task.metric.margin
            for run in settings:
                if not seed or found[run][0] >= far:
                    found.setdefault(run, []).append(search.full(run[1:], seed))
                tell(1 / SEEDS)
        rows = {run: _cells(scores, "", search.steps) for run, scores in found.items()}
        if len(settings) < len(runs):
            trials = search.found()
            scores = [search.full(trials.best, seed) for seed in range(SEEDS)]
            cost = sum(each.steps for each in trials.trials)
            rows[runs[-1]] = _cells(scores, "; ".join(map(str, trials.best)), cost)
            tell(1)
        return [rows[run] for run in runs]

    def present(self, evidence: Any, options: Options) -> None:
        """Print what is complete."""
        super().present(_outcomes(evidence), options)

    def evidence(self, results: Results) -> list[Outcome] | None:
        """The networks on record."""
        return _outcomes(super().evidence(results) or {}) or None

    def tables(self, evidence: list[Outcome]) -> list[Table]:
        """One for each half."""
        columns = ["network", "measured", "the author's best", "best of the full search", "`find_start`", "its steps"]
        return [Table(title, columns, [each.row for each in group]) for title, group in halves(evidence).items()]

    def section(self, evidence: list[Outcome]) -> list[str]:
        """The tables of docs/zoo.md."""
        return titled(self.tables(evidence))[:-1]


class Outcome(NamedTuple):
    """The full search of a network, and what `find_start` chose."""

    entry: Entry
    scores: Mapping[Setting, list[float]]
    choice: Setting
    steps: int
    """Of `find_start`."""
    length: int
    """Steps of a training."""

    def best(self, *, own: bool = False) -> Setting:
        """The best setting of all, or of the author's own initialization."""
        known = [setting for setting in self.scores if not own or setting[0] == AUTHOR]
        return max(known, key=lambda setting: mean(self.scores[setting]))

    def behind(self, one: Setting, other: Setting) -> bool:
        """Whether one is worse than another by more than the margin: that of the zoo."""
        scores = [self.scores[setting] for setting in (one, other)]
        error = 2 * math.sqrt(sum(variance(each) / len(each) for each in scores if len(each) > 1))
        return mean(scores[1]) - mean(scores[0]) > max(error, self.entry.task.metric.margin)

    @property
    def within(self) -> bool:
        """Whether the choice is within the margin of the best."""
        return not self.behind(self.choice, self.best())

    @property
    def row(self) -> list[str]:
        """Of the table."""
        metric = self.entry.task.metric
        told = [
            f"{metric.sign * mean(self.scores[each]):.{metric.digits}f} ({_named(each)})"
            for each in (self.best(own=True), self.best(), self.choice)
        ]
        told[2] = told[2] if self.within else f"{told[2]}, worse"
        return [self.entry.name, measured(metric), *told, f"{self.share:.0%}"]

    @property
    def share(self) -> float:
        """The steps of `find_start`, over those of a full search with all seeds."""
        return self.steps / (len(self.scores) * SEEDS * self.length)


def _cells(scores: Sequence[float], choice: str, steps: int) -> dict[str, Any]:
    return {"scores": " ".join(f"{score:.4f}" for score in scores), "choice": choice, "steps": steps}


def _outcomes(rows: Mapping[Run, Mapping[str, Any]]) -> list[Outcome]:
    """The networks with all settings and a choice."""
    found = []
    for name in CHOSEN:
        settings, search = _settings(name), rows.get(Run(name, SEARCH, "", 0.0))
        if search is None or not all(run in rows for run in settings):
            continue
        start, way, lr = str(search["choice"]).split("; ")
        choice, length = (start, way, float(lr)), int(rows[settings[0]]["steps"])
        known = {run[1:]: rows[run] for run in settings} | {choice: search}  # with all seeds
        scores = {each: [float(score) for score in str(row["scores"]).split()] for each, row in known.items()}
        found.append(Outcome(ENTRIES[name], scores, choice, int(search["steps"]), length))
    return found


def _summary(group: Sequence[Outcome]) -> str:
    missed = [each.entry.name for each in group if not each.within]
    better = sum(each.behind(each.best(own=True), each.choice) for each in group)
    worse = [each.entry.name for each in group if each.behind(each.choice, each.best(own=True))]
    run = sum(len(scores) for each in group for scores in each.scores.values())
    share = mean(each.share for each in group)
    of_run = sum(each.steps / each.length for each in group) / run
    return (
        f"{len(group)} networks. The choice is within the margin of the best in {len(group) - len(missed)}"
        f"{f' (not: {COMMA.join(missed)})' if missed else ''}; better than the author's own initialization at its best "
        f"rate in {better}, worse in {COMMA.join(worse) or 'none'}. It takes {share:.1%} of the steps of a search with "
        f"{SEEDS} seeds everywhere, and {of_run:.0%} of one that repeats only what is near the best."
    )


def _named(setting: Setting) -> str:
    start, way, lr = setting
    return f"{'the author’s' if start == AUTHOR else start}{', groups' if way == GROUPS else ''}, {lr:g}"


def part(*, whole: bool = False) -> list[str]:
    """The part of docs/learning-rate.md, a sentence for each half; as a whole, the tables of docs/zoo.md."""
    study = FullSearch()
    evidence = study.evidence(Results()) or []
    return study.section(evidence) if whole else summaries(evidence)


def summaries(evidence: Sequence[Outcome]) -> list[str]:
    """A sentence for each half."""
    return [f"- **{title}**: {_summary(group)}" for title, group in halves(evidence).items()]


def _settings(name: str) -> list[Run]:
    return [
        Run(name, start, way, lr)
        for start in STARTS for way in (WAYS if start == "best" else WAYS[:1])
        for lr in _lrs(ENTRIES[name])
    ]  # fmt: skip


if __name__ == "__main__":
    command(FullSearch, "paper.zoo.search", __doc__, {"names": {"nargs": "*"}})
