"""All experiments: the paper's, our studies, and those the user registered."""

from __future__ import annotations

from .._errors import unknown
from . import paper, studies  # which register theirs
from .experiment import Experiment, registered

__all__ = ["chosen", "experiments", "paper", "studies"]


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
