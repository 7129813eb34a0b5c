"""The geometry of Õ(m,n) that training on it needs, for arrays of shape (…, m, n) of NumPy, PyTorch and JAX alike.

Nothing branches on values and no argument is written to, so every function here can be traced, compiled, and captured
in a CUDA graph. `docs/on-the-set.md` has the proofs.
"""

from __future__ import annotations

import math
from typing import Any

LARGEST_TURN = 0.4
"""A step is shortened so that no singular value of it is above this: it turns no direction by more than 23°."""
SHORT = 0.0125
"""Squared turn up to which a polynomial of one degree less will do; see `rotation`."""
SAFE = 1.5  # the squared singular value up to which a cubic Newton–Schulz step surely contracts (it does so below 3)
BLOCK, BLOCKED = 256, 512  # rows of a (skew-)symmetric product computed at once, and the size from which on it is
MUON = (3.4445, -4.7750, 2.0315)  # Jordan's quintic: steep at 0; leads singular values to about 0.7 … 1.2
MUON_STEPS = 5
SKEW = 0.5**0.5  # (E - Eᵀ)·√½ is of norm 1 for a matrix E with a single 1, off the diagonal


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
    a = a if a.shape[-2] <= a.shape[-1] else a.mT
    return mirrored(a, a.mT)


def mirrored(a: Any, b: Any, sign: int = 1) -> Any:
    """AB where it is known to be symmetric (`sign` = 1) or skew (-1): about half of a large one is computed."""
    size = a.shape[-2]
    if not _is_stack(a) or size < BLOCKED:
        return a @ b
    out = a.new_empty(a.shape[0], size, size)
    for low in range(0, size, BLOCK):
        high = min(low + BLOCK, size)
        out[:, low:high, :high] = a[:, low:high] @ b[..., :high]
        upper = out[:, :low, low:high].copy_(out[:, low:high, :low].mT)
        if sign < 0:
            upper.neg_()
    return out


def scaled(a: Any, s: Any) -> Any:
    """SA (m ≤ n) or AS (m > n), for a symmetric S of the size of the Gram matrix."""
    return s @ a if a.shape[-2] <= a.shape[-1] else a @ s


def tangent(w: Any, a: Any) -> Any:
    """The nearest tangent vector at the member W to the centred A: A - W sym(WᵀA), or A - sym(AWᵀ)W if m ≤ n."""
    wide = w.shape[-2] <= w.shape[-1]
    s = a @ w.mT if wide else w.mT @ a
    s = s + s.mT
    if _is_stack(a):  # in one pass
        return a.baddbmm(s, w, alpha=-0.5) if wide else a.baddbmm(w, s, alpha=-0.5)
    return a - 0.5 * scaled(w, s)


def generator(w: Any, a: Any, *, ones: bool = True) -> Any:
    """The centred skew K for which KW is the nearest tangent vector to A at the square member W: one product.

    Without `ones`, K is not centred: W is on the Stiefel manifold, and need not stay in the set.
    """
    p = 0.5 * (a @ w.mT) if not _is_stack(a) else a.baddbmm(a, w.mT, beta=0, alpha=0.5)
    if ones:  # C(P - Pᵀ)C = Q - Qᵀ with Q = P less the row means of P - Pᵀ
        p -= p.mean(axis=-1, keepdims=True) - p.mean(axis=-2, keepdims=True).mT
    return p - p.mT


def centred_skew(k: Any) -> Any:
    """C K C of a skew K: one mean serves rows and columns."""
    mean = k.mean(axis=-1, keepdims=True)
    k = k - mean
    k += mean.mT
    return k


