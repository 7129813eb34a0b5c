"""Whether the matrices of a weight are what a plan's row says, from the row's own words."""

from __future__ import annotations

import re

import numpy as np

from stiefel_init import check
from stiefel_init.recipe.plan import Row


def holds(row: Row, matrices: np.ndarray) -> bool:
    """Whether these are the matrices that the row speaks of: their number and sizes, their scale and their law."""
    words = re.fullmatch(
        r"(?P<law>[a-z+]+(?: \+ [\d.]+ patches)?)(?: (?P<number>[\d.]+))?(?: (?P<count>\d+) of)? (?P<m>\d+)×(?P<n>\d+)"
        r"(?P<tap> at the centre)?(?: (?P<sign>[/×]) (?P<scale>-?[\d.]+))?",
        row.action,
    )
    assert words, row.action
    count, m, n = int(words["count"] or 1), int(words["m"]), int(words["n"])
    assert matrices.shape == (count, m, n), (matrices.shape, row.action)
    factor = float(words["scale"] or 1)
    scale = 1 / factor if words["sign"] == "/" else factor
    return all(_law(words["law"], words["number"], W / scale) for W in matrices.astype(np.float64))


def _law(law: str, number: str | None, W: np.ndarray) -> bool:
    singular = np.linalg.svd(W, compute_uv=False)
    if law in ("stiefel", "rotation"):
        return bool(check(W, tol=2e-3).ok)
    if law == "centred":
        inside = min(W.shape[0], W.shape[1] - 1)
        return bool(abs(W.sum(1)).max() < 1e-5 and np.allclose(singular[:inside], 1, atol=1e-4))
    if law == "orthogonal":
        return np.allclose(singular, float(number or 1), rtol=5e-3)
    if law == "patches":
        return np.allclose(singular, singular[0], rtol=1e-4)
    if law.startswith("permutation +"):
        # √(1-s²) P + s√2 W: the largest entry of each row is P's, and the rest has s²·2 of the power.
        spread = float(law.split()[2])
        share = (W**2).sum() / min(W.shape) if W.shape[0] <= W.shape[1] else (W**2).sum() / W.shape[1]
        return bool(abs(share - (1 - spread**2 + 2 * spread**2)) < 1.5 * spread)
    if law == "offsets":
        return bool(abs(W.mean()) < 1e-5 and abs(W.std() - float(number or 1)) < 5e-3)
    raise AssertionError(f"no law for {law!r}")
