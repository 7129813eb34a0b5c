"""The zoo as an experiment: what the runs say of each network, and the page."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from stiefel_init.core.errors import unknown
from stiefel_init.lab.report.tables import Table, wrapped

from ..experiment import Options, titled
from ..loop import OfRuns
from ..results import Results
from .catalogue import ENTRIES, entries
from .entry import ARMS, AUTHOR, OURS, Entry, Half, Metric, half
from .runs import SEEDS, Job, Scores, Trainer, best_rate, fresh, left

WORKERS = 12
"""Networks that are trained at once on a GPU."""
DROP_IN = "ours at the author's rate"


class Outcome(NamedTuple):
    """What came of one initialization of a network."""

    rate: float
    scores: list[float]
    """Of the fresh seeds, more is better."""

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)


class Found(NamedTuple):
    """The outcomes of a network, by the initialization."""

    entry: Entry
    outcomes: Mapping[str, Outcome]

    def word(self, one: str, other: str) -> str:
        """Better or worse by more than twice the standard error of the difference, and than what matters; or level."""
        scores = [self.outcomes[arm].scores for arm in (one, other)]
        error = 2 * math.sqrt(sum(statistics.variance(each) / len(each) for each in scores))
        gain, margin = self.outcomes[one].mean - self.outcomes[other].mean, max(error, self.entry.task.metric.margin)
        return "better" if gain > margin else "worse" if gain < -margin else "level"

    @property
    def learnt(self) -> bool:
        """Whether any initialization trains it, at this scale, to more than three margins above chance."""
        metric = self.entry.task.metric
        return max(each.mean for each in self.outcomes.values()) > metric.sign * metric.chance + 3 * metric.margin

    @property
    def words(self) -> tuple[str, str]:
        """Ours against the author's: each at its best rate, and as a drop-in."""
        return self.word(OURS, AUTHOR), self.word(DROP_IN, AUTHOR)


def found(scores: Scores) -> list[Found]:
    """What is known of every network that was trained from its author's initialization and from ours."""
    complete = []
    for entry in ENTRIES.values():
        rates = {arm: best_rate(entry, arm, scores) for arm in ARMS}
        seen = {arm: fresh(entry, arm, rate, scores) for arm, rate in rates.items()}
        seen[DROP_IN] = fresh(entry, OURS, rates[AUTHOR], scores)
        rates[DROP_IN] = rates[AUTHOR]
        outcomes = {arm: Outcome(rates[arm] or 0.0, each) for arm, each in seen.items() if len(each) > 1}
        if outcomes.keys() >= {AUTHOR, OURS, DROP_IN}:
            complete.append(Found(entry, outcomes))
    return complete


class Zoo(OfRuns):
    """Networks as their communities write them."""

    name = "zoo"
    title = "Models other people wrote"
    page = "zoo"
    listed = True
    files = ("zoo", "zoo-cpu")
    kind = Job
    engine = "slots"

    def __init__(self, names: Collection[str] = (), part: Half | None = None) -> None:
        for name in set(names) - ENTRIES.keys():
            raise unknown("network", name, ENTRIES)
        chosen = [entry for name, entry in entries(part).items() if not names or name in names]
        self.chosen = sorted(chosen, key=lambda entry: not entry.package)  # the longest first

    def table_of(self, options: Options, device: torch.device) -> str:
        return self.label(options.quick) if options.quick or device.type == "cuda" else "zoo-cpu"

    def wanted(self, options: Options, done: Mapping[Job, Mapping[str, Any]]) -> list[Job]:
        seeds, of = options.seeds or (2 if options.quick else SEEDS), dict[str, dict[Job, float]]()
        for job, score in _scores(done).items():
            of.setdefault(job.network, {})[job] = score
        return [job for entry in self.chosen for job in left(entry, of.get(entry.name, {}), seeds)]

    def train(
        self, runs: Sequence[Job], options: Options, device: torch.device, tell: Callable[..., None]
    ) -> list[dict[str, Any]]:
        given = [
            (name, [job for job in runs if job.network == name], device, options.data, options.quick)
            for name in dict.fromkeys(job.network for job in runs)
        ]
        curves: dict[Job, list[float]] = {}
        with ExitStack() as stack:
            here: Any = map(_train, given)
            if len(given) > 1:
                pool = get_context("spawn").Pool(min(WORKERS, len(given)), torch.set_num_threads, (1,))
                here = stack.enter_context(pool).imap_unordered(_train, given)
            for done in here:
                curves |= done
                tell(len(done), next(iter(done)).network)
        return [{"score": f"{curves[job][-1]:.4f}", "curve": " ".join(f"{each:.4f}" for each in curves[job])}
                for job in runs]  # fmt: skip

    def together(self, left: list[Job], options: Options, device: torch.device) -> list[Job]:
        """On a GPU what is left of several networks, each in a process of its own."""
        names = list(dict.fromkeys(job.network for job in left))[:WORKERS]
        return left[:1] if device.type == "cpu" else [job for job in left if job.network in names]

    def run(self, options: Options) -> None:
        for entry in ENTRIES.values():
            if entry.absent:
                print(entry.absent, file=sys.stderr)
        super().run(options)

    def present(self, evidence: Mapping[Job, Mapping[str, Any]], options: Options) -> None:
        super().present([each for each in found(_scores(evidence)) if each.entry in self.chosen], options)

    def evidence(self, results: Results) -> list[Found] | None:
        """What the published runs say: those of a GPU, else those of a CPU."""
        for label in self.files:
            if rows := results.table(label):
                return found(_scores(self.read(rows))) or None
        return None

    def tables(self, evidence: list[Found]) -> list[Table]:
        return [_table(title, group, evidence) for title, group in halves(evidence).items()]

    def section(self, evidence: list[Found]) -> list[str]:
        of_halves = halves(evidence)
        lines = [f"- **{title}**: {summary(group)}" for title, group in of_halves.items()]
        for title, group in of_halves.items():
            apart = [each for each in group if each.learnt and set(each.words) != {"level"}]
            names = ", ".join(each.entry.name for each in group if each.learnt and set(each.words) == {"level"})
            lines += ["", *titled([_table(f"{title}: what is not level", apart, evidence)])] if apart else [""]
            lines += wrapped(f"Level: {names}.") if names else []
        return lines


