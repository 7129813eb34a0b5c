"""Gaussian weights with the same standard deviation for every shape."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _validate
from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class Random(Scheme):
    """W_ij ~ N(0, std²). The paper does not define its `Random`; 0.1 comes closest to its numbers.

    >>> str(Random(0.5))
    'random 0.5'
    """

    name = "random"
    entrywise = True
    std: float = 0.1

    def __post_init__(self) -> None:
        _validate.number("std", self.std, at_least=0, hint="it is a standard deviation")

    def draw(self, source: Source) -> Array:
        return self.std * source.normals(source.m, source.n)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=self.std**2)
