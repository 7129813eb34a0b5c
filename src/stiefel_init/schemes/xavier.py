"""Glorot and Bengio's initialization."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class Xavier(Scheme):
    """W_ij ~ U(±√(6/(fan_in + fan_out))): `torch.nn.init.xavier_uniform_`.

    Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks (2010).

    >>> str(Xavier())
    'xavier'
    """

    name = "xavier"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return math.sqrt(6 / (source.n + source.fan_out)) * source.uniforms(source.m, source.n)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=2 / (m + n))
