"""T-Fixup initialization."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._position import Position
from ._scheme import Law, Scheme, Start, register
from ._source import Array, Source
from .xavier import Xavier


@register
@dataclass(frozen=True)
class TFixup(Start):
    """Xavier's weights; v, out and feed-forward of N blocks × 0.67 N^(-1/4), in a decoder × (9N)^(-1/4).

    Embeddings of d numbers are N(0, 1/d), × (9N)^(-1/4). A decoder is a stack whose blocks attend to another sequence
    too; all its attentions count. q, k and all layers outside of the blocks are Xavier's. It is made for transformers
    without normalization and trained without warm-up.

    Huang, Pérez, Ba, Volkovs: Improving Transformer Optimization Through Better Initialization (2020).

    >>> str(TFixup().at(Position(projection="value", layers=16)))
    'xavier-scaled 0.335'
    """

    name = "t-fixup"
    attention = "apart"
    embeds = True

    def at(self, position: Position) -> Scheme:
        decoder = (9 * position.layers) ** -0.25 if position.layers else 1.0
        if position.table:
            return ScaledTable(decoder)
        if not position.layers or position.projection in ("query", "key"):
            return Xavier()
        return ScaledXavier(decoder if position.crossed else 0.67 * position.layers**-0.25)


@dataclass(frozen=True)
class ScaledXavier(Scheme):
    """W_ij ~ factor · U(±√(6/(fan_in + fan_out))).

    >>> str(ScaledXavier(0.5))
    'xavier-scaled 0.5'
    """

    name = "xavier-scaled"
    entrywise = True
    factor: float = 1.0

    def draw(self, source: Source) -> Array:
        return self.factor * Xavier().draw(source)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=2 * self.factor**2 / (m + n))


@dataclass(frozen=True)
class ScaledTable(Scheme):
    """Rows of n numbers, W_ij ~ N(0, factor²/n), for embeddings.

    >>> str(ScaledTable(0.5))
    'table-scaled 0.5'
    """

    name = "table-scaled"
    entrywise = True
    factor: float = 1.0

    def draw(self, source: Source) -> Array:
        return self.factor / math.sqrt(source.n) * source.normals(source.m, source.n)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=self.factor**2 / n)
