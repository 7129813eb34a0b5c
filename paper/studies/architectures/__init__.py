"""Whole networks from `initialize_` and from other starts.

networks/     the networks, in one file each, as users write them
problems.py   what they learn
starts.py     the starts that are compared
catalogue.py  which network learns what, for how long, at which rates
plan.py       which runs are left
training.py   one run on a CPU, many at once on a GPU
workers.py    the networks in a process each, on a GPU
log.py        the table of runs
verdicts.py   what they say
page.py       the same in sentences, tables and pictures
study.py      the experiment
"""

from .page import line
from .study import Architectures

__all__ = ["Architectures", "line"]
