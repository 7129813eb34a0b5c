r"""One fixed matrix per shape, or one with a little noise.

Note [Lee's matrix]
    Q_k R_k = 11ᵀ + εI_k with diag R_k > 0. Column j of Q_k is, up to its length,

        -(k + ε)  in rows i < j,      ε(j + ε) + (j - 1)(k + ε)  in row j,      ε  in rows i > j:

    the span of the first j columns of 11ᵀ + εI_k is { v : v_i = c for i > j,  v_1 + … + v_j = (j + ε)c }, the column
    lies in it, and is orthogonal to the one before it. The first p columns of 11ᵀ + εI_q are the q × p matrix
    11ᵀ + εI, so the same columns serve both readings of the paper.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from .base import Array, Fixed, Scheme, Source, choice, number, register

Variant = Literal["product", "direct", "lapack"]


@register
class Lee(Fixed):
    """W = Q_m I_{m×n} Q_nᵀ, the identity when m = n; or, `"direct"`, the orthonormal factor of 11ᵀ + εI_{m×n}.

    `"lapack"` is the first with the signs that NumPy's and PyTorch's `qr` give, diag R < 0 but for its last entry;
    a layer with one output is then the negative of the first's.

    Lee, Kim, Yang, Choi: Improved weight initialization for deep and narrow feedforward neural network (2024).

    >>> str(Lee("direct")), Lee().matrix(2, 2).tolist()
    ('lee direct', [[1.0, 0.0], [0.0, 1.0]])
    """

    name = "lee"
    variant: Variant = choice(Variant)
    epsilon: float = number(0.1, "the paper of Lee et al. uses 0.1", above=0)

    def matrix(self, m: int, n: int) -> np.ndarray:
        p, q = min(m, n), max(m, n)
        if self.variant == "direct":
            wide = self._orthonormal(q, p).T
            return wide if m < n else wide.T
        if m == n:
            return np.eye(m)
        return self._signed(m, p) @ self._signed(n, p).T

    def _signed(self, k: int, columns: int) -> np.ndarray:
        """The first columns of Q_k, for `"lapack"` with its signs: all are negated but the last of a square one."""
        q = self._orthonormal(k, columns)
        return q if self.variant == "product" else q * np.where(np.arange(1, columns + 1) == k, 1.0, -1.0)

    def _orthonormal(self, k: int, columns: int) -> np.ndarray:
        """The first columns of Q_k."""
        j = np.arange(1, columns + 1)
        diagonal = self.epsilon * (j + self.epsilon) + (j - 1) * (k + self.epsilon)
        length = np.sqrt((j - 1) * (k + self.epsilon) ** 2 + diagonal**2 + (k - j) * self.epsilon**2)
        above, below = np.triu(np.ones((k, columns)), 1), np.tril(np.ones((k, columns)), -1)
        return (np.eye(k, columns) * diagonal - above * (k + self.epsilon) + below * self.epsilon) / length


@register
class IDInit(Fixed):
    """W_ij = 1 where i ≡ j modulo min(m, n), else 0: the identity, repeated along the longer side.

    The identity-preserving part of the method, for layers outside residual branches.

    Pan, Wang, Zhu and others: IDInit: A Universal and Stable Initialization Method for Neural Network Training (2025).

    >>> str(IDInit()), IDInit().matrix(2, 4).tolist()
    ('idinit', [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    """

    name = "idinit"

    def matrix(self, m: int, n: int) -> np.ndarray:
        p = max(min(m, n), 1)
        return (np.arange(m)[:, None] % p == np.arange(n) % p).astype(np.float64)


@register
class TanhInit(Scheme):
    """W = D + Z, D_ij = 1 where i ≡ j modulo n, else 0, and Z_ij ~ N(0, alpha²/n); for tanh networks.

    Lee, Kim, Yang, Choi: Robust Weight Initialization for Tanh Neural Networks with Fixed Point Analysis (2025).

    >>> str(TanhInit())
    'tanh-init'
    """

    name = "tanh-init"
    activations = ("tanh",)
    alpha: float = number(0.085, "the authors use 0.085", at_least=0)

    def draw(self, source: Source) -> Array:
        m, n = source.m, source.n
        diagonal = (np.arange(m)[:, None] % n == np.arange(n)).astype(np.float64)
        return source.array(diagonal)[None] + self.alpha / math.sqrt(n) * source.normals(m, n)


@register
class Sinusoidal(Fixed):
    """W_ij = a sin 2π(ij/n + i/m), i = 1 … m, j = 1 … n: each unit a wave of its own frequency and phase.

    a makes the mean square of W that of Xavier's weights, 2/(m + n). No randomness: one matrix per shape.

    Fernández-Hernández, Mestre, Dolz, Duato, Quintana-Ortí: Sinusoidal Initialization, Time for a New Start (2025).

    >>> Sinusoidal().matrix(2, 3).round(3).tolist()
    [[-0.775, 0.775, 0.0], [-0.775, 0.775, 0.0]]
    """

    name = "sinusoidal"

    def matrix(self, m: int, n: int) -> np.ndarray:
        i, j = np.arange(1, m + 1)[:, None], np.arange(1, n + 1)
        # The phase in turns is reduced to [0, 1) in whole numbers, so that waves that vanish do so exactly.
        waves = np.sin(2 * np.pi * ((i * j * m + i * n) % (m * n)) / (m * n)) if m * n else np.zeros((m, n))
        waves[np.abs(waves) < 1e-12] = 0
        size = np.sqrt(np.mean(waves**2)) if m * n else 0.0
        return waves * (np.sqrt(2 / (m + n)) / size) if size else waves


@register
class ZerO(Fixed):
    """The first m rows of the identity if m ≤ n; else the m × n corner of a Hadamard matrix H/√p, p = 2^⌈log₂ m⌉.

    No randomness: one matrix per shape. H/√p is orthogonal, as in the authors' program.

    Zhao, Schäfer, Anandkumar: ZerO Initialization: Initializing Neural Networks with only Zeros and Ones (2022).

    >>> ZerO().matrix(2, 3).tolist(), ZerO().matrix(4, 2).tolist()
    ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.5, 0.5], [0.5, -0.5], [0.5, 0.5], [0.5, -0.5]])
    """

    name = "zero"  # the method; the matrix of zeros is `entrywise.Zeros`

    def matrix(self, m: int, n: int) -> np.ndarray:
        if m <= n:
            return np.eye(m, n)
        p = 1 << (m - 1).bit_length()
        # Sylvester's matrix has (-1)^|i ∧ j|, |·| counting the ones in binary.
        signs = np.bitwise_count(np.arange(m)[:, None] & np.arange(n)) % 2
        return (1.0 - 2.0 * signs) / np.sqrt(p)
