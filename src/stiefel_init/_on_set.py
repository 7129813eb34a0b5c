"""The geometry of Õ(m,n) that training on it needs, for arrays of shape (…, m, n) of NumPy, PyTorch and JAX alike.

Nothing branches on values and no argument is written to, so every function here can be traced, compiled, and captured
in a CUDA graph. `docs/on-the-set.md` has the proofs.
"""

from __future__ import annotations

import math
from typing import Any

LARGEST_TURN = 0.4
"""No step goes further than ‖ηT‖₄ = (Σσᵢ⁴)^¼ = 0.4: it turns no direction by more than 22°. So far two Newton–Schulz
steps bring W back to the set in float32; see Note [two steps]."""
SAFE = 1.5  # the squared singular value up to which a cubic Newton–Schulz step surely contracts (it does so below 3)
MUON = (3.4445, -4.7750, 2.0315)  # Jordan's quintic: steep at 0; leads singular values to about 0.7 … 1.2
MUON_STEPS = 5


def centre(a: Any, shift: float = 0.0) -> Any:
    """C_m A C_n with C = I - ξξᵀ: A with the means of its rows and of its columns removed; plus `shift`."""
    a = a - a.mean(axis=-1, keepdims=True)
    a -= a.mean(axis=-2, keepdims=True) - shift
    return a


def ones_entry(m: int, n: int) -> float:
    """The entries of ξ_m ξ_nᵀ, the part that all members share."""
    return 1 / math.sqrt(m * n)


def aligned(a: Any) -> Any:
    """ξ_m ξ_nᵀ + C_m A C_n: A with its part along the ones replaced by that of a member."""
    return centre(a, ones_entry(*a.shape[-2:]))


def gram(a: Any) -> Any:
    """AAᵀ (m ≤ n) or AᵀA (m > n): the smaller one, which is the identity for a member."""
    return a @ a.mT if a.shape[-2] <= a.shape[-1] else a.mT @ a


def scaled(a: Any, s: Any) -> Any:
    """SA (m ≤ n) or AS (m > n), for a symmetric S of the size of the Gram matrix."""
    return s @ a if a.shape[-2] <= a.shape[-1] else a @ s


def tangent(w: Any, a: Any) -> Any:
    """The nearest tangent vector at the member W to the centred A: A - W sym(WᵀA), or A - sym(AWᵀ)W if m ≤ n."""
    wide = w.shape[-2] <= w.shape[-1]
    s = a @ w.mT if wide else w.mT @ a
    s = s + s.mT
    if _is_torch(a) and a.ndim == 3:  # in one pass
        return a.baddbmm(s, w, alpha=-0.5) if wide else a.baddbmm(w, s, alpha=-0.5)
    return a - 0.5 * scaled(w, s)


# Note [two steps]
#     For a tangent T the Gram matrix of A = W - ηT is I + η²TᵀT, so no singular value of A is below 1, and with
#     r = ‖η²TᵀT‖_F = ‖ηT‖₄² none is above β = √(1+r). Of all cubics σ(a - cσ²) the one with equal values at 1 and β,
#     and 1 halfway between these and its maximum, is closest to 1 on [1, β]. At r = 0.16 it leaves 1 ± 1.1e-3; the
#     usual Newton–Schulz step then leaves 1 - 1.7e-6, and computes its Gram matrix afresh, so that rounding does not
#     add up. Since r comes with the Gram matrix, every matrix has its own coefficients, and the host needs no value.
def retract(w: Any, direction: Any, rate: Any = 1.0) -> Any:
    """The member nearest to W - rate · direction, a tangent vector, which is shortened to `LARGEST_TURN` if longer.

    A `w` that is near the set but not on it is pulled back: a small error is squared, a large one shrinks each time.
    """
    x = gram(w - rate * direction)
    # ‖X - I‖² without an identity; what cancels costs little of r, which need not be exact.
    r = (_squares(x) - 2 * _trace(x) + x.shape[-1]).clip(min=1e-12) ** 0.5
    shorter = (LARGEST_TURN**2 / r).clip(max=1)  # the factor squared
    beta = (1 + r * shorter) ** 0.5
    middle = beta * beta + beta
    c = 2 / (middle + 2 * ((middle + 1) / 3) ** 1.5)
    a = c * (middle + 1)
    # The Gram matrix of the shortened step is I + f²(X - I), with f² = `shorter`.
    moved = w - (rate * shorter**0.5) * direction
    return aligned(newton_schulz(scaled(moved, _polynomial(a - c * (1 - shorter), -c * shorter, x))))


def newton_schulz(a: Any) -> Any:
    """σ ↦ σ(3 - σ²)/2 on the singular values of A, which are first scaled down where one may be above √1.5."""
    x = gram(a)
    size = x.shape[-1]
    mean, square = _trace(x) / size, _squares(x) / size
    # No eigenvalue of X is above its mean plus √(size - 1) times its standard deviation.
    highest = mean + (size - 1) ** 0.5 * (square - mean * mean).clip(min=0) ** 0.5
    down = (SAFE / highest.clip(min=1e-30)).clip(max=1)
    return scaled(a, _polynomial(1.5 * down**0.5, -0.5 * down**1.5, x))


