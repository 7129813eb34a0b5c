"""He's weights times a factor, for residual branches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._scheme import Law, Scheme
from ._source import Array, Source


@dataclass(frozen=True)
class ScaledHe(Scheme):
    """W_ij ~ N(0, 2 factor²/fan_in).

    >>> str(ScaledHe(0.5))
    'he-scaled 0.5'
    """

    name = "he-scaled"
    entrywise = True
    factor: float = 1.0

    def draw(self, source: Source) -> Array:
        return self.factor * math.sqrt(2 / source.n) * source.normals(source.m, source.n)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=2 * self.factor**2 / n)
