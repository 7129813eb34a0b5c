"""All of the paper in one run: `reproduce all`, which goes on where it was cut off."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from stiefel_init.lab.data import Dataset
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.cluster import ClusterSpec, reach
from stiefel_init.lab.train.problem import ACCURACY
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.source import source_hash

from .experiment import STOPPED, Experiment, Options, Trained, registered, train
from .limit import time_limit
from .results import Results, recorded


def networks(experiments: Sequence[Experiment], options: Options) -> tuple[list[Cell], dict[str, Dataset]]:
    """All networks of these experiments, each once, and the data sets that they bring along.

    Where networks depend on the results of others, those without a record are taken to score alike: which of them win
    changes a rate, not how long the rest takes.
    """
    cells: dict[Cell, None] = {}
    own: dict[str, Dataset] = {}
    known = recorded(options.out, lambda text: None, touch=False)
    for experiment in experiments:
        if isinstance(experiment, Trained):
            assumed: dict[Cell, Record] = {}
            while left := experiment.trainable(options, experiment.count(options), assumed):
                assumed |= {cell: known.get(cell) or Record(cell, ACCURACY, 0.0) for cell in left}
            cells |= dict.fromkeys(assumed)
            own |= experiment.datasets(list(assumed), options.data)
    return list(cells), own


class Everything(Experiment):
    """Every table, figure and claim of the paper."""

    name = "all"
    title = "All of the paper"
    page = None

    def parts(self) -> list[Experiment]:
        return [experiment for experiment in registered().values() if experiment.of_paper]

    def run(self, options: Options) -> None:
        """Train the networks of all, on a GPU side by side; then run what else there is, and show it all."""
        if (place := ClusterSpec.of(options.on)) is not None:
            reach(place)  # before any data are loaded
        cells, own = networks(self.parts(), options)
        with time_limit(options.minutes) as limit:
            known = recorded(options.out, lambda text: print(text, file=sys.stderr))
            train(cells, own, options, self.label(options.quick), known)
        if limit.reached:
            print(STOPPED.format(options.minutes))
            return
        for experiment in self.parts():
            if not isinstance(experiment, Trained) and options.on != "local":
                print(f"{experiment.name} is not made of networks; it runs on this machine.", file=sys.stderr)
            if self._done(experiment, options):
                print(f"{experiment.name} is done already; remove its file from {options.out} to run it again.")
            else:
                experiment.run(replace(options, minutes=None))  # what is left takes a minute or two

    def _done(self, experiment: Experiment, options: Options) -> bool:
        """Whether this source has run an experiment that keeps no records of networks, which would tell."""
        label = experiment.label(options.quick)
        if isinstance(experiment, Trained) or not (options.out / f"{label}.csv").exists():
            return False
        entry = Results(options.out).environments.get(label, {"environments": []})
        return any(environment.get("source") == source_hash() for environment in entry["environments"])

    def evidence(self, results: Results) -> None:
        """None of its own."""
