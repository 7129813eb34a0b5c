"""All experiments: the paper's, our studies, and those the user registered."""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import unknown
from . import paper, studies  # which register theirs
from .data import Dataset
from .experiment import Available, Experiment, Options, Trained, registered
from .paper.everything import Everything
from .results import recorded
from .train.cell import Cell
from .train.record import Record
from .train.task import ACCURACY

__all__ = ["chosen", "experiments", "networks", "paper", "studies"]


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
    one = known[name]
    return one.parts() if isinstance(one, Everything) else [one]


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
