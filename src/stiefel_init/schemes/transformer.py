"""Initializations of transformers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .base import Array, Distribution, InAttention, Position, Scheme, Source, WholeModel, number, register
from .entrywise import Random, Xavier


@register
class GPT2(Random):
    """W_ij ~ N(0, std²), std/√B at the ends of B residual branches; embeddings N(0, std²), biases zero.

    Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask Learners (2019). B counts
    attention and feed-forward branches, two for each block.

    >>> str(GPT2().at(Position(branches=4, branch=2, ends_branch=True)))
    'gpt-2 0.01'
    """

    name = "gpt-2"
    positional = True
    embeds = True
    std: float = number(0.02, "it is a standard deviation", at_least=0)

    def at(self, position: Position) -> Scheme:
        return GPT2(self.std / math.sqrt(position.branches)) if position.ends_branch else self


@register
class TFixup(WholeModel):
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

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=2 * self.factor**2 / (m + n))


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

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.factor**2 / n)


@register
class Mimetic(WholeModel):
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
    qk: float = number(0.7, "the authors use 0.7", above=0)
    vo: float = number(0.4, "the authors use 0.4", above=0)

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
