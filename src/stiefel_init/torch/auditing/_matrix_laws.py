"""Laws of matrices that hold exactly, up to rounding: identities, permutations, orthogonal matrices, members."""

from __future__ import annotations

import math

import numpy as np

from ...core.check import errors, tolerance


def matrix_law(w: np.ndarray, eps: float) -> str | None:
    """The law of a batch of matrices, of shape (count, m, n), not empty and not constant; None if there is none."""
    m, n = w.shape[-2:]
    return _of_ones(w, eps) or _orthogonal(w, eps) or (_mirrored(w) if min(m, n) > 1 else None)


def _times(scale: float) -> str:
    return "" if math.isclose(scale, 1, rel_tol=1e-4) else f" × {scale:.4g}"


def _of_ones(w: np.ndarray, eps: float) -> str | None:
    """Identities, wrapped identities and permutations, times a number."""
    m, n = w.shape[-2:]
    filled = np.abs(w) > 0
    size = float(np.abs(w).max())
    if filled.sum() > w.shape[0] * max(m, n) or np.abs(np.abs(w[filled]) - size).max() > 4 * eps * size:
        return None
    if (w < 0).any():
        return None
    p = min(m, n)
    rows, columns = np.arange(m)[:, None], np.arange(n)
    if (filled == (rows == columns)).all():
        return f"identity{_times(size)}"
    if (filled == (rows % p == columns % p)).all():
        return f"identities side by side{_times(size)}"
    once = filled.sum(-2) if m <= n else filled.sum(-1)
    return f"permutation{_times(size)}" if (once == 1).all() else None


def _orthogonal(w: np.ndarray, eps: float) -> str | None:
    m, n = w.shape[-2:]
    gain = math.sqrt(float(np.square(w).sum()) / (len(w) * min(m, n)))
    gram, forward, backward, _ = (float(np.max(error)) for error in errors(w / gain))
    # The gain is measured too: its own rounding adds as much again.
    allowed = 2 * tolerance(m, n, eps)
    if not gram <= allowed:
        return None
    if max(forward, backward) <= allowed:
        return f"member of the set{_times(gain)}"
    return f"orthogonal{_times(gain)}" if min(m, n) > 1 else None


def _mirrored(w: np.ndarray) -> str | None:
    """Looks-linear: units in pairs of opposite sign."""
    m, n = w.shape[-2:]
    above = m % 2 == 0 and (w[:, : m // 2] == -w[:, m // 2 :]).all()
    beside = n % 2 == 0 and (w[..., : n // 2] == -w[..., n // 2 :]).all()
    return "mirrored pairs (looks-linear)" if above or beside else None