# Note [one product]
#     Square: every tangent vector is KW with a centred skew K. A polynomial R of Z = -ηK that is nearly orthogonal
#     moves W by one product, RW. So that rounding does not add up, N = (I - WWᵀ)/2 is added to R: the correction of a
#     Newton–Schulz step. ZZᵀ, WWᵀ and (R + N)W are all the products there are, the first two symmetric; and for turns
#     that are not short ZZᵀ·Z, which is skew.
#     Rectangular: T may lead out of the span of W. The Gram matrix of W + T is I + TTᵀ, so its polar factor is
#     p(TTᵀ)(W + T) with p(y) near (1 + y)^-½. N is added to p.
def rotate(w: Any, z: Any, *, ones: bool = True) -> Any:
    """Turn the square member W by the centred skew Z, or in its direction by `LARGEST_TURN` if it is further.

    A `w` that is near the set but not on it is pulled back: a small error is squared, a large one shrinks each time.
    Without `ones`, W is any orthogonal matrix and Z any skew one.
    """
    y = mirrored(z, z.mT)  # = -Z²
    a, b, c, d, shorter = rotation(*_spectrum(y), y.shape[-1])
    turn = mirrored(_combined((b, None), (-d * shorter, y)), z, -1) if _any(d) else b * z
    x = gram(w)
    one, factor = correction(*_spectrum(x), x.shape[-1])
    factors = _combined((a + one, None), (-c * shorter, y), (factor, x), (shorter**0.5, turn))
    return aligned(factors @ w) if ones else factors @ w


def rotation(mean: Any, norm: Any, size: int, short: float = SHORT) -> tuple[Any, Any, Any, Any, Any]:
    """a, b, c, d of R = aI - cY + (b - dY)Z, where Z is skew and Y = -Z² has this mean eigenvalue, norm and size.

    RᵀR is g(Y) with g(y) = (a - cy)² + y(b - dy)². Let no eigenvalue of Y be above h. The coefficients make g - 1 a
    Chebyshev polynomial on [0, h], of degree 2 (d = 0, where h ≤ `short`) or 3: |g - 1| ≤ h²/32 or h³/2048. The last
    result is what Y is to be multiplied with for a turn that is not too far; the coefficients are those of that turn.
    """
    # The eigenvalues come in pairs, so that none is above the mean plus √(size/2 - 1) times the standard deviation.
    h = mean + (max(size, 2) / 2 - 1) ** 0.5 * (norm * norm / size - mean * mean).clip(min=0) ** 0.5
    shorter = (LARGEST_TURN**2 / h.clip(min=1e-12)).clip(max=1)
    h = h * shorter
    low = 0 * h + (h <= short)
    high = 1 - low
    root = (1 + h * h / 32) ** 0.5
    a = low * root + high * (1 - h**3 / 2048) ** 0.5
    b = low * (root - h / 4) ** 0.5 + high * (1 - h / 32 + h * h / 256)
    return a, b, 0.5 - high * h / 32, high / 8, shorter


def slide(w: Any, t: Any, *, ones: bool = True) -> Any:
    """The member nearest to W + T for a tangent T, which is shortened to `LARGEST_TURN` if longer; for any shape.

    As `rotate`, it pulls `w` back to the set; without `ones`, to the Stiefel manifold.
    """
    if w.shape[-2] > w.shape[-1]:
        return slide(w.mT, t.mT, ones=ones).mT
    y = gram(t)
    far = _norm(y)
    shorter = (LARGEST_TURN**2 / far.clip(min=1e-12)).clip(max=1)
    # (1 + y)^-½ by its Taylor series at the middle of [0, far], in e = (y - middle)/(1 + middle); the term with e⁴ is
    # replaced by the quadratic nearest to it.
    middle = 0.5 * far * shorter
    unit = 1 / (1 + middle)
    edge = (middle * unit) ** 2
    e = _combined((-middle * unit, None), (shorter * unit, y))
    series = mirrored(_combined((3 / 8 + 35 / 128 * edge, None), (0 * edge - 5 / 16, e)), e)
    series = mirrored(_combined((0 * edge - 0.5, None), (0 * edge + 1, series)), e)
    x = gram(w)
    one, factor = correction(*_spectrum(x), x.shape[-1])
    scale = unit**0.5
    factors = _combined((scale * (1 - 35 / 1024 * edge**2) + one, None), (scale, series), (factor, x))
    moved = factors @ (w + shorter**0.5 * t)
    return aligned(moved) if ones else moved


