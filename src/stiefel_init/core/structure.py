"""The structure of the set: W's orthogonal complement (Proposition 1) and the factor L (Lemma 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import construct as _construct
from . import validate as _validate
from .errors import StiefelError


def complement(W: Any) -> np.ndarray:
    r"""W⊥: n-m orthonormal rows that complete the rows of W (m × n, m ≤ n) to a basis of Rⁿ.

    For W ∈ Õ(m,n) they are orthogonal to the all-ones direction: W⊥ ξ_n = 0 (Proposition 1).

    Args:
        W: A real matrix with m ≤ n, or a batch of them.

    Returns:
        An array of shape (…, n-m, n) in W's dtype.

    Raises:
        StiefelError: if W is not a real, finite matrix, or has more rows than columns.

    >>> from stiefel_init import sample
    >>> C = complement(sample(2, 5, seed=0))
    >>> C.shape, bool(np.abs(C.sum(axis=1)).max() < 1e-12)
    ((3, 5), True)
    """
    W = np.asarray(W)
    if W.ndim < 2 or W.dtype.kind != "f":
        raise StiefelError(f"W has shape {W.shape} and dtype {W.dtype}; give a real matrix, or a batch of them.")
    m, n = W.shape[-2:]
    if m > n:
        raise StiefelError(f"W has shape {W.shape}, more rows than columns, so its rows have no complement; pass W.T.")
    if not np.isfinite(W).all():
        raise StiefelError("W has non-finite entries; pass a matrix of finite numbers.")
    work = W.astype(np.float32) if W.dtype == np.float16 else W
    q = np.linalg.qr(work.mT, mode="complete").Q if W.size else np.broadcast_to(np.eye(n), (*W.shape[:-2], n, n))
    return q[..., m:].mT.astype(W.dtype)


def cholesky_factor(m: int) -> np.ndarray:
    r"""L, lower triangular with LLᵀ = I_m - 11ᵀ/m (Lemma 2), in closed form:

    L_jj = √((m-j)/(m-j+1)),  L_ij = -1/√((m-j+1)(m-j)) for i > j,  and a last column of zeros.

    Args:
        m: Rows and columns.

    Returns:
        An m × m array in float64.

    Raises:
        StiefelError: if m is not a whole number ≥ 0.

    >>> cholesky_factor(2).round(4).tolist()
    [[0.7071, 0.0], [-0.7071, 0.0]]
    """
    diagonal, below = _construct.cholesky_columns(_validate.size("m", m))
    return np.tril(np.broadcast_to(below, (len(below), len(below))), -1) + np.diag(diagonal)
