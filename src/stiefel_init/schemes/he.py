"""He's initialization."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class He(Scheme):
    """W_ij ~ N(0, 2/fan_in): `torch.nn.init.kaiming_normal_` for ReLU.

    He, Zhang, Ren, Sun: Delving Deep into Rectifiers (2015).

    >>> str(He())
    'he'
    """

    name = "he"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return math.sqrt(2 / source.n) * source.normals(source.m, source.n)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=2 / n)