def correction(mean: Any, norm: Any, size: int) -> tuple[Any, Any]:
    """N of A ↦ A + NA as N = one·I + factor·X: the Newton–Schulz step σ ↦ σ(3 - σ²)/2, where X is the Gram matrix of A.

    Of X are given the mean of its eigenvalues, its norm and its size. Where a singular value of A may be above √1.5,
    all are first scaled down.
    """
    # No eigenvalue of X is above the mean plus √(size - 1) times the standard deviation.
    highest = mean + (size - 1) ** 0.5 * (norm * norm / size - mean * mean).clip(min=0) ** 0.5
    down = (SAFE / highest.clip(min=1e-30)).clip(max=1)
    return 1.5 * down**0.5 - 1, -0.5 * down**1.5


def orthogonalized(a: Any) -> Any:
    """About the polar factor of A, as Muon takes it: singular values go to 0.7 … 1.2; centred and skew ones stay so."""
    first, second, third = MUON
    a = a / _norm(a).clip(min=1e-30)
    for _ in range(MUON_STEPS):
        x = gram(a)
        if _is_stack(a) and x.shape[-1] < BLOCKED:  # without passes beside the products
            factors = x.baddbmm(x, x, beta=second, alpha=third)
            a = a.baddbmm(*((factors, a) if a.shape[-2] <= a.shape[-1] else (a, factors)), beta=first)
        else:
            a = first * a + scaled(a, second * x + third * mirrored(x, x))
    return a


def _is_torch(a: Any) -> bool:
    return hasattr(a, "baddbmm")


def _is_stack(a: Any) -> bool:
    """Whether torch's products with a factor or a summand can be used."""
    return _is_torch(a) and a.ndim == 3


def _norm(a: Any) -> Any:
    """‖A‖_F, of shape (…, 1, 1)."""
    if _is_torch(a):  # in one pass
        return a.norm(dim=(-2, -1), keepdim=True)
    return (a * a).sum(axis=(-2, -1), keepdims=True) ** 0.5


def _spectrum(x: Any) -> tuple[Any, Any]:
    """The mean of the eigenvalues of a symmetric X and its norm √(Σλ²), of shape (…, 1, 1)."""
    diagonal = x.diagonal(0, -2, -1)
    return diagonal.mean(axis=-1, keepdims=True)[..., None], _norm(x)


def _any(factor: Any) -> bool:
    """Whether some factor may not be 0; where looking would stop a device, they are taken not to be."""
    if _is_torch(factor):
        return factor.device.type != "cpu" or bool(factor.any())
    return not hasattr(factor, "ctypes") or bool(factor.any())


