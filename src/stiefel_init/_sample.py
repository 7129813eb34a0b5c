"""Members of Õ(m,n) with NumPy: `sample`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs

from . import _construct, _members, _stream, _validate
from ._errors import StiefelError, unknown
from ._structure import cholesky_factor

_ROWS = 64  # rows of Gaussian numbers drawn at once; only the upper trapezoid is needed
Draw = Callable[[int, int, int, int], np.ndarray]  # (row, stop, column, stop) -> that block of a Gaussian matrix


def sample(
    m: int,
    n: int,
    *,
    batch: int | tuple[int, ...] = (),
    method: str = "householder",
    member: str = "uniform",
    spread: float = 0.1,
    seed: int | np.random.Generator | None = None,
    name: str = "",
    dtype: Any = np.float64,
) -> np.ndarray:
    r"""Draw W from Õ(m,n) = { W : WWᵀ = I_m (m ≤ n) or WᵀW = I_n (m ≥ n),  W ξ_n = ξ_m }.

    ξ_k = (1,…,1)/√k, so W is semi-orthogonal and carries the all-ones direction to the all-ones
    direction. m outputs and n inputs, in any relation: Õ(1,n) = {ξ_nᵀ} and Õ(m,1) = {ξ_m} hold one
    matrix each; with m = 0 or n = 0 the result is empty.

    Args:
        batch: shape of a batch of independent matrices, drawn in one call.
        method: `"householder"` forms W from random reflections, without a factorization;
            `"algorithm1"` and `"algorithm2"` are the paper's, by QR. All three draw the same law.
        member: `"uniform"` on the set, as in the paper; or `"permutation"`, a random permutation matrix;
            `"rotation"`, a random rotation by `spread`, near the identity for a small one; `"identity"`.
            A rectangular one has equal groups in place of single entries, if one side divides the other,
            and is uniform if not.
        seed: `None` for fresh entropy; a `numpy.random.Generator` to draw from it; or an int. With
            an int, `"householder"` gives the matrix that belongs to (seed, name, place in the batch),
            the same to rounding in every framework and on every device.
        name: which of the matrices of that seed; a parameter's name, say.
        dtype: float16, float32 or float64.

    Returns:
        An array of shape (*batch, m, n).

    >>> W = sample(2, 3, seed=0)
    >>> np.allclose(W @ W.T, np.eye(2)), np.allclose(W.sum(axis=1), np.sqrt(3 / 2))
    (True, True)
    """
    m, n, batch = _validate.size("m", m), _validate.size("n", n), _validate.shape("batch", batch)
    kind = _dtype(dtype)
    work = np.dtype(np.float32) if kind == np.float16 else kind
    if method not in _validate.METHODS:
        raise unknown("method", method, _validate.METHODS)
    p, q = min(m, n), max(m, n)
    member, spread = _members.check(member, spread, method)
    member = _members.resolve(member, p, q)
    out = np.empty((*batch, p, q), kind)
    flat = out.reshape(math.prod(batch), p, q)
    if out.size:
        if member == "identity":
            flat[...] = _members.from_order(np.arange(q), p, kind)
        elif member == "permutation":
            orders = _orders(seed, name, q)
            for index in range(len(flat)):
                flat[index] = _members.from_order(orders(index), p, kind)
        elif member == "rotation":
            draws = _streams(seed, name, len(flat), np.dtype(np.float64))
            for index in range(len(flat)):
                flat[index] = _members.rotation(draws(index)(0, p - 1, 0, p - 1), spread, p, q)
        elif method == "householder":
            draws = _streams(seed, name, len(flat), work)
            for index in range(len(flat)):
                flat[index] = _householder(draws(index), p, q, work)
        else:
            flat[...] = _paper(method, _generator(seed), len(flat), p, q)
    return out if m <= n else np.ascontiguousarray(out.mT)


def _householder(draw: Draw, p: int, q: int, dtype: np.dtype) -> np.ndarray:
    """Note [a member from reflectors], the product of the reflections applied by LAPACK's ormqr."""
    x = np.zeros((p, q), dtype)
    for start in range(0, p, _ROWS):
        stop = min(start + _ROWS, p)
        x[start:stop, start:] = np.triu(draw(start, stop, start, q))
    x[0] = 1
    norm = _construct.signed_norm(np, x, np.sqrt(np.einsum("ij,ij->i", x, x)))
    pivot = x.diagonal() + norm
    x /= pivot[:, None]  # LAPACK wants v_j = 1, and takes it as said
    start_from = np.zeros((p, q), dtype)
    start_from[:, :p] = _construct.left_reflection(p, dtype.name) * np.sign(norm)
    (ormqr,) = get_lapack_funcs(("ormqr",), (x,))
    columns = max(64 * p, 1)  # LAPACK's workspace: the block size times the columns of the result
    w, _, info = ormqr("L", "N", x.T, pivot / norm, start_from.T, lwork=columns, overwrite_c=True)
    assert info == 0, f"ormqr returned info={info}"
    return w.T


def _paper(method: str, rng: np.random.Generator, count: int, p: int, q: int) -> np.ndarray:
    def xi(k: int) -> np.ndarray:
        return np.full((count, k, 1), 1 / math.sqrt(k))

    def normal(rows: int, columns: int) -> np.ndarray:
        return rng.standard_normal((count, rows, columns))

    if method == "algorithm1":
        return _construct.algorithm1(np, xi, normal, p, q)
    return _construct.algorithm2(np, xi, normal, cholesky_factor(p), p, q)


def _streams(seed: Any, name: str, count: int, dtype: np.dtype) -> Callable[[int], Draw]:
    """For each matrix of a batch, where its Gaussian numbers come from."""
    if isinstance(seed, np.random.Generator) or seed is None:
        rng = _generator(seed)

        def fresh(row: int, stop: int, column: int, end: int) -> np.ndarray:
            return rng.standard_normal((stop - row, end - column), dtype) + dtype.type(_construct.NEVER_ZERO)

        return lambda index: fresh
    key = _stream.key(_validate.size("seed", seed), name)

    def of(index: int) -> Draw:
        own = _stream.fold(key, index)
        return lambda row, stop, column, end: _stream.normals(own, (row, stop), (column, end), dtype)

    return of


def _orders(seed: Any, name: str, count: int) -> Callable[[int], np.ndarray]:
    """For each matrix of a batch, its permutation of `count` columns."""
    if isinstance(seed, np.random.Generator) or seed is None:
        rng = _generator(seed)
        return lambda index: rng.permutation(count)
    key = _stream.key(_validate.size("seed", seed), name)
    return lambda index: _members.order(_stream.fold(key, index), count)


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(seed if isinstance(seed, np.random.Generator | None) else _validate.size("seed", seed))


def _dtype(dtype: Any) -> np.dtype:
    valid = np.float16, np.float32, np.float64
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind not in valid:
        raise StiefelError(f"dtype={dtype!r} is not supported; use float16, float32 or float64.")
    return kind
