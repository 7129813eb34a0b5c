r"""The deterministic initialization of Lee et al. (2024), one fixed matrix per shape.

Note [Lee's matrix]
    Q_k R_k = 11ᵀ + εI_k with diag R_k > 0. Column j of Q_k is, up to its length,

        -(k + ε)  in rows i < j,      ε(j + ε) + (j - 1)(k + ε)  in row j,      ε  in rows i > j:

    the span of the first j columns of 11ᵀ + εI_k is { v : v_i = c for i > j,  v_1 + … + v_j = (j + ε)c }, the column
    lies in it, and is orthogonal to the one before it. The first p columns of 11ᵀ + εI_q are the q × p matrix
    11ᵀ + εI, so the same columns serve both readings of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from .. import _validate
from .._errors import unknown
from ._scheme import Fixed, register

Variant = Literal["product", "direct", "lapack"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


@register
@dataclass(frozen=True)
class Lee(Fixed):
    """W = Q_m I_{m×n} Q_nᵀ, the identity when m = n; or, `"direct"`, the orthonormal factor of 11ᵀ + εI_{m×n}.

    `"lapack"` is the first with the signs that NumPy's and PyTorch's `qr` give, diag R < 0 but for its last entry;
    a layer with one output is then the negative of the first's.

    Lee, Kim, Yang, Choi: Improved weight initialization for deep and narrow feedforward neural network (2024).

    >>> str(Lee("direct")), Lee().matrix(2, 2).tolist()
    ('lee direct', [[1.0, 0.0], [0.0, 1.0]])
    """

    name = "lee"
    variant: Variant = "product"
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant", self.variant, VARIANTS)
        _validate.number("epsilon", self.epsilon, above=0, hint="the paper of Lee et al. uses 0.1")

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