def _combined(*terms: tuple[Any, Any]) -> Any:
    """Σ factor · X over pairs of a factor of shape (…, 1, 1) and a matrix X; in the first pair X is None, for I."""
    (constant, _), (factor, x), *rest = terms
    total = factor * x
    if not _is_torch(x):
        total = total + constant * x.__array_namespace__().eye(x.shape[-1], dtype=x.dtype)
        return sum((factor * x for factor, x in rest), total)
    for factor, x in rest:
        total.addcmul_(x, factor)
    total.diagonal(0, -2, -1).add_(constant[..., 0])
    return total


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
    ones: bool = True,
) -> tuple[Any, Any, Any]:
    """One step of Adam on the set.

    Square: the moments are those of the generator of the Riemannian gradient, in orthonormal coordinates of the skew
    matrices (√2 times the entries on one side of the diagonal), and need no transport. Rectangular: the first moment is
    a tangent vector, as projecting β₁·first + (1-β₁)·gradient makes the gradient Riemannian and transports the moment
    at once; the second is that of the centred gradient. The quotient is centred, and projected again.

    `w` holds members of shape (…, m, n); both moments are zeros before the first step. `step`, from 1 on, and the
    learning rate are numbers, or arrays that broadcast against w, in float64 if they can be, since 1 - β₂ᵗ cancels.
    Without `ones`, w stays on the Stiefel manifold, where it must be, instead of in the set. Returns the next w, first
    and second.
    """
    b1, b2 = betas
    square = w.shape[-2] == w.shape[-1]
    gradient = generator(w, gradient, ones=ones) if square else centre(gradient) if ones else gradient
    first = _blend(first, gradient, 1 - b1)
    first = first if square else tangent(w, first)
    second = _blend(second, gradient * gradient, 1 - b2)
    # first/(1-β₁ᵗ) / (√(second/(1-β₂ᵗ)) + ε), its factors that are the same for all entries left to the rate
    root, start = _like(w, (1 - b2**step) ** 0.5), _like(w, 1 - b1**step)
    divisor = second**0.5
    divisor += eps * (SKEW if square else 1.0) * root
    quotient = first / divisor * (-rate * root / start)
    if square:
        turn = SKEW * quotient
        return rotate(w, centred_skew(turn) if ones else turn, ones=ones), first, second
    return slide(w, tangent(w, centre(quotient) if ones else quotient), ones=ones), first, second


def sgd_step(
    w: Any, gradient: Any, momentum: Any, rate: Any, *, decay: float = 0.0, nesterov: bool = False
) -> tuple[Any, Any]:
    """One step of gradient descent with momentum on the set; arguments as of `adam_step`.

    `momentum`, zeros at the start, is a generator (square) or a tangent vector; `decay` is what is left of it after a
    step. Returns the next w and momentum.
    """
    return _momentum_step(w, gradient, momentum, rate, decay, nesterov, muon=False)


def muon_step(
    w: Any, gradient: Any, momentum: Any, rate: Any, *, decay: float = 0.95, nesterov: bool = True
) -> tuple[Any, Any]:
    """One step of Muon on the set, all singular values of the momentum made about 1; otherwise as `sgd_step`."""
    return _momentum_step(w, gradient, momentum, rate, decay, nesterov, muon=True)


def _momentum_step(
    w: Any, gradient: Any, momentum: Any, rate: Any, decay: float, nesterov: bool, *, muon: bool
) -> tuple[Any, Any]:
    square = w.shape[-2] == w.shape[-1]
    gradient = generator(w, gradient) if square else centre(gradient)
    momentum = decay * momentum + gradient
    momentum = momentum if square else tangent(w, momentum)
    direction = gradient + decay * momentum if nesterov else momentum
    if muon:  # an odd polynomial: what is centred stays so, but for rounding, which may be all there is
        direction = orthogonalized(direction)
    if square:
        return rotate(w, centred_skew(-rate * direction) if muon else -rate * direction), momentum
    return slide(w, -rate * (tangent(w, direction) if muon or nesterov else direction)), momentum


def nearest(a: Any, svd: Any) -> tuple[Any, Any]:
    """argmin over W in Õ(m,n) of ‖A - W‖_F = ξ_m ξ_nᵀ + the polar factor of C_m A C_n, by the singular values.

    `a` is of shape (…, m, n), not empty; `svd` is `linalg.svd` of its library. Returns the members; and the condition
    σ_min/σ_max of C_m A C_n on the complements of the ones, of shape (…), or 1 where these have no dimension. At 0 the
    nearest member is not unique.
    """
    m, n = a.shape[-2:]
    size = min(m, n) - 1  # the last singular value belongs to the ones
    u, s, v = svd(centre(a), full_matrices=False)
    if size == 0:
        return aligned(0 * a), 1 + 0 * s[..., 0]
    # A ratio that is 0/0 (all entries equal) counts as 0, one with a NaN stays NaN.
    condition = s[..., size - 1] / (s[..., 0] + (s[..., 0] == 0))
    return aligned(u[..., :size] @ v[..., :size, :]), condition