@lru_cache(maxsize=1)
def _trainer(name: str, device: torch.device, directory: Path | None, quick: bool) -> Trainer:
    return Trainer(ENTRIES[name], device, directory, quick=quick)


def _train(given: tuple[str, Sequence[Job], torch.device, Path | None, bool]) -> dict[Job, list[float]]:
    """The curves of runs of one network."""
    name, jobs, *how = given
    trainer = _trainer(name, *how)
    return {job: trainer.train(job) for job in jobs}


def _scores(rows: Mapping[Job, Mapping[str, Any]]) -> dict[Job, float]:
    return {job: float(row["score"]) for job, row in rows.items()}


def _table(title: str, group: Sequence[Found], evidence: Sequence[Found]) -> Table:
    """A row for each network, with the initializations that any was trained from."""
    arms = [arm for arm in (*ARMS, DROP_IN) if any(arm in each.outcomes for each in evidence)]
    columns = ["network", "measured", *arms, "to the author's", "as a drop-in"]
    return Table(title, columns, [_row(each, arms) for each in group])


def _row(each: Found, arms: Sequence[str]) -> list[str]:
    metric = each.entry.task.metric
    told = {arm: f"{metric.sign * outcome.mean:.{metric.digits}f} ({outcome.rate:g})"
            for arm, outcome in each.outcomes.items()}  # fmt: skip
    best = max((arm for arm in ARMS if arm in told), key=lambda arm: each.outcomes[arm].mean)
    told[best] = f"**{told[best]}**"
    return [each.entry.name, measured(metric), *(told.get(arm, "") for arm in arms), *each.words]


def halves(evidence: Sequence[Any]) -> dict[str, list[Any]]:
    """What is known of networks, each with its `entry`, by their halves."""
    parts: dict[Half, str] = {"report": "The half that no rule was chosen on", "choosing": "The half for choosing"}
    groups = {title: [each for each in evidence if half(each.entry.name) == part] for part, title in parts.items()}
    return {title: group for title, group in groups.items() if group}


def summary(every: Sequence[Found]) -> str:
    """How ours does on some networks, in a sentence or two."""
    group = [each for each in every if each.learnt]
    idle = ", ".join(each.entry.name for each in every if not each.learnt)
    told = []
    for words in zip(*(each.words for each in group)):
        worse = [each.entry.name for each, word in zip(group, words) if word == "worse"]
        names = f"{len(worse)} ({', '.join(worse)})" if worse else "none"
        told.append(f"better in {words.count('better')}, level in {words.count('level')}, worse in {names}")
    whole = [each for each in group if each.outcomes.keys() >= {*ARMS}]
    best = sum(all(each.word(OURS, arm) != "worse" for arm in ARMS) for each in whole)
    seeds = sorted({len(each.outcomes[OURS].scores) for each in group})
    return (
        f"{len(group)} networks, {' or '.join(map(str, seeds))} fresh seeds. Ours against the author's: each at its "
        f"own best rate {told[0]}; at the author's best rate {told[1]}."
        + (f" Of all four it is best, or within the margin of the best, in {best} of {len(whole)}." if whole else "")
        + (f" Left out, for no initialization trained them at this scale: {idle}." if idle else "")
    )


def measured(metric: Metric) -> str:
    """What is measured, in words."""
    return f"{metric.name}{f' ({metric.unit})' if metric.unit else ''}{', less is better' if metric.sign < 0 else ''}"
