"""The zoo as an experiment: what the runs say of each network, and the page."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from stiefel_init.core.errors import unknown
from stiefel_init.lab.files import prepare
from stiefel_init.lab.progress import progress
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.record import environment
from stiefel_init.lab.train.runner import pick_device

from ..experiment import Experiment, Options, titled
from ..loop import Log, Runs, read
from ..results import Results, note_environment
from .catalogue import ENTRIES, entries
from .entry import ARMS, AUTHOR, OURS, Entry, Half, Metric, half
from .runs import SEEDS, Scale, best_rate, fresh, train_all

Each = TypeVar("Each", bound="OfEntry")
DROP_IN = "ours at the author's rate"


class OfEntry(Protocol):
    """What is known of a network."""

    @property
    def entry(self) -> Entry:
        """The network."""
        ...


class Outcome(NamedTuple):
    """What came of one initialization of a network."""

    rate: float
    scores: list[float]
    """Of the fresh seeds, more is better."""

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return statistics.mean(self.scores)


class Found(NamedTuple):
    """The outcomes of a network, by the initialization."""

    entry: Entry
    outcomes: Mapping[str, Outcome]

    def margin(self, one: str, other: str) -> float:
        """Twice the standard error of the difference, and at least what matters."""
        scores = [self.outcomes[arm].scores for arm in (one, other)]
        variance = sum(statistics.variance(each) / len(each) for each in scores)
        return max(2 * math.sqrt(variance), self.entry.task.metric.margin)

    def word(self, one: str, other: str) -> str:
        """Better, worse or level."""
        gain = self.outcomes[one].mean - self.outcomes[other].mean
        margin = self.margin(one, other)
        return "better" if gain > margin else "worse" if gain < -margin else "level"

    @property
    def learnt(self) -> bool:
        """Whether any initialization trains it, at this scale, to more than three margins above chance."""
        metric = self.entry.task.metric
        return max(each.mean for each in self.outcomes.values()) > metric.sign * metric.chance + 3 * metric.margin

    @property
    def level(self) -> bool:
        """Whether neither verdict tells ours from the author's."""
        return self.word(OURS, AUTHOR) == self.word(DROP_IN, AUTHOR) == "level"

    @property
    def among_best(self) -> bool:
        """Whether no other is better than ours by more than the margin."""
        return all(self.word(OURS, arm) != "worse" for arm in ARMS if arm != OURS)


def found(runs: Runs) -> list[Found]:
    """What is known of every network that was trained from its author's initialization and from ours."""
    scores = {job: curve[-1] for job, curve in runs.items()}
    complete = []
    for entry in ENTRIES.values():
        rates = {arm: best_rate(entry, arm, scores) for arm in ARMS}
        asked = {**rates, DROP_IN: rates[AUTHOR]}
        outcomes = {}
        for arm, rate in asked.items():
            each = fresh(entry, OURS if arm == DROP_IN else arm, rate, scores)
            if len(each) > 1:
                outcomes[arm] = Outcome(rate or 0.0, each)
        if outcomes.keys() >= {AUTHOR, OURS, DROP_IN}:
            complete.append(Found(entry, outcomes))
    return complete


