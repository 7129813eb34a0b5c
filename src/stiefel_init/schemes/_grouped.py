"""The base of those members of Õ(m,n) that need one side of the matrix to divide the other.

With p = min(m,n) and q = max(m,n) = kp they are built as p × q and transposed when m > n. Where p does not divide q no
member of the set is non-negative (docs/members.md), and all of them are the uniform member.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from ._scheme import Law, Scheme
from ._source import Array, Source
from .stiefel import Stiefel


@dataclass(frozen=True)
class Grouped(Scheme):
    """A member that exists where p divides q."""

    def resolve(self, m: int, n: int) -> Scheme:
        p, q = min(m, n), max(m, n)
        return self if p and q % p == 0 else Stiefel()

    def draw(self, source: Source) -> Array:
        if self.resolve(source.m, source.n) is not self:
            return Stiefel().draw(source)
        wide = self.wide(source, min(source.m, source.n), max(source.m, source.n))
        return wide if source.m <= source.n else wide.mT

    @abstractmethod
    def wide(self, source: Source, p: int, q: int) -> Array:
        """Matrices of shape (count, p, q)."""

    def law(self, m: int, n: int) -> Law:
        return Law(aligned=True, non_negative=self.resolve(m, n) is self)


def one_in_each_column(source: Source, rows: Array, p: int, q: int) -> Array:
    """The p × q matrices with one entry √(p/q) in each column, in the given rows, of shape (…, q)."""
    here = rows.reshape(-1, 1, q) == source.array(np.arange(p).reshape(1, p, 1))
    entry, nothing = (source.array(np.full((1, 1, 1), value)) for value in (math.sqrt(p / q), 0.0))
    return source.xp.broadcast_to(source.xp.where(here, entry, nothing), (source.count, p, q))
