"""Whether the matrices of a weight are what a plan's row says, from the row's own words."""

from __future__ import annotations

import re

import numpy as np

from stiefel_init import check
from stiefel_init.recipe.plan import Plan, Row


def ends(plan: Plan, end: str) -> set[str]:
    """The weights that the plan calls a stem or a head."""
    return {row.name for row in plan if row.reason.startswith(end)}


def kernels(row: Row, value: np.ndarray) -> np.ndarray:
    """The matrices in a kernel of Flax or Keras, by hand."""
    count = int(row.action.split(" of ")[0].split()[-1]) if " of " in row.action else 1
    if row.name.endswith("bias"):
        return value.reshape(1, -1, 1)
    if row.name.split(".")[-2] in ("query", "key", "value"):  # (inputs, heads, size)
        return value.reshape(1, len(value), -1).mT
    if row.name.split(".")[-2] in ("out", "attention_output"):  # (heads, size, outputs)
        return value.reshape(1, -1, value.shape[-1]).mT
    if value.ndim == 4:
        value = value.transpose(2, 0, 1, 3)
    return value.reshape(-1, count, value.shape[-1] // count).transpose(1, 2, 0)


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
