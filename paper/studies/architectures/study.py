"""The study of architectures: whole networks from `initialize_` and from other initializations, and what runs say."""

from __future__ import annotations

import csv
import math
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from stiefel_init.lab.files import prepare
from stiefel_init.lab.progress import progress
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.rates import beyond
from stiefel_init.lab.study.significance import Verdict, verdicts
from stiefel_init.lab.train.record import environment
from stiefel_init.lab.train.runner import pick_device

from ...experiment import QUICK_NOTE, Experiment, Options
from ...results import Results, note_environment
from . import runs as study_runs
from .catalogue import Network, networks
from .initializations import OURS
from .runs import Log, Manner, Runs, left, train_all
from .training import TUNING, Job, run_seconds

SEEDS, QUICK_SEEDS = 5, 2


class Outcome(NamedTuple):
    """What came of one initialization of a network."""

    rate: float
    at_an_end: bool
    """Whether that is the largest or smallest rate that was tried."""
    curves: list[tuple[float, ...]]
    """Of the fresh seeds; none for one that learnt at no rate."""

    @property
    def scores(self) -> list[float]:
        """At the end of training."""
        return [curve[-1] for curve in self.curves]


class Verdicts:
    """The outcomes of all networks whose runs are complete, and ours against every other initialization."""

    def __init__(self, networks: Mapping[str, Network], runs: Runs) -> None:
        self.outcomes = {name: found for name, network in networks.items() if (found := _outcomes(network, runs))}
        self.networks = {name: networks[name] for name in self.outcomes}
        self.missing = [network for name, network in networks.items() if name not in self.outcomes]
        pairs, margins = {}, {}
        for name, network in self.networks.items():
            samples = {s: network.metric.sign * np.array(o.scores) for s, o in self.outcomes[name].items() if o.curves}
            for start in (start for start in samples if start != OURS):
                pairs[name, start], margins[name, start] = (samples[OURS], samples[start]), network.metric.margin
        self.comparisons: dict[tuple[str, str], Verdict] = dict(zip(pairs, verdicts(list(pairs.values()))))
        for key, test in self.comparisons.items():  # margins differ, the correction is for all
            if test.word == "not shown" and test.low > -margins[key]:
                self.comparisons[key] = test._replace(word="not worse")

    def words(self, name: str) -> dict[str, str]:
        """How ours compares with every other initialization of a network; better than one that learnt nothing."""
        found = {}
        for start, outcome in self.outcomes[name].items():
            if start != OURS:
                found[start] = self.word(name, start) if outcome.curves else "better"
        return found

    def word(self, name: str, start: str) -> str:
        """Better, worse, not worse, or undecided."""
        word = self.comparisons[name, start].word
        return "undecided" if word == "not shown" else word

    def next_best(self, name: str) -> tuple[str, float]:
        """The best of the others, and its mean."""
        sign = self.networks[name].metric.sign
        means = {s: statistics.mean(o.scores) for s, o in self.outcomes[name].items() if s != OURS and o.curves}
        return max(means.items(), key=lambda item: sign * item[1])


def _outcomes(network: Network, runs: Runs) -> dict[str, Outcome]:
    """Those of all initializations; empty if some run is missing."""
    scores = {job: curve[-1] for job, curve in runs.items()}
    found = {}
    for start in network.starts:
        rate = study_runs.best_rate(network, start, scores)
        if rate is None:
            return {}
        tried = study_runs.tried(network, start, scores)
        curves = {job.seed: curve for job, curve in runs.items() if job[:3] == (network.name, start, rate)}
        fresh = [curves[seed] for seed in sorted(curves) if seed < TUNING]
        found[start] = Outcome(rate, beyond(tried, rate) is not None, fresh)
    counts = {len(outcome.curves) for outcome in found.values() if outcome.curves}
    rest = any(study_runs.left_of(network, start, scores, min(counts, default=0), thorough=False) for start in found)
    return found if found[OURS].curves and len(counts) == 1 and min(counts) > 1 and not rest else {}


class Architectures(Experiment):
    """Networks as users write them, each initialization at its best rate, with fresh seeds."""

    name = "architectures"
    title = "Whole networks: which initialization trains better?"
    page = "architectures"
    files = ("architectures",)

    def run(self, options: Options) -> None:
        """Train what is left of the study."""
        found = Verdicts(networks(quick=options.quick), self.train(options))
        for table in self.tables(found):
            table.show()
        self.write_pictures(found, options)
        if options.quick:
            print(QUICK_NOTE)

    def seconds(self, options: Options) -> float | None:
        """From a few steps and a test of each network; None on a GPU, where many train side by side."""
        device = pick_device(options.device)
        if device.type != "cpu":
            return None
        path = options.out / f"{self.label(options.quick)}.csv"
        done = (
            study_runs.read(csv.DictReader(path.read_text(encoding="utf-8").splitlines()), path)
            if path.exists()
            else {}
        )
        manner = Manner(options.quick, self.count(options), device, options.data, math.inf)
        total = time.process_time()
        for network in networks(quick=options.quick).values():
            if count := _work(network, done, manner) / network.work:
                total += count * run_seconds(network, network.problem(device, options.data), device)
        return total

    def count(self, options: Options) -> int:
        """How many fresh seeds to run."""
        return options.seeds or (QUICK_SEEDS if options.quick else SEEDS)

    def train(self, options: Options) -> Runs:
        """Train what is left of the study, and note each run in the table as it ends; after `minutes` none is begun."""
        device, label = pick_device(options.device), self.label(options.quick)
        log = Log(prepare(options.out) / f"{label}.csv")
        before = len(log.runs)
        chosen, start = list(networks(quick=options.quick).values()), time.time()
        manner = Manner(
            options.quick, self.count(options), device, options.data, start + 60 * (options.minutes or math.inf)
        )
        with progress(sum(_work(network, log.runs, manner) for network in chosen), label) as advance:

            def advanced(network: Network, steps: int) -> None:
                advance(steps * network.work / network.steps, network.title)

            for job, curve in train_all(chosen, log.runs, manner, advanced):
                log.add(job, curve)
        if len(log.runs) > before:
            fresh = len(log.runs) - before
            note_environment(options.out, label, environment(device, "slots"), time.time() - start, fresh, add=True)
        return log.runs

    def evidence(self, results: Results) -> Verdicts | None:
        """What the runs say; None if no network's are complete."""
        rows = results.table(self.name)
        if not rows:
            return None
        found = Verdicts(networks(quick=False), study_runs.read(rows, results.place / f"{self.name}.csv"))
        return found if found.networks else None

    def tables(self, evidence: Verdicts) -> list[Table]:
        """One for each network."""
        from . import page

        return page.tables(evidence)

    def pictures(self, evidence: Verdicts) -> dict[str, Any]:
        """Scores on the way."""
        from .page import picture

        return {self.name: picture(evidence)} if evidence.networks else {}

    def section(self, evidence: Verdicts) -> list[str]:
        """The page without its head."""
        from .page import section

        return section(evidence)


def _work(network: Network, done: Runs, manner: Manner) -> float:
    """About how much is left: what was expected, and at least what can be begun now."""

    def runs(jobs: Iterable[Job]) -> float:
        return sum(network.tuning_steps / network.steps if job.seed == TUNING else 1 for job in jobs)

    rest = study_runs.expected(network, manner.seeds, thorough=not manner.quick) - runs(
        job for job in done if job.network == network.name
    )
    return max(rest, runs(left(network, done, manner))) * network.work
