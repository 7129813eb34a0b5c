"""Members of Õ(m,n), and what the recipe puts beside them: heads that are blind to the ones, blended kernels.

Note [grouped members]
    Permutation, identity and rotation need one side of the matrix to divide the other. With p = min(m,n) and
    q = max(m,n) = kp they are built as p × q and transposed when m > n. Where p does not divide q no member of the set
    is non-negative (docs/members.md), and all of them are drawn as `Stiefel`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..core.errors import StiefelError
from .base import Array, Distribution, Scheme, Source, haar, number, register


@register
class Stiefel(Scheme):
    """W uniform on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }, ξ_k = (1,…,1)ᵀ/√k.

    Lee, Kim, Choi: Optimized Weight Initialization on the Stiefel Manifold for Deep ReLU Neural Networks (2025).

    >>> str(Stiefel())
    'stiefel'
    """

    name = "stiefel"

    def draw(self, source: Source) -> Array:
        return source.semi_orthogonal(aligned=True)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(aligned=True)


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

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(aligned=True, non_negative=self.resolve(m, n) is self)


def one_in_each_column(source: Source, rows: Array, p: int, q: int) -> Array:
    """The p × q matrices with one entry √(p/q) in each column, in the given rows, of shape (…, q)."""
    here = rows.reshape(-1, 1, q) == source.array(np.arange(p).reshape(1, p, 1))
    entry, nothing = (source.array(np.full((1, 1, 1), value)) for value in (math.sqrt(p / q), 0.0))
    return source.xp.broadcast_to(source.xp.where(here, entry, nothing), (source.count, p, q))


@register
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


@register
class Identity(Grouped):
    """The identity; for q = kp, row i of the p × q form has k entries 1/√k, in columns ki … ki+k-1.

    >>> str(Identity())
    'identity'
    """

    name = "identity"

    def wide(self, source: Source, p: int, q: int) -> Array:
        return one_in_each_column(source, source.array(np.arange(q) // (q // p)), p, q)


@register
class Rotation(Grouped):
    """R G, G the identity's p × q form and R = H diag(1, exp(A - Aᵀ)) H, A_ij ~ N(0, spread²/2p).

    R is a random rotation that fixes the all-ones direction; H is the reflection that swaps e_1 and -ξ_p. With a small
    spread it is close to the identity; from 1 on it behaves like `Stiefel`.

    >>> str(Rotation(0.3))
    'rotation 0.3'
    """

    name = "rotation"
    spread: float = number(0.1, "0.1 is a small rotation", at_least=0)

    @classmethod
    @lru_cache
    def in_a_row(cls, layers: int) -> Rotation:
        """The rotation for each of many layers in a row, with nothing but activations between them.

        1/√L lets L rotations turn a signal about as far in all as one random layer does; deep rows train better closer
        to the identity: of spread min(1/√L, 3/L).

        >>> str(Rotation.in_a_row(4)), str(Rotation.in_a_row(100))
        ('rotation 0.5', 'rotation 0.03')
        """
        return cls(min(1 / math.sqrt(layers), 3 / layers))

    def wide(self, source: Source, p: int, q: int) -> Array:
        square = source.rotations(p, self.spread)
        if p == q:
            return square
        return source.xp.broadcast_to((square * math.sqrt(p / q))[..., None], (*square.shape, q // p)).reshape(-1, p, q)

    def distribution(self, m: int, n: int) -> Distribution:
        raise StiefelError(
            f"scheme={str(self)!r} has no prediction; small spreads are near 'identity', large ones near 'stiefel'."
        )

    def __str__(self) -> str:
        """Always with its spread, which tells rotations apart."""
        return f"{self.name} {self.spread:g}" if float(f"{self.spread:g}") == self.spread else super().__str__()


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
        if m >= n:  # Haar W less Wξξᵀ, which has the same law, in float32 and without a factorization
            tall = source.semi_orthogonal(aligned=False)
            tall -= tall.mean(-1)[..., None]
            return tall
        if n < 64 or 2 * m > n:  # else the Gaussian matrix has a condition number of 6, and float32 is as good
            source = source.precise()
        xp = source.xp
        drawn = haar(source, m, n - 1)
        # [0, drawn] H with H = I - uuᵀ/(1 + 1/√n), u = e_1 + ξ_n, which swaps e_1 and -ξ_n.
        root = 1 / math.sqrt(n)
        along = drawn.sum(-1)[..., None] * (root / (1 + root))
        return xp.concatenate([-along * (1 + root), drawn - along * root], -1)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=1 / max(m, n))


@dataclass(frozen=True)
class Blend(Scheme):
    """√(1-spread²) P + spread · gain · W for kernels of `places` entries for each input.

    P has a permutation (Õ's member `Permutation`) at the entry `tap` and zeros elsewhere; it carries any non-negative
    image through ReLU unchanged, at any depth, but looks at single pixels. W is a Haar semi-orthogonal matrix of whole
    patches. With spread² = 1/L, L layers in a row turn the signal as much in all as one random layer would.

    Where neither width divides the other there is no P, and spread counts as 1.

    >>> str(Blend(0.1, 9, 4))
    'blend 0.1 places=9 tap=4'
    """

    name = "blend"
    spread: float = 1.0
    places: int = 1
    tap: int = 0
    gain: float = math.sqrt(2)

    def draw(self, source: Source) -> Array:
        m, n = source.m, source.n // self.places
        patches = self.gain * source.semi_orthogonal(aligned=False)
        p, q = min(m, n), max(m, n)
        if self.spread >= 1 or q % p:
            return patches
        wide = Permutation().wide(source, p, q)
        centre = (wide if m <= n else wide.mT)[..., None]  # (count, m, n, 1)
        here = source.array(np.eye(self.places)[self.tap].reshape(1, 1, 1, -1))
        kernel = math.sqrt(1 - self.spread**2) * (centre * here).reshape(-1, m, source.n)
        return kernel + self.spread * patches

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.gain**2 / max(m, n))
