"""Membership of Õ(m,n): `check`."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import StiefelError


# Note [tolerance]
#     Rounding the entries of a member to a dtype moves an entry of WWᵀ by at most eps and one of Wξ
#     by at most eps/2. The arithmetic that made W, in float32 or better, adds an error that grows at
#     most like the square root of the number of terms in a product; 8 covers the constant of every
#     sampler here and of LAPACK's QR.
def tolerance(m: int, n: int, eps: float) -> float:
    """2 · eps + 8 · √max(m,n) · min(eps, eps of float32): the largest error a member may have."""
    return 2 * eps + 8 * math.sqrt(max(m, n)) * min(eps, float(np.finfo(np.float32).eps))


@dataclass(frozen=True, slots=True)
class Membership:
    """How far a matrix, or the worst of a batch, is from Õ(m,n).

    >>> print(check(np.eye(2)))
    2×2: in the set (orthogonality error 0.0e+00, alignment error 0.0e+00, alignment 1.000000, tolerance 3.0e-15)
    """

    shape: tuple[int, ...]
    orthogonality_error: float
    """max |WWᵀ - I| (m ≤ n) or max |WᵀW - I| (m > n)."""
    alignment_error: float
    """max over the entries of |Wξ_n - ξ_m| and |Wᵀξ_m - ξ_n|."""
    alignment: float
    """ξ_mᵀ W ξ_n, 1 for a member; the smallest of a batch."""
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether both errors are within the tolerance."""
        return max(self.orthogonality_error, self.alignment_error) <= self.tolerance

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        size = "×".join(map(str, self.shape[-2:]))
        if len(self.shape) > 2:
            size = f"{'×'.join(map(str, self.shape[:-2]))} of {size}"
        return (
            f"{size}: {'in' if self.ok else 'NOT in'} the set "
            f"(orthogonality error {self.orthogonality_error:.1e}, alignment error {self.alignment_error:.1e}, "
            f"alignment {self.alignment:.6f}, tolerance {self.tolerance:.1e})"
        )


def check(W: Any, *, tol: float | None = None) -> Membership:
    r"""Measure how far W is from Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }.

    The errors are computed in float64; a PyTorch tensor stays on its device. Empty matrices are members.

    Args:
        W: A NumPy, PyTorch or JAX array of any float dtype, of shape (…, m, n). For a batch, the worst matrix counts.
        tol: The largest error allowed. Defaults to 2 · eps + 8 · √max(m,n) · min(eps, eps of float32), with the eps of
            W's dtype: rounding of the entries plus rounding in the arithmetic.

    Returns:
        The errors; true in a boolean context if W is a member.

    >>> from stiefel_init import sample
    >>> check(sample(64, 784, seed=0)).ok, check(np.eye(3)).ok, check(-np.eye(3)).ok
    (True, True, False)
    """
    w, eps = _as_float64(W)
    shape = tuple(w.shape)
    if len(shape) < 2:
        raise StiefelError(f"W has shape {shape}; give a matrix, or a batch of matrices, of shape (…, m, n).")
    m, n = shape[-2:]
    if tol is None:
        tol = tolerance(m, n, eps)
    elif not (isinstance(tol, int | float) and 0 <= tol < math.inf):
        raise StiefelError(f"tol={tol!r} is not a tolerance; give a number ≥ 0, or None.")
    if 0 in shape:
        return Membership(shape, 0.0, 0.0, 1.0, tol)
    orthogonality, forward, backward, alignment = errors(w)
    worst = [abs(float(values.max())) for values in (orthogonality, forward, backward)]
    # Python's max() may drop a NaN; a matrix with one must not pass.
    misaligned = math.nan if any(map(math.isnan, worst[1:])) else max(worst[1:])
    return Membership(shape, worst[0], misaligned, float(alignment.min()), tol)


def errors(w: Any) -> tuple[Any, Any, Any, Any]:
    """Of each matrix: max |WWᵀ - I| or max |WᵀW - I|, max |Wξ_n - ξ_m|, max |Wᵀξ_m - ξ_n|, and ξ_mᵀWξ_n.

    `w`: a NumPy array or a PyTorch tensor of shape (…, m, n), not empty, in the precision to be computed in.
    """
    m, n = w.shape[-2:]
    gram = w @ w.mT if m <= n else w.mT @ w
    diagonal = np.einsum("...ii->...i", gram) if isinstance(gram, np.ndarray) else gram.diagonal(dim1=-2, dim2=-1)
    diagonal -= 1
    forward, backward = w.sum(-1) / math.sqrt(n), w.sum(-2) / math.sqrt(m)
    return (
        _largest(gram, (-2, -1)),
        _largest(forward - 1 / math.sqrt(m), -1),
        _largest(backward - 1 / math.sqrt(n), -1),
        forward.sum(-1) / math.sqrt(m),
    )


def _largest(a: Any, axes: int | tuple[int, ...]) -> Any:
    """max |a| along axes, without a copy of a."""
    if isinstance(a, np.ndarray):
        return np.maximum(a.max(axes), -a.min(axes))
    high, low = a.amax(axes), a.amin(axes)
    return high.maximum(-low)


def _as_float64(W: Any) -> tuple[Any, float]:
    """W in float64, as a NumPy array or, if it is one, a PyTorch tensor; and the eps of its dtype."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(W, torch.Tensor):
        if not W.is_floating_point():
            raise StiefelError(f"W has dtype {W.dtype}; convert it to a float dtype.")
        if W.is_meta:
            raise StiefelError("W is on the meta device and has no values; materialize it first.")
        return W.detach().to(torch.float64), torch.finfo(W.dtype).eps
    w = np.asarray(W)
    if w.dtype.kind == "f":
        return w.astype(np.float64), float(np.finfo(w.dtype).eps)
    if w.dtype.kind == "V":  # bfloat16 and its kin, as JAX passes them
        import ml_dtypes  # always there with JAX, whose dtypes these are

        return w.astype(np.float64), float(ml_dtypes.finfo(w.dtype).eps)
    raise StiefelError(f"W has dtype {w.dtype}; convert it to a float dtype.")
