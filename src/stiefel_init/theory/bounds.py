"""Bounds on members of Õ(m,n) (Theorems 4 and 5), the optimum they attain, and the best α for a network's input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core import validate
from ..core.check import check
from ..core.errors import StiefelError

FAVOURED_ALPHA = 2.0
"""α = mean/std of the input that did best in the paper's tabular study, of the four it tried: -2, 0, 2 and 50.

Below 0 most units of the first layer are off; far above, the ReLU is the identity and the network is linear.
"""


def alignment_optimum(m: int, n: int) -> float:
    """√(mn), the largest sum of the entries of a semi-orthogonal m × n matrix; the members of Õ(m,n) attain it.

    >>> alignment_optimum(4, 9)
    6.0
    """
    return math.sqrt(validate.size("m", m, at_least=1) * validate.size("n", n, at_least=1))


def max_entry_bound(m: int, n: int, c: float) -> float:
    r"""c·√(log q / q) + 1/√(mn), q = max(m,n): no entry of a uniform member of Õ(m,n) exceeds it (Theorem 4).

    Precisely, P(max |W_ij| ≥ bound) → 0 as q → ∞, for any c > 2 and however m grows; if the smaller side is fixed, any
    c > √2 is enough. The paper has m ≤ n; since Wᵀ ∈ Õ(n,m), the larger side counts.

    >>> round(max_entry_bound(64, 784, c=2.1), 4)
    0.1981
    """
    m, n = validate.size("m", m, at_least=1), validate.size("n", n, at_least=1)
    c = validate.number("c", c, above=2, hint="try c=2.1, as the theorem requires")
    larger = max(m, n)
    return c * math.sqrt(math.log(larger) / larger) + 1 / math.sqrt(m * n)


def berry_esseen_bound(W: Any, third_moment: float) -> float:
    r"""(42·m^{1/4} + 16) · β₃ · Σ_j ‖w_j‖³, w_j the columns of W: how far Wx can be from Gaussian (Theorem 5).

    For x with independent coordinates of mean μ and std σ, z = (x - μ)/σ, and g standard normal, every convex set A has
    |P(Wz ∈ A) - P(g ∈ A)| ≤ bound. The bound is not capped: from 1 on it says nothing, and as it is at least
    58·m·√(m/n)·β₃, it is below 1 only for very wide layers.

    Args:
        W: An m × n matrix with WWᵀ = I_m.
        third_moment: β₃ ≥ E|z_j|³.

    >>> W = np.full((1, 1_000_000), 1e-3)
    >>> round(berry_esseen_bound(W, third_moment=1.6), 4)
    0.0928
    """
    try:
        w = np.asarray(W, dtype=np.float64)
    except (TypeError, ValueError):
        raise StiefelError(f"W is a {type(W).__name__} that is not a matrix of numbers; give an m × n array.") from None
    if w.ndim != 2 or not 1 <= w.shape[0] <= w.shape[1]:
        raise StiefelError(f"W has shape {w.shape}; give a matrix with 1 ≤ m ≤ n, m rows and n columns.")
    if not (error := check(w).orthogonality_error) <= 1e-6 * math.sqrt(w.shape[1]):
        raise StiefelError(f"W has max |WWᵀ - I| = {error:.1e}; the bound needs orthonormal rows, as `sample` draws.")
    third_moment = validate.number("third_moment", third_moment, at_least=1, hint="so is E|z|³ of a standardized z")
    return float((42 * w.shape[0] ** 0.25 + 16) * third_moment * (np.linalg.norm(w, axis=0) ** 3).sum())


def shift_for_alpha(x: Any, alpha: float = FAVOURED_ALPHA) -> np.ndarray:
    r"""x + (alpha · std(x) - mean(x)), mean and std over all entries: the same data with mean/std = alpha.

    Standardize each feature first, as the paper does; the shift is then `alpha` itself. To held-out data, standardized
    like the training data, add `alpha` instead of calling this again.

    Args:
        x: Data of shape (samples, features).
        alpha: The mean/std to shift to.

    Returns:
        The shifted data, in x's dtype.

    >>> shift_for_alpha([[-1.0, 1.0], [1.0, -1.0]]).tolist()
    [[1.0, 3.0], [3.0, 1.0]]
    """
    try:
        data = np.asarray(x)
        data = data if data.dtype.kind == "f" else data.astype(np.float64)
    except (TypeError, ValueError):
        raise StiefelError(f"x is a {type(x).__name__} that is not all numbers; give an array of floats.") from None
    if data.ndim != 2 or not data.size:
        raise StiefelError(f"x has shape {data.shape}; give a table of shape (samples, features) with entries.")
    if not np.isfinite(data).all():
        raise StiefelError("x has non-finite entries; fill in or drop missing values first.")
    alpha = validate.number("alpha", alpha, hint=f"the paper's study favours {FAVOURED_ALPHA:g}")
    mean, std = data.mean(dtype=np.float64), data.std(dtype=np.float64)
    if std == 0:
        raise StiefelError(f"x is {data.flat[0]} everywhere, so mean/std is undefined; give data that vary.")
    return data + data.dtype.type(alpha * std - mean)
