"""Tanh-Init."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import _validate
from ._scheme import Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class TanhInit(Scheme):
    """W = D + Z, D_ij = 1 where i ≡ j modulo n, else 0, and Z_ij ~ N(0, alpha²/n); for tanh networks.

    Lee, Kim, Yang, Choi: Robust Weight Initialization for Tanh Neural Networks with Fixed Point Analysis (2025).

    >>> str(TanhInit())
    'tanh-init'
    """

    name = "tanh-init"
    activations = ("tanh",)
    alpha: float = 0.085

    def __post_init__(self) -> None:
        _validate.number("alpha", self.alpha, at_least=0, hint="the authors use 0.085")

    def draw(self, source: Source) -> Array:
        m, n = source.m, source.n
        diagonal = (np.arange(m)[:, None] % n == np.arange(n)).astype(np.float64)
        return source.array(diagonal)[None] + self.alpha / math.sqrt(n) * source.normals(m, n)
