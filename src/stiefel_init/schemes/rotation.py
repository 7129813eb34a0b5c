"""Random rotations near the identity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .. import _validate
from .._errors import StiefelError
from ._grouped import Grouped
from ._scheme import Law, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class Rotation(Grouped):
    """R G, G the identity's p × q form and R = H diag(1, exp(A - Aᵀ)) H, A_ij ~ N(0, spread²/2p).

    R is a random rotation that fixes the all-ones direction; H is the reflection that swaps e_1 and -ξ_p. With a small
    spread it is close to the identity; from 1 on it behaves like the uniform member.

    >>> str(Rotation(0.3))
    'rotation 0.3'
    """

    name = "rotation"
    spread: float = 0.1

    def __post_init__(self) -> None:
        _validate.number("spread", self.spread, at_least=0, hint="0.1 is a small rotation")

    @classmethod
    @lru_cache
    def in_a_row(cls, layers: int) -> Rotation:
        """The rotation for each of many layers in a row, with nothing but activations between them.

        1/√L lets L rotations turn a signal about as far in all as one random layer does; deep rows train better closer
        to the identity.

        Args:
            layers: L, how many there are.

        Returns:
            A rotation of spread min(1/√L, 3/L).

        >>> str(Rotation.in_a_row(4)), str(Rotation.in_a_row(100))
        ('rotation 0.5', 'rotation 0.03')
        """
        return cls(min(1 / math.sqrt(layers), 3 / layers))

    def wide(self, source: Source, p: int, q: int) -> Array:
        xp, root = source.xp, 1 / math.sqrt(p)
        a = source.normals(p - 1, p - 1) * (self.spread * math.sqrt(0.5) * root)
        a = a - a.mT
        # H diag(0, a) H = diag(0, a) + u rᵀ - r uᵀ, with H = I - c uuᵀ, u = e_1 + ξ, c u_1 = 1 and r = c diag(0, a) u.
        r = a.sum(-1)[..., None] * (root / (1 + root))
        above = xp.concatenate([0 * r.sum(-2)[..., None], r.mT * (1 + root)], -1)
        below = xp.concatenate([-r * (1 + root), a - (r - r.mT) * root], -1)
        # √p/spread times it has a norm of about 2√p; 9 more have a probability of exp(-40).
        turned = source.turn(xp.concatenate([above, below], -2), self.spread * (2 + 9 * root))
        turned = (turned + source.array(np.eye(p)[None])) * math.sqrt(p / q)
        return xp.broadcast_to(turned[..., None], (*turned.shape, q // p)).reshape(-1, p, q)

    def law(self, m: int, n: int) -> Law:
        raise StiefelError(
            f"scheme={str(self)!r} has no prediction; small spreads are near 'identity', large ones near 'stiefel'."
        )

    def __str__(self) -> str:
        """Always with its spread, which tells rotations apart."""
        return f"{self.name} {self.spread:g}" if float(f"{self.spread:g}") == self.spread else super().__str__()
