"""Random permutation matrices."""

from __future__ import annotations

from dataclasses import dataclass

from ._grouped import Grouped, one_in_each_column
from ._scheme import register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class Permutation(Grouped):
    """A random permutation matrix; for q = kp, each row of the p × q form has k entries 1/√k in columns of its own.

    It keeps a non-negative signal non-negative, so no ReLU clips it: docs/members.md.

    >>> str(Permutation())
    'permutation'
    """

    name = "permutation"

    def wide(self, source: Source, p: int, q: int) -> Array:
        # Row i has the i-th group of a random order of the columns; its inverse says which row a column is in.
        return one_in_each_column(source, source.xp.argsort(source.orders(q), -1) // (q // p), p, q)
