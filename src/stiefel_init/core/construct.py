r"""The mathematics of Õ(m,n), written once over array namespaces.

`xp` is `numpy`, `torch` or `jax.numpy`. With p = min(m,n) and q = max(m,n) a member is built as
its p × q form and transposed when m > n, so everything below has p rows and q columns.

Note [a member from reflectors]
    Let x_1 = (1,…,1) ∈ R^q and let x_j ∈ R^{q-j+1}, j = 2…p, be standard Gaussian vectors.
    In the Householder QR factorization of [ξ_q | Gaussian matrix] the j-th reflector is that of a
    fresh Gaussian vector (Stewart 1980), so the factorization need not be computed: with H_j the
    reflection that sends x_j (padded by j-1 zeros) to ∓‖x_j‖ e_j and s_j = sign of x_j's first entry,

        Q = H_1 H_2 ⋯ H_p [I_p; 0]     has     -s_1 Q e_1 = ξ_q,

    and the columns -s_j Q e_j, j ≥ 2, are a Haar frame of the complement of ξ_q. The signs matter:
    without them the first entry of every column has a fixed sign and the distribution is not Haar.
    Then, with u = e_1 + ξ_p and S = diag(s_1 … s_p),

        W = (I - 2uuᵀ/uᵀu) S Qᵀ

    has W ξ_q = ξ_p, because I - 2uuᵀ/uᵀu swaps e_1 and -ξ_p. Both fixed reflections add two unit
    vectors instead of subtracting them, so nothing cancels, and p = 1 and q = 1 need no exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from . import validate
from .errors import StiefelError

Array = Any

# A Gaussian generator may return an exact zero, and a vector of zeros has no reflector. Drawing
# with this mean instead of 0 shifts no other float32 or float64 value.
NEVER_ZERO = 1e-18


def _diagonal(xp: Any, x: Array) -> Array:
    return xp.diagonal(x, 0, -2, -1)


def signed_norm(xp: Any, x: Array, length: Array) -> Array:
    """±‖x‖ for the rows of the upper trapezoidal `x`, whose lengths are given, with the signs of their first entries.

    v = x + (signed norm) e_j spans the reflection I - vvᵀ/(norm · v_j), and nothing cancels in it.
    """
    return xp.copysign(length, _diagonal(xp, x))


@lru_cache(maxsize=4)
def left_reflection(p: int, dtype: str) -> np.ndarray:
    """I - 2uuᵀ/uᵀu for u = e_1 + ξ_p. Cached, as layer shapes repeat: do not write to it."""
    u = reflected_axis(p)
    return (np.eye(p) - u * u.T / (1 + 1 / math.sqrt(p))).astype(dtype)


class Ops(Protocol):
    """What `frame` needs of an array library, beyond arithmetic. Arrays may be changed in place."""

    xp: Any

    def eye(self, p: int, q: int) -> Array: ...
    def row_norms(self, x: Array) -> Array: ...
    def add_diagonal(self, x: Array, value: Array) -> Array: ...
    def set_diagonal(self, x: Array, value: Array) -> Array: ...
    def solve_right(self, lower: Array, b: Array) -> Array: ...
    def subtract_product(self, qt: Array, start: int, b: Array, v: Array) -> Array: ...


def frame(ops: Ops, draw: Callable[[int, int], Array], p: int, q: int, block: int) -> tuple[Array, Array]:
    """(Qᵀ, signs) of Note [a member from reflectors], by blocks of the compact WY form.

    `draw(start, stop)` gives rows start…stop-1 of the reflected vectors, from column `start` on, as
    an upper trapezoid. With its reflectors as the rows of V, a block is I - VᵀTV where T⁻¹ is the
    upper triangle of VVᵀ with its diagonal halved: two products and a triangular solve, no loop over
    columns. Blocks are applied last first, while the rows above are still those of the identity.
    """
    qt = ops.eye(p, q)
    signs: list[Array] = []
    for start in reversed(range(0, p, block)):
        stop = min(start + block, p)
        width = stop - start
        x = draw(start, stop)
        norm = signed_norm(ops.xp, x, ops.row_norms(x))
        v = ops.add_diagonal(x, norm)
        lower = ops.set_diagonal(v @ v.mT, norm * _diagonal(ops.xp, v))
        b = v[..., :width].mT
        if stop < p:
            b = ops.xp.concatenate((b, qt[..., stop:, stop:] @ v[..., width:].mT), -2)
        b = ops.solve_right(lower, b)
        qt = ops.subtract_product(qt, start, b, v)
        signs.insert(0, ops.xp.sign(norm))
    return qt, signs[0] if len(signs) == 1 else ops.xp.concatenate(signs, -1)


class Arrays:
    """What small rotations need of an array library, here of NumPy; the first array given may be changed in place."""

    xp: Any = np
    striped = 512
    """From this many rows on, of a product half of which is known, about half is computed."""

    def memory(self, use: str, like: Array) -> Array:
        """An array of that shape, to be written to; of one use there is one at a time."""
        return self.xp.empty_like(like)

    def bordered_skew(self, a: Array) -> Array:
        """diag(0, a - aᵀ)."""
        size = a.shape[-1] + 1
        out = np.zeros((len(a), size, size), a.dtype)
        np.subtract(a, a.mT, out=out[:, 1:, 1:])
        return out

    def scaled(self, a: Array, factor: float, use: str) -> Array:
        """factor · a, in other memory."""
        return self.xp.multiply(a, factor, out=self.memory(use, a))

    def add(self, a: Array, b: Array, factor: float) -> Array:
        """a + factor · b."""
        a += factor * b
        return a

    def mirrored(self, a: Array, b: Array, use: str, sign: int = 1) -> Array:
        """ab, known to be symmetric (`sign` = 1) or skew-symmetric (-1), in other memory."""
        size, out = a.shape[-1], self.memory(use, a)
        if size < self.striped:
            return self.xp.matmul(a, b, out=out)
        for start in range(0, size, STRIP):
            strip, across = slice(start, start + STRIP), slice(0, start + STRIP)
            for whole, left, right in zip(out, a, b):
                self.xp.matmul(left[strip], right[:, across], out=whole[strip, across])
            out[:, :start, strip] = (sign * out[:, strip, :start]).mT  # by way of memory in order, which is faster
        return out

    def add_identity(self, a: Array, factor: float = 1.0) -> Array:
        """a + factor · I."""
        diagonal = np.einsum("...ii->...i", a)
        diagonal += factor
        return a


NUMPY = Arrays()
STRIP = 128


def reflected_axis(p: int) -> np.ndarray:
    """e_1 + ξ_p, as a column."""
    u = np.full((p, 1), 1 / math.sqrt(p))
    u[0] += 1
    return u


def small_rotations(arrays: Arrays, numbers: Array, u: Array, spread: float, eps: float) -> Array:
    """H diag(1, exp(A - Aᵀ)) H, A being (p-1) × (p-1) `numbers` times spread/√(2p); H reflects `u`, e_1 + ξ_p."""
    p = len(u)
    root = 1 / math.sqrt(p)
    # With B = diag(0, A - Aᵀ), c = 2/uᵀu and r = cBu, HBH = B + urᵀ - ruᵀ.
    b = arrays.bordered_skew(numbers)
    r, u = b.sum(-1)[..., None] * (root / (1 + root)), u[None]
    b += u * r.mT
    b -= r * u.mT
    b *= spread * math.sqrt(0.5) * root
    # √p/spread times it has a norm of about 2√p, varying by p^-⅙; 6 times that more has a probability of exp(-18).
    z = expm1_skew(b, spread * (2 + 6 * p ** (-2 / 3)), eps, arrays)
    z -= z.mean(-1)[..., None]  # what is missed along the ones
    return arrays.add_identity(z)


def expm1_skew(a: Array, norm: float, eps: float, arrays: Arrays = NUMPY) -> Array:
    r"""exp(a) - I of skew-symmetric matrices whose spectral norms are at most `norm`, orthogonal up to rounding.

    A polynomial that meets the exponential on [-norm, norm]. Of a norm above 2.4, that of a/2ᵏ, squared k times as
    (I + Z)² - I = 2Z + Z², so that nothing is lost beside the identity; what squaring adds to the defect
    D = (I + Z)ᵀ(I + Z) - I a Newton step takes off: Z - (I + Z)D/2. Where the bound `norm` is exceeded, digits are lost
    gradually; `eps` is the machine epsilon of `a`.
    """
    halvings = max(0, math.ceil(math.log2(norm / 2.4))) if norm else 0
    z = _polynomial(a * 0.5**halvings if halvings else a, norm * 0.5**halvings, eps, arrays)
    for _ in range(halvings):
        z = 2 * z + z @ z
    if halvings:
        defect = z + z.mT + z.mT @ z
        z = z - (defect + z @ defect) / 2
    return z


# Note [cosine and sine]
#     exp(a) = C + aF with C and F polynomials of S = aaᵀ = -a². So every product is of matrices that commute, and
#     symmetric or skew: about half of a large one is computed. With k powers of S, C lacks about 2(norm/2)ʲ/j! of the
#     cosine, j = 2k + 2, and F less of the sine. Where that is 2√p eps, RᵀR - I is 4√p eps in the worst direction,
#     and less in an entry: within Note [tolerance], whatever the directions, and far less where they are random.
_WAYS = (1, 1), (2, 2), (3, 3), (2, 4), (3, 6), (4, 8)
"""(powers of S computed, highest power), in 2, 3, 4, 5, 6 and 7 products; where the second is twice the first, the
highest computed one times a polynomial makes the others (Paterson, Stockmeyer 1973)."""


def _polynomial(a: Array, norm: float, eps: float, arrays: Arrays) -> Array:
    """Of the least degree that is exact to rounding; Note [cosine and sine]."""

    def lacks(k: int) -> float:
        return 2 * (norm / 2) ** (2 * k + 2) / math.factorial(2 * k + 2)

    allowed = 2 * math.sqrt(max(1, a.shape[-1])) * eps
    return _evaluated(a, *next((way for way in _WAYS if lacks(way[1]) <= allowed), _WAYS[-1]), norm, arrays)


def _evaluated(a: Array, computed: int, highest: int, norm: float, arrays: Arrays) -> Array:
    """C - I + aF of Note [cosine and sine]."""
    powers = [arrays.mirrored(a, a.mT, "S")]
    while len(powers) < computed:
        powers.append(arrays.mirrored(powers[-1], powers[0], f"S{len(powers)}"))

    def summed(use: str, constant: float, *c: float) -> Array:
        total = arrays.scaled(powers[0], c[0], use)
        for factor, power in zip(c[1:], powers[1:]):
            total = arrays.add(total, power, factor)
        return arrays.add_identity(total, constant) if constant else total

    def series(use: str, c: list[float]) -> Array:
        total = summed(use, *c[: computed + (highest == computed)])
        if highest > computed:
            factor = summed("factor", *c[computed:])
            total = arrays.add(total, arrays.mirrored(powers[-1], factor, "product"), 1.0)
        return total

    cosine, sine = map(series, ("cosine", "sine"), _meeting_exp(highest, norm))
    return arrays.add(cosine, arrays.mirrored(a, sine, "product", -1), 1.0)


@lru_cache
def _meeting_exp(k: int, norm: float) -> tuple[list[float], list[float]]:
    """c and f with Σ c_j t²ʲ = cos(t) - 1 and Σ f_j t²ʲ = sin(t)/t, j ≤ k, at Chebyshev's nodes t of [-norm, norm].

    By Chebyshev's polynomial of degree 2k + 2 the cosine is missed, whose mean over a semicircle is 0, as in a random
    skew matrix eigenvalues lie: so the diagonal misses next to nothing.
    """
    places = np.cos(np.pi * (np.arange(k + 1) + 0.5) / (2 * k + 2)) ** 2
    size = max(norm, 1e-5)
    t, powers, scale = size * np.sqrt(places), np.vander(places, increasing=True), size ** (-2.0 * np.arange(k + 1))
    cosine, sine = (scale * np.linalg.solve(powers, values) for values in (-2 * np.sin(t / 2) ** 2, np.sin(t) / t))
    return cosine.tolist(), sine.tolist()


def by_qr(
    xp: Any, method: str, normal: Callable[[int, int], Array], array: Callable[[np.ndarray], Array], m: int, n: int
) -> Array:
    """The paper's algorithms for m ≤ n: 1, W = U Vᵀ from two QR factorizations; or 2, W = L Q + ξ_m ξ_nᵀ from one."""

    def frame(k: int) -> Array:
        """m orthonormal columns, the first ξ_k."""
        gaussian = normal(k, m - 1)
        q, r = xp.linalg.qr(xp.concatenate((xp.ones_like(gaussian.sum(-1))[..., None], gaussian), -1))
        return q * xp.where(_diagonal(xp, r) < 0, -1, 1)[..., None, :]

    if method == "algorithm1":
        return frame(m) @ frame(n).mT
    q = frame(n)
    return array(cholesky_factor(m)) @ xp.concatenate((q[..., 1:], q[..., :1]), -1).mT + 1 / math.sqrt(m * n)


def complement(W: Any) -> np.ndarray:
    r"""W⊥: n-m orthonormal rows that complete the rows of W (m × n, m ≤ n) to a basis of Rⁿ.

    For W ∈ Õ(m,n) they are orthogonal to the all-ones direction: W⊥ ξ_n = 0 (Proposition 1).

    Args:
        W: A real matrix with m ≤ n, or a batch of them.

    Returns:
        An array of shape (…, n-m, n) in W's dtype.

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

    L_jj = √((m-j)/(m-j+1)),  L_ij = -1/√((m-j+1)(m-j)) for i > j,  and a last column of zeros; in float64.

    >>> cholesky_factor(2).round(4).tolist()
    [[0.7071, 0.0], [-0.7071, 0.0]]
    """
    rest = validate.size("m", m) - np.arange(1.0, m + 1)  # m - j for j = 1 … m
    with np.errstate(divide="ignore"):
        below = np.where(rest > 0, -1 / np.sqrt((rest + 1) * rest), 0)
    return np.tril(np.broadcast_to(below, (m, m)), -1) + np.diag(np.sqrt(rest / (rest + 1)))
