"""Weights that start at zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._scheme import Law, Scheme
from ._source import Array, Source


@dataclass(frozen=True)
class Zeros(Scheme):
    """W = 0, for the ends of residual branches.

    >>> str(Zeros())
    'zeros'
    """

    name = "zeros"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return source.array(np.zeros((source.count, source.m, source.n)))

    def law(self, m: int, n: int) -> Law:
        return Law(variance=0.0)
