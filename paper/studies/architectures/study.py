"""The study of architectures: whole networks from `initialize_` and from other starts."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Collection, Iterable
from typing import Any

from stiefel_init.lab.files import prepare
from stiefel_init.lab.progress import progress
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.record import environment
from stiefel_init.lab.train.runner import pick_device

from ...experiment import QUICK_NOTE, Experiment, Options
from ...results import Results, note_environment
from . import page, plan
from .catalogue import Network, networks
from .log import Log, Runs, runs
from .training import TUNING, Job, run_seconds
from .verdicts import Verdicts
from .workers import How, left, train_all

SEEDS, QUICK_SEEDS = 5, 2


class Architectures(Experiment):
    """Networks as users write them, each start at its best rate, with fresh seeds."""

    name = "architectures"
    title = "Whole networks: which start trains better?"
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
        done = runs(csv.DictReader(path.read_text(encoding="utf-8").splitlines()), path) if path.exists() else {}
        how = How(options.quick, self.count(options), device, options.data, math.inf)
        total = time.process_time()
        for network in networks(quick=options.quick).values():
            if count := _work(network, done, how) / network.work:
                total += count * run_seconds(network, network.problem(device, options.data), device)
        return total

    def count(self, options: Options) -> int:
        """How many fresh seeds to run."""
        return options.seeds or (QUICK_SEEDS if options.quick else SEEDS)

    def train(self, options: Options, only: Collection[str] | None = None, limit: float = math.inf) -> Runs:
        """Train what is left of the study, and note each run in the table as it ends.

        Args:
            options: As for `run`.
            only: The names of the networks to train, if not all.
            limit: Seconds after which nothing more is begun.
        """
        device, label = pick_device(options.device), self.label(options.quick)
        log = Log(prepare(options.out) / f"{label}.csv")
        before = len(log.runs)
        chosen = [n for n in networks(quick=options.quick).values() if only is None or n.name in only]
        start = time.time()
        how = How(options.quick, self.count(options), device, options.data, start + limit)
        with progress(sum(_work(network, log.runs, how) for network in chosen), label) as advance:

            def advanced(network: Network, steps: int) -> None:
                advance(steps * network.work / network.steps, network.title)

            for job, curve in train_all(chosen, log.runs, how, advanced):
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
        found = Verdicts(networks(quick=False), runs(rows, results.place / f"{self.name}.csv"))
        return found if found.networks else None

    def tables(self, evidence: Verdicts) -> list[Table]:
        """One for each network."""
        return page.tables(evidence)

    def pictures(self, evidence: Verdicts) -> dict[str, Any]:
        """Scores on the way."""
        return {self.name: page.picture(evidence)} if evidence.networks else {}

    def section(self, evidence: Verdicts) -> list[str]:
        """The page without its head."""
        return page.section(evidence)


def _work(network: Network, done: Runs, how: How) -> float:
    """About how much is left: what was expected, and at least what can be begun now."""

    def runs(jobs: Iterable[Job]) -> float:
        return sum(network.tuning_steps / network.steps if job.seed == TUNING else 1 for job in jobs)

    rest = plan.expected(network, how.seeds, thorough=not how.quick) - runs(
        job for job in done if job.network == network.name
    )
    return max(rest, runs(left(network, done, how))) * network.work
