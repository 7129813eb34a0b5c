"""Uniform numbers within a bound, for biases."""

from __future__ import annotations

from dataclasses import dataclass

from ._scheme import Law, Scheme
from ._source import Array, Source


@dataclass(frozen=True)
class Uniform(Scheme):
    """W_ij ~ U(±bound).

    >>> str(Uniform(0.5))
    'uniform 0.5'
    """

    name = "uniform"
    entrywise = True
    bound: float = 1.0

    def draw(self, source: Source) -> Array:
        return self.bound * source.uniforms(source.m, source.n)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=self.bound**2 / 3)
