"""All experiments: the paper's, our studies, and those the user registered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from stiefel_init.core.errors import unknown
from stiefel_init.lab.data import Dataset
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import ACCURACY
from stiefel_init.lab.train.record import Record

from .everything import Everything
from .experiment import Available, Experiment, Options, Trained, register, registered
from .figures.algorithms import Algorithms
from .figures.figure1 import Figure1
from .figures.figure2 import Figure2
from .figures.signal import Signals
from .results import Results, recorded
from .studies.baselines import Baselines
from .studies.cifar import Cifar
from .studies.members import Members
from .studies.on_the_set import OnTheSet
from .studies.shakespeare import Shakespeare
from .studies.transfer import Transfer
from .tables.images import Figure3, Table1, Table2, Table3
from .tables.tabular import Table5, Table5Explained
from .zoo import Zoo

EXPERIMENTS = tuple(
    map(
        register,
        (
            Table1(), Table2(), Table3(), Figure3(), Table5(), Table5Explained(), Figure1(),
            Figure2(), Signals(), Algorithms(), Everything(), Members(), Baselines(), OnTheSet(),
            Transfer(), Zoo(), Cifar(),
            Shakespeare(),
        ),
    )
)  # fmt: skip
"""In the order of the report."""


def experiments() -> dict[str, Experiment]:
    """All of them by name."""
    return registered()


def chosen(name: str) -> list[Experiment]:
    """The experiment of that name; for `all`, those of the paper.

    Raises:
        StiefelError: for an unknown name.
    """
    known = registered()
    if name not in known:
        raise unknown("name", name, known)
    experiment = known[name]
    return experiment.parts() if isinstance(experiment, Everything) else [experiment]


def selected(run: Results, published: Results | None) -> dict[str, list[Record]]:
    """The records of each experiment of networks, by the name of its file; published ones stay unless rerun."""
    found = {}
    for quick, experiment in product((False, True), registered().values()):
        if isinstance(experiment, Trained):
            label = experiment.label(quick)
            before = {} if published is None else published.records_of(label)
            found[label] = experiment.select(before | run.records_of(label), quick=quick)
    return found


def networks(experiments: Sequence[Experiment], options: Options) -> tuple[list[Cell], dict[str, Dataset]]:
    """All networks of these experiments, each once, and the data sets that they bring along.

    Where networks depend on the results of others, those without a record are taken to score alike: which of them win
    changes a rate, not how long the rest takes.
    """
    cells: dict[Cell, None] = {}
    own: dict[str, Dataset] = {}
    known = recorded(options.out, lambda text: None, touch=False)
    for experiment in experiments:
        if not isinstance(experiment, Trained):
            continue
        seeds, assumed = experiment.count(options), dict[Cell, Record]()
        have = Available(experiment.optional, options.data)
        while left := have.of(
            cell for cell in experiment.cells(seeds, quick=options.quick, records=assumed) if cell not in assumed
        ):
            assumed |= {cell: known.get(cell) or Record(cell, ACCURACY, 0.0) for cell in left}
        cells |= dict.fromkeys(assumed)
        own |= experiment.datasets(list(assumed), options.data)
    return list(cells), own
