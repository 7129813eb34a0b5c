"""Weight matrices with NumPy: `sample` for members of Õ(m,n), `draw` for every scheme of the registry."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from ..schemes import Identity, Permutation, Rotation, Scheme, SchemeName, Source, Stiefel, get
from . import construct, stream, validate
from .errors import StiefelError, unknown
from .validate import Method

Member = Literal["uniform", "permutation", "rotation", "identity"]
MEMBERS: tuple[Member, ...] = get_args(Member)
Seed = int | np.random.Generator | None

_ROWS = 64  # rows of Gaussian numbers drawn at once; only the upper trapezoid is needed
Block = Callable[[int, int, int, int], np.ndarray]  # (row, stop, column, stop) -> that block of a Gaussian matrix


def sample(
    m: int,
    n: int,
    *,
    batch: int | tuple[int, ...] = (),
    method: Method = "householder",
    member: Member = "uniform",
    spread: float = 0.1,
    seed: Seed = None,
    name: str = "",
    dtype: Any = np.float64,
) -> np.ndarray:
    r"""Draw W from Õ(m,n) = { W : WWᵀ = I_m (m ≤ n) or WᵀW = I_n (m ≥ n),  W ξ_n = ξ_m }.

    ξ_k = (1,…,1)/√k, so W is semi-orthogonal and maps the all-ones direction to itself. Any m and n will do:
    Õ(1,n) = {ξ_nᵀ} and Õ(m,1) = {ξ_m} hold one matrix each; with m = 0 or n = 0 the result is empty.

    Args:
        m: Outputs.
        n: Inputs.
        batch: Shape of a batch of independent matrices, drawn in one call; the result is of shape (*batch, m, n).
        method: `"householder"` builds W from random reflections, without a factorization; `"algorithm1"` and
            `"algorithm2"` are the paper's, by QR. All three have the same distribution.
        member: `"uniform"` on the set, as in the paper; `"permutation"`, a random permutation matrix; `"rotation"`, a
            random rotation of size `spread`, close to the identity if that is small; or `"identity"`. Rectangular ones
            have equal groups instead of single entries if one side divides the other, and are uniform otherwise.
        spread: Size of a random rotation.
        seed: `None` for fresh entropy; a `numpy.random.Generator` to draw from; or an int. With an int,
            `"householder"` returns the matrix that belongs to (seed, name, index in the batch): the same, up to
            rounding, in every framework and on every device.
        name: Tells matrices with the same seed apart; a parameter's name, say.
        dtype: float16, float32 or float64.

    >>> W = sample(2, 3, seed=0)
    >>> np.allclose(W @ W.T, np.eye(2)), np.allclose(W.sum(axis=1), np.sqrt(3 / 2))
    (True, True)
    """
    scheme = member_scheme(member, spread, method)
    if method == "householder":
        return draw(scheme, m, n, batch=batch, seed=seed, name=name, dtype=dtype)
    m, n, batch, kind = *_sizes(m, n, batch), _dtype(dtype)
    if not (m and n):
        return np.empty((*batch, m, n), kind)
    rng, count = _generator(seed), math.prod(batch)
    wide = construct.by_qr(
        np, method, lambda *shape: rng.standard_normal((count, *shape)), np.asarray, min(m, n), max(m, n)
    )
    return np.ascontiguousarray(wide if m <= n else wide.mT, kind).reshape(*batch, m, n)


def member_scheme(member: Any, spread: Any, method: str = "householder") -> Scheme:
    """The scheme that draws a member of the set; refuses a method that cannot draw it, and unknown names."""
    if method not in validate.METHODS:
        raise unknown("method", method, validate.METHODS)
    if member not in MEMBERS:
        raise unknown("member", member, MEMBERS)
    spread = Rotation(spread)  # checked whatever the member
    if member != "uniform" and method != "householder":
        raise StiefelError(f"method={method!r} draws uniform members only; leave it out for member={member!r}.")
    return {"uniform": Stiefel(), "permutation": Permutation(), "identity": Identity(), "rotation": spread}[member]


def draw(
    scheme: SchemeName | Scheme,
    m: int,
    n: int,
    *,
    batch: int | tuple[int, ...] = (),
    seed: Seed = None,
    name: str = "",
    dtype: Any = np.float64,
) -> np.ndarray:
    """Draw m × n weight matrices with any scheme.

    Args:
        scheme: A name of `stiefel_init.schemes.names()`, or a `Scheme`.
        m: Outputs.
        n: Inputs.
        batch: Shape of a batch of independent matrices; the result is of shape (*batch, m, n).
        seed: `None` for fresh entropy; a `numpy.random.Generator`; or an int: then the matrix belongs to (seed, name,
            index in the batch) and is the same, up to rounding, in every framework and on every device.
        name: Tells matrices with the same seed apart; a parameter's name, say.
        dtype: float16, float32 or float64.

    >>> draw("identity", 2, 4).round(4).tolist()
    [[0.7071, 0.7071, 0.0, 0.0], [0.0, 0.0, 0.7071, 0.7071]]
    """
    return of_kernel(get(scheme), m, n, 1, batch, seed, name, dtype)


def of_kernel(
    scheme: Scheme,
    m: int,
    n: int,
    places: int,
    batch: int | tuple[int, ...],
    seed: Seed,
    name: str,
    dtype: Any,
    *,
    first: int = 0,
) -> np.ndarray:
    """`draw` for a convolution: each row's n entries are a kernel of `places` entries for each input.

    With `first`, the matrices from that one on.
    """
    m, n, batch, kind = *_sizes(m, n, batch), _dtype(dtype)
    count = math.prod(batch)
    source = _source(seed, name, m, n, count, np.dtype(np.float32) if kind == np.float16 else kind, first)
    source.fan_out = m * places
    if not (m and n and count):
        return np.empty((*batch, m, n), kind)
    return np.require(scheme.draw(source), kind, ["C", "W"]).reshape(*batch, m, n)


def _sizes(m: Any, n: Any, batch: Any) -> tuple[int, int, tuple[int, ...]]:
    return validate.size("m", m), validate.size("n", n), validate.shape("batch", batch)


class _Source(ABC):
    """`schemes.Source` with NumPy, from the blocks of one Gaussian matrix for each matrix drawn."""

    xp: Any = np

    def __init__(self, m: int, n: int, count: int, dtype: np.dtype) -> None:
        self.m, self.n, self.fan_out, self.count, self.dtype = m, n, m, count, dtype
        self.draws = 0

    @abstractmethod
    def blocks(self, index: int) -> Block:
        """The Gaussian matrix of matrix `index`."""

    def begin(self) -> None:
        """Called before each draw, so that no two share numbers."""
        self.draws += 1

    def normals(self, rows: int, columns: int) -> np.ndarray:
        self.begin()
        return np.stack([self.blocks(index)(0, rows, 0, columns) for index in range(self.count)])

    def semi_orthogonal(self, *, aligned: bool) -> np.ndarray:
        self.begin()
        p, q = min(self.m, self.n), max(self.m, self.n)
        wide = np.empty((self.count, p, q), self.dtype)
        for index in range(self.count):
            wide[index] = _householder(self.blocks(index), p, q, self.dtype, aligned)
        return wide if self.m <= self.n else wide.mT

    def array(self, values: np.ndarray) -> np.ndarray:
        return values.astype(self.dtype) if values.dtype.kind == "f" else values

    def rotations(self, size: int, spread: float) -> np.ndarray:
        numbers, u = self.normals(size - 1, size - 1), self.array(construct.reflected_axis(size))
        return construct.small_rotations(construct.NUMPY, numbers, u, spread, float(np.finfo(self.dtype).eps))

    def expm1_skew(self, a: np.ndarray, norm: float) -> np.ndarray:
        return construct.expm1_skew(a, norm, float(np.finfo(a.dtype).eps))

    turn = expm1_skew  # its name in release 0.2

    def erfinv(self, a: np.ndarray) -> np.ndarray:
        from scipy.special import erfinv

        return erfinv(a)


class _Seeded(_Source):
    """The streams of the given keys, of shape (count, 2)."""

    def __init__(self, m: int, n: int, keys: np.ndarray, dtype: np.dtype) -> None:
        super().__init__(m, n, len(keys), dtype)
        self.keys = self.current = keys

    def begin(self) -> None:
        self.current = stream.fold(self.keys, self.draws) if self.draws else self.keys
        super().begin()

    def blocks(self, index: int) -> Block:
        key = self.current[index]
        return lambda row, stop, column, end: stream.normals(key, (row, stop), (column, end), self.dtype)

    def uniforms(self, rows: int, columns: int) -> np.ndarray:
        self.begin()
        return stream.uniforms(self.current, rows, columns).astype(self.dtype)

    def orders(self, size: int) -> np.ndarray:
        self.begin()
        return stream.orders(self.current, size)

    def precise(self) -> Source:
        source = _Seeded(self.m, self.n, self.keys, np.dtype(np.float64))
        source.fan_out, source.draws = self.fan_out, self.draws
        return source


class _Fresh(_Source):
    """A NumPy generator."""

    def __init__(self, m: int, n: int, count: int, dtype: np.dtype, rng: np.random.Generator) -> None:
        super().__init__(m, n, count, dtype)
        self.rng = rng

    def blocks(self, index: int) -> Block:
        return lambda row, stop, column, end: (
            self.rng.standard_normal((stop - row, end - column), self.dtype) + self.dtype.type(construct.NEVER_ZERO)
        )

    def uniforms(self, rows: int, columns: int) -> np.ndarray:
        return self.rng.uniform(-1, 1, (self.count, rows, columns)).astype(self.dtype)

    def orders(self, size: int) -> np.ndarray:
        return self.rng.permuted(np.tile(np.arange(size), (self.count, 1)), axis=1)

    def precise(self) -> Source:
        source = _Fresh(self.m, self.n, self.count, np.dtype(np.float64), self.rng)
        source.fan_out = self.fan_out
        return source


def _source(seed: Any, name: str, m: int, n: int, count: int, dtype: np.dtype, first: int) -> Source:
    if isinstance(seed, np.random.Generator | None):
        return _Fresh(m, n, count, dtype, _generator(seed))
    key = stream.key(validate.size("seed", seed), name)
    return _Seeded(m, n, stream.fold(key, np.arange(first, first + count)), dtype)


def _householder(block: Block, p: int, q: int, dtype: np.dtype, aligned: bool) -> np.ndarray:
    """Note [a member from reflectors], the product of the reflections applied by LAPACK's ormqr."""
    x = np.zeros((p, q), dtype)
    for start in range(0, p, _ROWS):
        stop = min(start + _ROWS, p)
        x[start:stop, start:] = np.triu(block(start, stop, start, q))
    if aligned:
        x[0] = 1
    norm = construct.signed_norm(np, x, np.sqrt(np.einsum("ij,ij->i", x, x)))
    pivot = x.diagonal() + norm
    x /= pivot[:, None]  # LAPACK assumes v_j = 1
    start_from = np.zeros((p, q), dtype)
    left = construct.left_reflection(p, dtype.name) if aligned else -np.eye(p, dtype=dtype)
    start_from[:, :p] = left * np.sign(norm)
    from scipy.linalg import get_lapack_funcs

    (ormqr,) = get_lapack_funcs(("ormqr",), (x,))
    columns = max(64 * p, 1)  # LAPACK's workspace: the block size times the columns of the result
    w, _, info = ormqr("L", "N", x.T, pivot / norm, start_from.T, lwork=columns, overwrite_c=True)
    assert info == 0, f"ormqr returned info={info}"
    return w.T


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(seed if isinstance(seed, np.random.Generator | None) else validate.size("seed", seed))


def _dtype(dtype: Any) -> np.dtype:
    valid = np.float16, np.float32, np.float64
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind not in valid:
        raise StiefelError(f"dtype={dtype!r} is not supported; use float16, float32 or float64.")
    return kind