def orthogonalized(a: Any) -> Any:
    """About the polar factor of A, as Muon takes it: singular values go to 0.7 … 1.2; what is centred stays so."""
    first, second, third = MUON
    a = a / (_squares(a) ** 0.5).clip(min=1e-30)
    for _ in range(MUON_STEPS):
        x = gram(a)
        a = first * a + scaled(a, second * x + third * (x @ x))
    return a


def _is_torch(a: Any) -> bool:
    return hasattr(a, "baddbmm")


def _squares(a: Any) -> Any:
    """‖A‖_F², of shape (…, 1, 1)."""
    if _is_torch(a):  # in one pass
        return a.norm(dim=(-2, -1), keepdim=True) ** 2
    return (a * a).sum(axis=(-2, -1), keepdims=True)


def _trace(x: Any) -> Any:
    """The trace, of shape (…, 1, 1)."""
    diagonal = x.diagonal(0, -2, -1)
    return diagonal.sum(axis=-1, keepdims=True)[..., None]


def _polynomial(constant: Any, factor: Any, x: Any) -> Any:
    """constant · I + factor · X."""
    y = factor * x
    if _is_torch(x):
        y.diagonal(0, -2, -1).add_(constant[..., 0])
        return y
    return y + constant * x.__array_namespace__().eye(x.shape[-1], dtype=x.dtype)


def _like(w: Any, value: Any) -> Any:
    """The value in the precision of w."""
    if isinstance(value, float):
        return value
    return value.to(w.dtype) if _is_torch(value) else value.astype(w.dtype)


def _blend(old: Any, new: Any, weight: float) -> Any:
    """(1 - weight) · old + weight · new."""
    return old.lerp(new, weight) if _is_torch(old) else old + weight * (new - old)


def adam_step(
    w: Any,
    gradient: Any,
    first: Any,
    second: Any,
    step: Any,
    rate: Any,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Any, Any, Any]:
    """One step of Adam on the set.

    The first moment is a tangent vector: projecting β₁·first + (1-β₁)·gradient to the tangent space of W makes the
    gradient Riemannian and transports the moment at once. The quotient of the moments is neither centred nor tangent,
    so it is centred and projected too.

    Args:
        w: Members of shape (…, m, n).
        gradient: Of the loss with respect to w.
        first: First moment, zeros at the start.
        second: Second moment, zeros at the start.
        step: The number of this step, from 1 on; a number, or an array that broadcasts against w, in float64 if it can
            be, since 1 - β₂ᵗ cancels.
        rate: Learning rate; likewise.
        betas: Decay of the two moments.
        eps: Added to the root of the second moment.

    Returns:
        The next w, first and second.
    """
    b1, b2 = betas
    gradient = centre(gradient)
    first = tangent(w, _blend(first, gradient, 1 - b1))
    second = _blend(second, gradient * gradient, 1 - b2)
    # first/(1-β₁ᵗ) / (√(second/(1-β₂ᵗ)) + ε), its factors that are the same for all entries left to the rate
    root, start = _like(w, (1 - b2**step) ** 0.5), _like(w, 1 - b1**step)
    divisor = second**0.5
    divisor += eps * root
    direction = tangent(w, centre(first / divisor))
    return retract(w, direction, rate * root / start), first, second


def sgd_step(
    w: Any, gradient: Any, momentum: Any, rate: Any, *, decay: float = 0.0, nesterov: bool = False
) -> tuple[Any, Any]:
    """One step of gradient descent with momentum on the set; arguments as of `adam_step`.

    `momentum`, zeros at the start, is a tangent vector; `decay` is what is left of it after a step.

    Returns:
        The next w and momentum.
    """
    gradient = centre(gradient)
    momentum = tangent(w, decay * momentum + gradient)
    direction = tangent(w, gradient) + decay * momentum if nesterov else momentum
    return retract(w, direction, rate), momentum


def muon_step(
    w: Any, gradient: Any, momentum: Any, rate: Any, *, decay: float = 0.95, nesterov: bool = True
) -> tuple[Any, Any]:
    """One step of Muon on the set: all singular values of the momentum are made about 1; arguments as of `sgd_step`.

    Returns:
        The next w and momentum.
    """
    gradient = centre(gradient)
    momentum = tangent(w, decay * momentum + gradient)
    direction = gradient + decay * momentum if nesterov else momentum
    # The polynomial is odd, so that what is centred stays centred; but not what is tangent.
    return retract(w, tangent(w, orthogonalized(direction)), rate), momentum


def nearest(a: Any, svd: Any) -> tuple[Any, Any]:
    """argmin over W in Õ(m,n) of ‖A - W‖_F = ξ_m ξ_nᵀ + the polar factor of C_m A C_n, by the singular values.

    Args:
        a: Of shape (…, m, n), not empty.
        svd: `linalg.svd` of the array's library.

    Returns:
        The members; and the condition σ_min/σ_max of C_m A C_n on the complements of the ones, of shape (…), or 1 where
        these have no dimension. At 0 the nearest member is not unique.
    """
    m, n = a.shape[-2:]
    size = min(m, n) - 1  # the last singular value belongs to the ones
    u, s, v = svd(centre(a), full_matrices=False)
    if size == 0:
        return aligned(0 * a), 1 + 0 * s[..., 0]
    # A ratio that is 0/0 (all entries equal) counts as 0, one with a NaN stays NaN.
    condition = s[..., size - 1] / (s[..., 0] + (s[..., 0] == 0))
    return aligned(u[..., :size] @ v[..., :size, :]), condition
