"""The paper's initialization."""

from __future__ import annotations

from dataclasses import dataclass

from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class Stiefel(Scheme):
    """W uniform on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }, ξ_k = (1,…,1)ᵀ/√k.

    Lee, Kim, Choi: Optimized Weight Initialization on the Stiefel Manifold for Deep ReLU Neural Networks (2025).

    >>> str(Stiefel())
    'stiefel'
    """

    name = "stiefel"

    def draw(self, source: Source) -> Array:
        return source.semi_orthogonal(aligned=True)

    def law(self, m: int, n: int) -> Law:
        return Law(aligned=True)
