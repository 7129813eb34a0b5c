"""Convolutions between a permutation at the centre and random patches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ._scheme import Law, Scheme
from ._source import Array, Source
from .permutation import Permutation


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

    def law(self, m: int, n: int) -> Law:
        return Law(variance=self.gain**2 / max(m, n))
