"""All experiments: the paper's, our studies, and those the user registered."""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import unknown
from . import paper, studies  # which register theirs
from .data import Dataset
from .experiment import Experiment, Options, Trained, registered
from .train.cell import Cell

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
    if name == "all":
        return [experiment for experiment in known.values() if experiment.of_paper]
    if name not in known:
        raise unknown("name", name, (*known, "all"))
    return [known[name]]


def networks(experiments: Sequence[Experiment], options: Options) -> tuple[list[Cell], dict[str, Dataset]]:
    """All networks of these experiments, each once, and the data sets that they bring along."""
    cells: dict[Cell, None] = {}
    own: dict[str, Dataset] = {}
    for experiment in experiments:
        if isinstance(experiment, Trained):
            wanted = experiment.cells(experiment.count(options), quick=options.quick)
            cells |= dict.fromkeys(wanted)
            own |= experiment.datasets(wanted, options.data)
    return list(cells), own
