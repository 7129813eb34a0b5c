"""Mimetic initialization of attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import _validate
from ._position import InAttention, Position
from ._scheme import Scheme, Start, register
from ._source import Array, Source
from .xavier import Xavier


@register
@dataclass(frozen=True)
class Mimetic(Start):
    """W_qᵀW_k ≈ qk (I + Z) for each head, the best of its rank; W_oW_v = vo (Z - I), Z_ij ~ N(0, 1/n); else Xavier.

    Products as trained transformers have them: a token looks for tokens like itself, and what it finds is taken off.
    Each product is split at the roots of its singular values. The authors set positions of patches to sines; those are
    parameters of the model's own and are left alone.

    Trockman, Kolter: Mimetic Initialization of Self-Attention Layers (2023).

    >>> str(Mimetic(0.5).at(Position(projection="key"))), str(Mimetic().at(Position()))
    ('mimetic-factor key identity=0.5 noise=0.5', 'xavier')
    """

    name = "mimetic"
    attention = "paired"
    qk: float = 0.7
    vo: float = 0.4

    def __post_init__(self) -> None:
        _validate.number("qk", self.qk, above=0, hint="the authors use 0.7")
        _validate.number("vo", self.vo, above=0, hint="the authors use 0.4")

    def at(self, position: Position) -> Scheme:
        if position.projection in ("query", "key"):
            return MimeticFactor(position.projection, self.qk, self.qk)
        if position.projection in ("value", "output"):
            return MimeticFactor(position.projection, -self.vo, self.vo)
        return Xavier()


@dataclass(frozen=True)
class MimeticFactor(Scheme):
    """One factor of M = identity · I + noise · Z, Z_ij ~ N(0, 1/n), M = U S Vᵀ, singular values in falling order.

    With U and V cut to as many columns as the product's rank: query √S Uᵀ and key √S Vᵀ of that many rows, so that
    W_qᵀW_k ≈ M; output U √S and value √S Vᵀ, W_oW_v = M. From one stream both factors are of the same M. The columns
    of U have positive sums, which makes them the same in every framework.

    >>> str(MimeticFactor("output"))
    'mimetic-factor output'
    """

    name = "mimetic-factor"
    projection: InAttention = "query"
    identity: float = 1.0
    noise: float = 1.0

    def draw(self, source: Source) -> Array:
        precise, xp = source.precise(), source.xp
        output = self.projection == "output"
        size, rank = (source.m, source.n) if output else (source.n, source.m)
        noise = self.noise / math.sqrt(size) * precise.normals(size, size)
        product = noise + precise.array(self.identity * np.eye(size))
        # By the eigenvectors of MMᵀ, in half the time of an SVD; √S Vᵀ = Uᵀ M / √S.
        squares, u = xp.linalg.eigh(product @ product.mT)
        squares, u = xp.flip(squares, (-1,))[..., :rank], xp.flip(u, (-1,))[..., :rank]
        u = u * xp.where(u.sum(-2) < 0, -1.0, 1.0)[..., None, :]
        roots = xp.where(squares > 0, squares, 0 * squares + 1) ** 0.25
        if output:
            return u * roots[..., None, :]
        if self.projection == "query":
            return (u * roots[..., None, :]).mT
        return (u / roots[..., None, :]).mT @ product
