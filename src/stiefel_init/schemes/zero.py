"""ZerO: zeros and ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._scheme import Fixed, register


@register
@dataclass(frozen=True)
class ZerO(Fixed):
    """The first m rows of the identity if m ≤ n; else the m × n corner of a Hadamard matrix H/√p, p = 2^⌈log₂ m⌉.

    No randomness: one matrix per shape. H/√p is orthogonal, as in the authors' program.

    Zhao, Schäfer, Anandkumar: ZerO Initialization: Initializing Neural Networks with only Zeros and Ones (2022).

    >>> ZerO().matrix(2, 3).tolist(), ZerO().matrix(4, 2).tolist()
    ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.5, 0.5], [0.5, -0.5], [0.5, 0.5], [0.5, -0.5]])
    """

    name = "zero"

    def matrix(self, m: int, n: int) -> np.ndarray:
        if m <= n:
            return np.eye(m, n)
        p = 1 << (m - 1).bit_length()
        # Sylvester's matrix has (-1)^|i ∧ j|, |·| counting the ones in binary.
        signs = np.bitwise_count(np.arange(m)[:, None] & np.arange(n)) % 2
        return (1.0 - 2.0 * signs) / np.sqrt(p)
