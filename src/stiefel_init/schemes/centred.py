"""Output layers that do not see the common level of their inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._haar import haar
from ._scheme import Law, Scheme
from ._source import Array, Source
from .stiefel import Stiefel


@dataclass(frozen=True)
class Centred(Scheme):
    """Haar semi-orthogonal W with W ξ_n = 0: orthonormal rows (columns, if m ≥ n) in the complement of the ones.

    In an aligned network all units share a common level. An output layer in the set, W ξ_n = ξ_m, reports that level,
    so that targets with another mean push all units down together. This one reports only how the units differ.
    With one input there is nothing else to report, and W is the member of the set.

    >>> str(Centred())
    'centred'
    """

    name = "centred"

    def draw(self, source: Source) -> Array:
        m, n = source.m, source.n
        if n == 1:
            return Stiefel().draw(source)
        source = source.precise()
        xp = source.xp
        drawn = haar(source, m, n - 1)
        # [0, drawn] H with H = I - uuᵀ/(1 + 1/√n), u = e_1 + ξ_n, which swaps e_1 and -ξ_n.
        root = 1 / math.sqrt(n)
        along = drawn.sum(-1)[..., None] * (root / (1 + root))
        return xp.concatenate([-along * (1 + root), drawn - along * root], -1)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=1 / max(m, n))
