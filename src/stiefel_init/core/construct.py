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

    def bordered_skew(self, a: Array) -> Array:
        """diag(0, a - aᵀ)."""
        size = a.shape[-1] + 1
        out = np.zeros((len(a), size, size), a.dtype)
        np.subtract(a, a.mT, out=out[:, 1:, 1:])
        return out

    def gram(self, a: Array) -> Array:
        """aaᵀ."""
        return a @ a.mT

    def plus(self, a: Array, b: Array, factor: float) -> Array:
        """a + factor · b, in new memory."""
        total = factor * b
        total += a
        return total

    def add(self, a: Array, b: Array, factor: float) -> Array:
        """a + factor · b."""
        a += factor * b
        return a

    def add_product(self, a: Array, b: Array, c: Array, keep: float, factor: float) -> Array:
        """keep · a + factor · bc."""
        product = b @ c
        product *= factor
        a *= keep
        a += product
        return a

    def add_identity(self, a: Array) -> Array:
        """I + a."""
        size = a.shape[-1]
        a.reshape(-1, size * size)[:, :: size + 1] += 1
        return a


NUMPY = Arrays()


def reflected_axis(p: int) -> np.ndarray:
    """e_1 + ξ_p, as a column."""
    u = np.full((p, 1), 1 / math.sqrt(p))
    u[0] += 1
    return u


def small_rotations(arrays: Arrays, numbers: Array, u: Array, spread: float, eps: float) -> Array:
    """H diag(1, exp(A - Aᵀ)) H, A being (p-1) × (p-1) `numbers` times spread/√(2p); H reflects `u`, e_1 + ξ_p."""
    root = 1 / math.sqrt(len(u))
    # With B = diag(0, A - Aᵀ), c = 2/uᵀu and r = cBu, HBH = B + urᵀ - ruᵀ.
    b = arrays.bordered_skew(numbers)
    r = b.sum(-1)[..., None] * (root / (1 + root))
    u = u[None] + 0 * r
    left, right = (arrays.xp.concatenate(pair, -1) for pair in ((u, -r), (r, u)))
    scale = spread * math.sqrt(0.5) * root
    turn = arrays.add_product(b, left, right.mT, scale, scale)
    # √p/spread times it has a norm of about 2√p; 6 more have a probability of exp(-18).
    return arrays.add_identity(expm1_skew(turn, spread * (2 + 6 * root), eps, arrays))


def expm1_skew(a: Array, norm: float, eps: float, arrays: Arrays = NUMPY) -> Array:
    r"""exp(a) - I of skew-symmetric matrices whose spectral norms are at most `norm`, orthogonal up to rounding.

    The polynomial that meets the exponential at Chebyshev's nodes of [-norm, norm]: of degree 4 in two products, 6 or 8
    in three, 12 in five or 16 in six; products that are symmetric may cost half. Of a norm above 1.3, that of a/2ᵏ,
    squared k times as (I + Z)² - I = 2Z + Z², so that nothing is lost beside the identity; what squaring adds to the
    defect D = (I + Z)ᵀ(I + Z) - I a Newton step takes off: Z - (I + Z)D/2. Where the bound `norm` is exceeded, digits
    are lost gradually; `eps` is the machine epsilon of `a`.
    """
    halvings = max(0, math.ceil(math.log2(norm / 1.3))) if norm else 0
    z = _polynomial(a * 0.5**halvings if halvings else a, norm * 0.5**halvings, eps, arrays)
    for _ in range(halvings):
        z = 2 * z + z @ z
    if halvings:
        defect = z + z.mT + z.mT @ z
        z = z - (defect + z @ defect) / 2
    return z


def _polynomial(a: Array, norm: float, eps: float, arrays: Arrays) -> Array:
    """Of the least degree that is exact to rounding: it lacks about 2 (norm/2)ᵈ⁺¹/(d+1)!."""

    def reaches(degree: int, error: float) -> bool:
        return 2 * (norm / 2) ** (degree + 1) / math.factorial(degree + 1) <= error

    if reaches(4, 8 * eps):  # at most, and in few directions: beside the rounding of the products nothing
        return _degree4(a, _meeting_exp(4, max(norm, 1e-3)), arrays)
    if reaches(6, 8 * eps):
        return _degree6(a, _meeting_exp(6, max(norm, 0.03)), arrays)
    if reaches(8, eps):
        return _degree8(a, _meeting_exp(8, max(norm, 0.1)), arrays)
    return _in_blocks(a, _meeting_exp(12 if reaches(12, eps) else 16, norm), arrays)


