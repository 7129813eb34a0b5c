"""All experiments: the paper's, our studies, and those the user registered."""

from __future__ import annotations

from itertools import product

from stiefel_init.core.errors import unknown
from stiefel_init.lab.train.record import Record

from .everything import Everything
from .experiment import Experiment, Trained, register, registered
from .figures.algorithms import Algorithms
from .figures.figure1 import Figure1
from .figures.figure2 import Figure2
from .figures.signal import Signals
from .results import Results
from .studies.baselines import Baselines
from .studies.cifar import Cifar
from .studies.members import Members
from .studies.on_the_set import OnTheSet
from .studies.plasticity import Plasticity
from .studies.shakespeare import Shakespeare
from .studies.transfer import Transfer
from .tables.images import Figure3, Table1, Table2, Table3
from .tables.tabular import Table5, Table5Explained
from .zoo import Zoo
from .zoo.search import FullSearch

EXPERIMENTS = tuple(
    map(
        register,
        (
            Table1(), Table2(), Table3(), Figure3(), Table5(), Table5Explained(), Figure1(),
            Figure2(), Signals(), Algorithms(), Everything(), Members(), Baselines(), OnTheSet(),
            Transfer(), Zoo(), FullSearch(), Cifar(),
            Shakespeare(), Plasticity(),
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
