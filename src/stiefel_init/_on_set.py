"""The geometry of Õ(m,n) that training on it needs, for arrays of shape (…, m, n) of NumPy, PyTorch and JAX alike.

Only operators and methods that the three share are used, nothing branches on values, and nothing is written in place;
so every function here can be traced, compiled, and captured in a CUDA graph. `docs/on-the-set.md` has the proofs.
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


def centre(a: Any) -> Any:
    """C_m A C_n with C = I - ξξᵀ: A with the means of its rows and of its columns removed."""
    a = a - a.mean(axis=-1, keepdims=True)
    return a - a.mean(axis=-2, keepdims=True)


def ones_entry(m: int, n: int) -> float:
    """The entries of ξ_m ξ_nᵀ, the part that all members share."""
    return 1 / math.sqrt(m * n)


def gram(a: Any) -> Any:
    """AAᵀ (m ≤ n) or AᵀA (m > n): the smaller one, which is the identity for a member."""
    return a @ a.mT if a.shape[-2] <= a.shape[-1] else a.mT @ a


def scaled(a: Any, s: Any) -> Any:
    """SA (m ≤ n) or AS (m > n), for a symmetric S of the size of the Gram matrix."""
    return s @ a if a.shape[-2] <= a.shape[-1] else a @ s


def tangent(w: Any, a: Any) -> Any:
    """The nearest tangent vector at the member W to the centred A: A - W sym(WᵀA), or A - sym(AWᵀ)W if m ≤ n."""
    s = a @ w.mT if w.shape[-2] <= w.shape[-1] else w.mT @ a
    return a - scaled(w, 0.5 * (s + s.mT))


def _total(a: Any) -> Any:
    return a.sum(axis=(-2, -1), keepdims=True)


# Note [two steps]
#     For a tangent T the Gram matrix of A = W - ηT is I + η²TᵀT, so no singular value of A is below 1, and with
#     r = ‖η²TᵀT‖_F = ‖ηT‖₄² none is above β = √(1+r). Of all cubics σ(a - cσ²) the one with equal values at 1 and β, and
#     1 halfway between these and its maximum, is closest to 1 on [1, β]. At r = 0.16 it leaves 1 ± 1.1e-3; the usual
#     Newton–Schulz step then leaves 1 - 1.7e-6, and computes its Gram matrix afresh, so that rounding does not add up.
#     Since r comes with the Gram matrix, the coefficients belong to each matrix and no value is needed on the host.
def retract(w: Any, step: Any) -> Any:
    """The member nearest to W - step for a tangent step; longer steps than `LARGEST_TURN` are shortened to it.

    A `w` that is near the set but not on it is pulled back: a small error is squared, a large one shrinks each time.
    """
    m, n = w.shape[-2:]
    size = min(m, n)
    moved = w - step
    x = gram(moved)
    # ‖X - I‖² without an identity; what cancels costs less than 1e-3 of r, which need not be exact.
    r = (_total(x * x) - 2 * _total(moved * moved) + size).clip(min=1e-12) ** 0.5
    shorter = (LARGEST_TURN**2 / r).clip(max=1)  # the factor squared
    beta = (1 + r * shorter) ** 0.5
    middle = beta * beta + beta
    c = 2 / (middle + 2 * ((middle + 1) / 3) ** 1.5)
    a = c * (middle + 1)
    # With the factor f = √shorter, the moved matrix is W - f·step and its Gram matrix I + f²(X - I).
    moved = w - step * shorter**0.5
    moved = (a - c * (1 - shorter)) * moved - scaled(moved, (c * shorter) * x)
    return aligned(newton_schulz(moved))


def newton_schulz(a: Any) -> Any:
    """σ ↦ σ(3 - σ²)/2 on the singular values of A, which are first scaled down where one may be above √1.5."""
    x = gram(a)
    size = x.shape[-1]
    mean, square = _total(a * a) / size, _total(x * x) / size
    # No eigenvalue of X is above its mean plus √(size - 1) times its standard deviation.
    highest = mean + (size - 1) ** 0.5 * (square - mean * mean).clip(min=0) ** 0.5
    down = (SAFE / highest.clip(min=1e-30)).clip(max=1)
    return 1.5 * down**0.5 * a - scaled(a, (0.5 * down**1.5) * x)


def aligned(a: Any) -> Any:
    """ξ_m ξ_nᵀ + C_m A C_n: A with its part along the ones replaced by that of a member."""
    return centre(a) + ones_entry(*a.shape[-2:])


def orthogonalized(a: Any) -> Any:
    """About the polar factor of A, as Muon takes it: singular values go to 0.7 … 1.2, those of 0 stay. Keeps centring."""
    first, second, third = MUON
    norm = _total(a * a) ** 0.5
    a = a / norm.clip(min=1e-30)
    for _ in range(MUON_STEPS):
        x = gram(a)
        a = first * a + scaled(a, second * x + third * (x @ x))
    return a


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
    gradient Riemannian and transports the moment at once. The quotient of the moments is neither centred nor tangent, so
    it is centred and projected too.

    Args:
        w: Members of shape (…, m, n).
        gradient: Of the loss with respect to w.
        first: First moment, zeros at the start.
        second: Second moment, zeros at the start.
        step: The number of this step, from 1 on; a number, or an array that broadcasts against w.
        rate: Learning rate; likewise.
        betas: Decay of the two moments.
        eps: Added to the root of the second moment.

    Returns:
        The next w, first and second.
    """
    b1, b2 = betas
    gradient = centre(gradient)
    first = tangent(w, b1 * first + (1 - b1) * gradient)
    second = b2 * second + (1 - b2) * (gradient * gradient)
    quotient = first / ((second / (1 - b2**step)) ** 0.5 + eps)
    direction = tangent(w, centre(quotient))
    return retract(w, (rate / (1 - b1**step)) * direction), first, second


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
    return retract(w, rate * direction), momentum


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
    return retract(w, rate * tangent(w, orthogonalized(direction))), momentum


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