@lru_cache
def _meeting_exp(degree: int, norm: float) -> list[float]:
    """c with c_1 it + c_2 (it)² + … = exp(it) - 1 at 0 and at t = ±norm · cos((j + ½)π/(degree + 1))."""
    t = norm * np.cos(np.pi * (np.arange(degree // 2) + 0.5) / (degree + 1))
    powers = np.vander(-(t**2), increasing=True)
    odd, even = np.linalg.solve(powers, np.stack([np.sin(t) / t, 2 * np.sin(t / 2) ** 2 / t**2], 1)).T
    return [0.0, *np.stack([odd, even], 1).ravel().tolist()]


def _degree4(a: Array, c: list[float], arrays: Arrays) -> Array:
    """c_1 a + … + c_4 a⁴."""
    gram = arrays.gram(a)  # -a²
    z = arrays.plus(a, gram, -c[2] / c[1])
    return arrays.add_product(z, gram, arrays.plus(gram, a, -c[3] / c[4]), c[1], c[4])


def _degree6(a: Array, c: list[float], arrays: Arrays) -> Array:
    """c_1 a + … + c_6 a⁶, two of three products symmetric: … + (a - ba²)(c_3 a² + c_5 a⁴)."""
    gram = arrays.gram(a)  # -a²
    fourth = arrays.gram(gram)
    b = -c[6] / c[5]
    z = arrays.add(arrays.plus(a, gram, -c[2] / c[1]), fourth, (c[4] + b * c[3]) / c[1])
    return arrays.add_product(z, arrays.plus(a, gram, b), arrays.plus(gram, fourth, -c[5] / c[3]), c[1], -c[3])


def _degree8(a: Array, c: list[float], arrays: Arrays) -> Array:
    """c_1 a + … + c_8 a⁸ = c_1 a + c_2 a² + zy + (wa² + y)(fa + ga² + c_8 y), y = a²(va + a²).

    Equating the powers from the eighth down gives v, g + w c_8 and f, and then a quadratic equation for w.
    """
    v = c[7] / (2 * c[8])
    rest = c[6] - v * v * c[8]
    f = c[5] - v * rest
    half = (f - v * rest) / (2 * v * c[8])
    w = math.sqrt(half * half - (c[4] - v * f - c[3] / v) / c[8]) - half
    gram = arrays.gram(a)  # -a²
    y = gram @ arrays.plus(gram, a, -v)
    z = arrays.add(arrays.plus(a, gram, -c[2] / c[1]), y, (c[3] - w * f) / v / c[1])
    right = arrays.add(arrays.plus(y, a, f / c[8]), gram, w - rest / c[8])
    return arrays.add_product(z, arrays.add(y, gram, -w), right, c[1], c[8])


def _in_blocks(a: Array, c: list[float], arrays: Arrays) -> Array:
    """c_1 a + c_2 a² + …, four powers and then a⁴ times the next four (Paterson, Stockmeyer 1973)."""
    gram = arrays.gram(a)  # -a²
    third, fourth = gram @ a, arrays.gram(gram)  # -a³, a⁴
    total = None
    for start in range(len(c) - 4, 0, -4):
        block = c[start] * a
        for power, factor in ((gram, -c[start + 1]), (third, -c[start + 2]), (fourth, c[start + 3])):
            block = arrays.add(block, power, factor)
        total = block if total is None else arrays.add_product(block, fourth, total, 1.0, 1.0)
    return total


def _positive_qr(xp: Any, a: Array) -> Array:
    q, r = xp.linalg.qr(a)
    diagonal = xp.diagonal(r, 0, -2, -1)
    return q * xp.where(diagonal < 0, -1, 1)[..., None, :]


def algorithm1(xp: Any, xi: Callable[[int], Array], normal: Callable[[int, int], Array], m: int, n: int) -> Array:
    """The paper's algorithm 1 for m ≤ n: W = U Vᵀ from two QR factorizations."""
    u = _positive_qr(xp, xp.concatenate((xi(m), normal(m, m - 1)), -1))
    v = _positive_qr(xp, xp.concatenate((xi(n), normal(n, m - 1)), -1))
    return u @ v.mT


def algorithm2(
    xp: Any, xi: Callable[[int], Array], normal: Callable[[int, int], Array], cholesky: Array, m: int, n: int
) -> Array:
    """The paper's algorithm 2 for m ≤ n: W = L Q + ξ_m ξ_nᵀ from one QR factorization."""
    q = _positive_qr(xp, xp.concatenate((xi(n), normal(n, m - 1)), -1))
    q = xp.concatenate((q[..., 1:], q[..., :1]), -1).mT
    return cholesky @ q + 1 / math.sqrt(m * n)


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
