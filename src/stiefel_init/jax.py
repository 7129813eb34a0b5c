"""JAX: `stiefel`, an initializer with the contract of `jax.nn.initializers`, for Flax, Equinox and plain JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from . import _construct, _stream, _validate
from ._errors import StiefelError

__all__ = ["Initializer", "stiefel"]

_DTYPES = ("float64", "float32", "bfloat16", "float16")
Axes = int | Sequence[int]


class Initializer(Protocol):
    """The contract of `jax.nn.initializers`: an array of the given shape and dtype from a random key."""

    def __call__(self, key: jax.Array | None, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array: ...


def stiefel(
    gain: float = 1.0,
    *,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    seed: int | None = None,
    name: str = "",
) -> Initializer:
    r"""Build an initializer that draws gain · W, W uniform on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }.

    n and m are the sizes of the kernel's input and output axes; the kernel holds W with its axes in
    their places, so that of a dense layer, of shape (n, m), is Wᵀ. It runs under `jit` and `vmap`.

    Args:
        in_axis, out_axis: the axes of the inputs and of the outputs; several count as one, in the order given.
        batch_axis: axes that index independent matrices. Any axis that is named nowhere is one of a
            convolution's window: W lies at its centre, index (k - 1) // 2 of k, and all else is zero, so
            the convolution acts on each pixel as W does.
        seed: `None` to draw from the key, as every JAX initializer does. With an int the key is not
            used (it may be `None`), and W is the matrix that belongs to (seed, name, place in the
            batch): to rounding, `stiefel_init.sample(m, n, seed=seed, name=name)`.
        name: which of the matrices of that seed. Two kernels with one seed need two names.

    Returns:
        `init(key, shape, dtype=jnp.float32)`. bfloat16 and float16 are computed in float32 and rounded.

    >>> init = stiefel()
    >>> kernel = init(jax.random.key(0), (3, 2))
    >>> bool(jnp.allclose(jnp.ones(3) @ kernel, (3 / 2) ** 0.5))
    True
    """
    gain = _validate.gain(gain)
    stream = None if seed is None else _stream.key(_validate.size("seed", seed), name)

    def init(key: jax.Array | None, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        shape, dtype = _validate.shape("shape", tuple(shape)), _dtype(dtype)
        axes = _axes(shape, batch_axis, out_axis, in_axis)
        if stream is None and key is None:
            raise StiefelError("key=None; give a jax.random.key, or an int seed to stiefel().")
        if 0 in shape:
            return jnp.zeros(shape, dtype)
        if stream is None:
            return _kernel(_from_key, key, gain, shape, axes, dtype)
        batch = tuple(shape[axis] for axis in axes[0])
        keys = _stream.fold(stream, np.arange(math.prod(batch)).reshape(batch))
        return _kernel(_from_stream, keys, gain, shape, axes, dtype)

    return init


def _dtype(dtype: Any) -> np.dtype:
    """`dtype` as JAX takes it (float64 needs `jax_enable_x64`), if a matrix can have it."""
    try:
        kind = jnp.zeros((), dtype).dtype
    except TypeError:
        kind = None
    if kind is None or kind.name not in _DTYPES:
        raise StiefelError(f"dtype={dtype!r} is not supported; use one of {', '.join(_DTYPES)}.")
    return kind


def _axes(shape: tuple[int, ...], *named: Axes) -> tuple[tuple[int, ...], ...]:
    """The batch, output, input and window axes of a kernel, counted from 0."""
    rank = len(shape)
    if rank < 2:
        raise StiefelError(f"shape={shape} has {rank} axes; a kernel needs two or more.")
    found = []
    for what, axes in zip(("batch_axis", "out_axis", "in_axis"), named):
        listed = tuple(axes) if isinstance(axes, Sequence) else (axes,)
        if not all(isinstance(axis, int) and -rank <= axis < rank for axis in listed):
            raise StiefelError(f"{what}={axes!r} names an axis that a kernel of shape {shape} does not have.")
        found.append(tuple(axis % rank for axis in listed))
    batch, outs, ins = found
    if not outs or not ins or len({*batch, *outs, *ins}) < len(batch + outs + ins):
        raise StiefelError(
            f"batch_axis={named[0]!r}, out_axis={named[1]!r}, in_axis={named[2]!r} overlap or are empty for a kernel "
            f"of shape {shape}; name each axis once, with at least one for the outputs and one for the inputs."
        )
    return batch, outs, ins, tuple(axis for axis in range(rank) if axis not in batch + outs + ins)


# Gaussian numbers for each p × q matrix of a batch: (key or keys, batch, p, q, dtype)
Numbers = Callable[[Any, tuple[int, ...], int, int, Any], jax.Array]


def _from_key(key: jax.Array, batch: tuple[int, ...], p: int, q: int, dtype: Any) -> jax.Array:
    return jax.random.normal(key, (*batch, p, q), dtype) + _construct.NEVER_ZERO


def _from_stream(keys: jax.Array, batch: tuple[int, ...], p: int, q: int, dtype: Any) -> jax.Array:
    """`_stream.normals` with JAX."""
    k0, k1 = (keys[..., word, None, None] for word in range(2))
    shape = (*batch, p, (q + 1) // 2)
    row, pair = (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in (len(batch), len(batch) + 1))
    entries = _stream.box_muller(jnp, *_stream.threefry2x32(jnp, k0, k1, pair, row), dtype)
    return jnp.stack(entries, -1).reshape(*batch, p, -1)[..., :q]


class _Ops:
    """`_construct.Ops` for `jax.numpy`, without changing an array."""

    xp: Any = jnp

    def __init__(self, batch: tuple[int, ...], dtype: Any) -> None:
        self.batch, self.dtype = batch, dtype

    def eye(self, p: int, q: int) -> jax.Array:
        return jnp.broadcast_to(jnp.eye(p, q, dtype=self.dtype), (*self.batch, p, q))

    def row_norms(self, x: jax.Array) -> jax.Array:
        return jnp.sqrt((x * x).sum(-1))

    def add_diagonal(self, x: jax.Array, value: jax.Array) -> jax.Array:
        return x + jnp.where(self._on_diagonal(x), value[..., None], 0)

    def set_diagonal(self, x: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.where(self._on_diagonal(x), value[..., None], x)

    def solve_right(self, lower: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.linalg.triangular_solve(lower, b, left_side=False, lower=True)

    def subtract_product(self, qt: jax.Array, start: int, b: jax.Array, v: jax.Array) -> jax.Array:
        return qt.at[..., start:, start:].add(-(b @ v))

    @staticmethod
    def _on_diagonal(x: jax.Array) -> jax.Array:
        return jnp.eye(x.shape[-2], x.shape[-1], dtype=bool)


@partial(jax.jit, static_argnames=("numbers", "shape", "axes", "dtype"))
def _kernel(
    numbers: Numbers, source: Any, gain: float, shape: tuple[int, ...], axes: tuple[tuple[int, ...], ...], dtype: Any
) -> jax.Array:
    """gain · members of the set, laid into a kernel whose batch, output, input and window axes are given."""
    batch, outs, ins = (tuple(shape[axis] for axis in group) for group in axes[:3])
    work = dtype if dtype == jnp.float64 else jnp.float32
    w = (gain * _members(numbers, source, batch, math.prod(outs), math.prod(ins), work)).astype(dtype)
    window = axes[3]
    w = w.reshape(*batch, *outs, *ins, *(1 for _ in window)).transpose(np.argsort(sum(axes, ())))
    return jnp.pad(w, [((k - 1) // 2, k // 2) if axis in window else (0, 0) for axis, k in enumerate(shape)])


def _members(numbers: Numbers, source: Any, batch: tuple[int, ...], m: int, n: int, dtype: Any) -> jax.Array:
    """Note [a member from reflectors]: independent members of Õ(m,n), of shape (*batch, m, n)."""
    p, q = min(m, n), max(m, n)

    x = jnp.triu(numbers(source, batch, p, q, dtype)).at[..., 0, :].set(1)

    def draw(start: int, stop: int) -> jax.Array:
        return x[..., start:stop, start:]

    # At most four blocks, since XLA takes a fifth of a second to compile each; under 256 rows one is fastest.
    block = max(256, -(-p // 4))
    with jax.default_matmul_precision("highest"):
        qt, signs = _construct.frame(_Ops(batch, dtype), draw, p, q, block)
    # (I - 2uuᵀ/uᵀu) S Qᵀ: every row but the first gets the same multiple of uᵀ S Qᵀ added, in which
    # the first row of S Qᵀ is known to be -ξ_q.
    sqt = signs[..., None] * qt
    total = sqt.sum(-2, keepdims=True)
    root = 1 / math.sqrt(p)
    shift = root / (1 + root) * (1 / math.sqrt(q) - root * total)
    w = jnp.concatenate((-root * total, sqt[..., 1:, :] + shift), -2)
    return w if m <= n else w.mT
