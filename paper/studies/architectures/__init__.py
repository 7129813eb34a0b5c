"""Whole networks from `initialize_` and from other initializations.

networks.py         the networks, as users write them
problems.py         what they learn
initializations.py  what is compared
catalogue.py        which network learns what, for how long, at which rates
training.py         one run on a CPU, many at once on a GPU
runs.py             which runs are left, the table of runs, several networks at once
study.py            the experiment, and what the runs say
page.py             the same in sentences, tables and pictures
"""

from .page import line
from .study import Architectures

__all__ = ["Architectures", "line"]
