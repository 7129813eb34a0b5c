r"""Members of Õ(m,n) by name: the uniform one, and those that clip little or nothing.

With p = min(m,n), q = max(m,n) and, if p divides q, k = q/p:

    "uniform"      uniform on the set; what the paper means
    "permutation"  a random permutation matrix; for k > 1 each row has k entries 1/√k, in columns of its own
    "identity"     the identity; for k > 1 row i has its k entries 1/√k in columns ki … ki+k-1
    "rotation"     R G with G that identity and R = H diag(1, exp(A - Aᵀ)) H, A_ij ~ N(0, spread²/2p): a small random
                   rotation that fixes the ones direction

Where p does not divide q no member of the set is non-negative (docs/members.md), and all of them are the uniform one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import expm

from . import _construct, _stream
from ._errors import StiefelError, unknown

MEMBERS = ("uniform", "permutation", "rotation", "identity")


def check(member: Any, spread: Any, method: str) -> tuple[str, float]:
    """The arguments, if they are sound."""
    if member not in MEMBERS:
        raise unknown("member", member, MEMBERS)
    try:
        value = float(spread)
    except (TypeError, ValueError):
        raise StiefelError(f"spread={spread!r} is not a number; give a finite float ≥ 0.") from None
    if not 0 <= value < math.inf:
        raise StiefelError(f"spread={value} is not a finite number ≥ 0; 0.1 is a small rotation.")
    if member != "uniform" and method != "householder":
        raise StiefelError(f"method={method!r} draws uniform members only; leave it out for member={member!r}.")
    return member, value


def resolve(member: str, p: int, q: int) -> str:
    """What `member` is for this shape: itself, or "uniform" where p does not divide q."""
    return member if p and q % p == 0 else "uniform"


def order(key: np.ndarray, count: int) -> np.ndarray:
    """The permutation of `count` things that belongs to a stream's key: they are sorted by 64-bit lots."""
    words = _stream.words(key, (0, 1), (0, count))[0].astype(np.uint64)
    return np.argsort(words[:, 0] << np.uint64(32) | words[:, 1], kind="stable")


def from_order(columns: np.ndarray, p: int, dtype: Any) -> np.ndarray:
    """The p × q matrix whose row i has its entries in the i-th group of `columns`."""
    q = len(columns)
    w = np.zeros((p, q), dtype)
    w[np.arange(q) // (q // p), columns] = 1 / math.sqrt(q // p)
    return w


def rotation(normals: np.ndarray, spread: float, p: int, q: int) -> np.ndarray:
    """The p × q rotation from (p-1) × (p-1) Gaussian numbers, in float64."""
    a = normals * (spread / math.sqrt(2 * p))
    inner = np.eye(p)
    if p > 1:
        inner[1:, 1:] = expm(a - a.T)
    h = _construct.left_reflection(p, "float64")
    return np.repeat(h @ inner @ h, q // p, axis=1) / math.sqrt(q // p)
