"""Truncated normal weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _validate
from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class TruncatedNormal(Scheme):
    """W_ij ~ N(0, std²) given |W_ij| ≤ cut · std; its standard deviation is 0.88 · std for cut = 2.

    Drawn as √2 std · erf⁻¹(u erf(cut/√2)), u uniform on (-1, 1).

    Devlin, Chang, Lee, Toutanova: BERT (2019), whose program starts all weights so.

    >>> str(TruncatedNormal(0.1, 3.0))
    'truncated-normal 0.1 cut=3'
    """

    name = "truncated-normal"
    entrywise = True
    std: float = 0.02
    cut: float = 2.0

    def __post_init__(self) -> None:
        _validate.number("std", self.std, at_least=0, hint="it is a standard deviation")
        _validate.number("cut", self.cut, above=0, hint="it is a number of standard deviations")

    def draw(self, source: Source) -> Array:
        within = math.erf(self.cut / math.sqrt(2))
        return math.sqrt(2) * self.std * source.erfinv(within * source.uniforms(source.m, source.n))

    def law(self, m: int, n: int) -> Law:
        density = math.exp(-(self.cut**2) / 2) / math.sqrt(2 * math.pi)
        kept = 1 - 2 * self.cut * density / math.erf(self.cut / math.sqrt(2))
        return Law(variance=self.std**2 * kept)
