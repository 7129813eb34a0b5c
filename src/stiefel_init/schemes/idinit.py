"""IDInit: identities side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._scheme import Fixed, register


def wrapped_identity(m: int, n: int) -> np.ndarray:
    """The m × n matrix of identities one after the other: 1 where i ≡ j modulo min(m, n)."""
    p = max(min(m, n), 1)
    return (np.arange(m)[:, None] % p == np.arange(n) % p).astype(np.float64)


@register
@dataclass(frozen=True)
class IDInit(Fixed):
    """W_ij = 1 where i ≡ j modulo min(m, n), else 0: the identity, repeated along the longer side.

    The identity-preserving part of the method, for layers outside residual branches.

    Pan, Wang, Zhu and others: IDInit: A Universal and Stable Initialization Method for Neural Network Training (2025).

    >>> str(IDInit()), wrapped_identity(2, 4).tolist()
    ('idinit', [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    """

    name = "idinit"

    def matrix(self, m: int, n: int) -> np.ndarray:
        return wrapped_identity(m, n)
