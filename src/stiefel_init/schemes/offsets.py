"""Biases that set the units of a layer apart, or raise them all."""

from __future__ import annotations

from dataclasses import dataclass

from ._scheme import Law, Scheme
from ._source import Array, Source


@dataclass(frozen=True)
class Offsets(Scheme):
    """m × 1: Gaussian numbers shifted and scaled to mean `level` and standard deviation `deviation`.

    For a single input the set has one matrix: all units are equal and stay equal. These offsets set them apart.

    >>> str(Offsets(0.5)), str(Offsets(0.0, 2.0))
    ('offsets 0.5', 'offsets 0 level=2')
    """

    name = "offsets"
    entrywise = True
    deviation: float = 1.0
    level: float = 0.0

    def draw(self, source: Source) -> Array:
        values = source.precise().normals(source.m, source.n)
        values = values - values.mean(-2)[..., None, :]
        size = ((values**2).mean(-2) ** 0.5)[..., None, :]
        return values * (self.deviation / source.xp.where(size > 0, size, size + 1)) + self.level

    def law(self, m: int, n: int) -> Law:
        return Law(variance=self.deviation**2)