class Zoo(Experiment):
    """Networks as their communities write them."""

    name = "zoo"
    title = "Models other people wrote"
    page = "zoo"
    listed = True
    files = ("zoo", "zoo-cpu")

    def __init__(self, names: Collection[str] = (), part: Half | None = None, arms: Sequence[str] = ARMS) -> None:
        self.names, self.part, self.arms = names, part, arms

    def run(self, options: Options) -> None:
        """Train what is left of all networks, of some, or of a half; after `minutes` none is begun."""
        names, part, arms = self.names, self.part, self.arms
        for name in set(names) - ENTRIES.keys():
            raise unknown("name", name, ENTRIES)
        device = pick_device(options.device)
        scale = Scale(device.type == "cuda", options.quick, device.type, options.data)
        label = f"zoo{'-quick' if options.quick else '' if scale.big else '-cpu'}"
        log = Log(prepare(options.out) / f"{label}.csv")
        chosen = [entry for name, entry in entries(part).items() if not names or name in names]
        for entry in ENTRIES.values():
            if entry.absent:
                print(entry.absent, file=sys.stderr)
        seeds, start, before = options.seeds or (2 if options.quick else SEEDS), time.time(), len(log.runs)
        scores = {job: curve[-1] for job, curve in log.runs.items()}
        expected = sum(len(arms) * (len(entry.rates) + seeds) for entry in chosen)
        with progress(expected, label) as advance:
            until = start + 60 * (options.minutes or math.inf)
            at_once = {"seeds": seeds, "arms": arms, "until": until, "workers": options.stack}
            for job, curve in train_all(chosen, scores, scale, **at_once):
                log.add(job, curve)
                advance(1, job.network)
        if fresh := len(log.runs) - before:
            note_environment(options.out, label, environment(device, "slots"), time.time() - start, fresh, add=True)
        self.present([each for each in found(log.runs) if each.entry in chosen], options)

    def evidence(self, results: Results) -> list[Found] | None:
        """What the published runs say: those of a GPU, else those of a CPU."""
        for label in self.files:
            if rows := results.table(label):
                return found(read(rows, results.place / f"{label}.csv")) or None
        return None

    def tables(self, evidence: list[Found]) -> list[Table]:
        """One for each half."""
        return [_table(title, group, evidence) for title, group in halves(evidence).items()]

    def section(self, evidence: list[Found]) -> list[str]:
        """Sentences, the networks that are not level, and the names of those that are."""
        of_halves, lines = halves(evidence), list[str]()
        lines += [f"- **{title}**: {summary(group)}" for title, group in of_halves.items()]
        for title, group in of_halves.items():
            apart = [each for each in group if each.learnt and not each.level]
            names = ", ".join(each.entry.name for each in group if each.learnt and each.level)
            lines += ["", *titled([_table(f"{title}: what is not level", apart, evidence)])] if apart else [""]
            lines += wrapped(f"Level: {names}.") if names else []
        return lines


def _table(title: str, group: Sequence[Found], evidence: Sequence[Found]) -> Table:
    """A row for each network, with the initializations that any was trained from."""
    arms = [arm for arm in (*ARMS, DROP_IN) if any(arm in each.outcomes for each in evidence)]
    columns = ["network", "measured", *arms, "to the author's", "as a drop-in"]
    return Table(title, columns, [_row(each, arms) for each in group])


def halves(evidence: Sequence[Each]) -> dict[str, list[Each]]:
    """What is known of networks, by their halves."""
    parts: dict[Half, str] = {"report": "The half that no rule was chosen on", "choosing": "The half for choosing"}
    groups = {title: [each for each in evidence if half(each.entry.name) == part] for part, title in parts.items()}
    return {title: group for title, group in groups.items() if group}


def summary(every: Sequence[Found]) -> str:
    """How ours does on some networks, in a sentence or two."""
    group = [each for each in every if each.learnt]
    idle = [each.entry.name for each in every if not each.learnt]
    left_out = f" Left out, for no initialization trained them at this scale: {', '.join(idle)}." if idle else ""
    at_best = [each.word(OURS, AUTHOR) for each in group]
    dropped = [each.word(DROP_IN, AUTHOR) for each in group]
    worse = [each.entry.name for each, word in zip(group, at_best) if word == "worse"]
    cost = [each.entry.name for each, word in zip(group, dropped) if word == "worse"]
    whole = [each.among_best for each in group if each.outcomes.keys() >= {*ARMS}]
    best = (
        f" Of all four it is best, or within the margin of the best, in {sum(whole)} of {len(whole)}." if whole else ""
    )
    seeds = sorted({len(each.outcomes[OURS].scores) for each in group})
    counts = [f"better in {w.count('better')}, level in {w.count('level')}" for w in (at_best, dropped)]
    return (
        f"{len(group)} networks, {' or '.join(map(str, seeds))} fresh seeds. Ours against the author's: each at its "
        f"own best rate {counts[0]}, worse in {_named(worse)}; at the author's best rate {counts[1]}, worse in "
        f"{_named(cost)}.{best}{left_out}"
    )


def _named(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _row(each: Found, arms: Sequence[str]) -> list[str]:
    metric = each.entry.task.metric
    told = {arm: f"{metric.sign * outcome.mean:.{metric.digits}f} ({outcome.rate:g})"
            for arm, outcome in each.outcomes.items()}  # fmt: skip
    best = max((arm for arm in ARMS if arm in told), key=lambda arm: each.outcomes[arm].mean)
    told[best] = f"**{told[best]}**"
    words = each.word(OURS, AUTHOR), each.word(DROP_IN, AUTHOR)
    return [each.entry.name, measured(metric), *(told.get(arm, "") for arm in arms), *words]


def measured(metric: Metric) -> str:
    """What is measured, in words."""
    return f"{metric.name}{f' ({metric.unit})' if metric.unit else ''}{', less is better' if metric.sign < 0 else ''}"
