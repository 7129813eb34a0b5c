"""Initializers of one weight, with the contract of `jax.nn.initializers`, for Flax, Equinox and plain JAX."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ..core import construct as _construct
from ..core import stream as _stream
from ..core import validate as _validate
from ..core.errors import StiefelError
from ..recipe.layers import DTYPES
from ..schemes import Scheme, SchemeName, Source, Stiefel, get

__all__ = ["Initializer", "initializer", "stiefel"]

Axes = int | Sequence[int]


class Initializer(Protocol):
    """The contract of `jax.nn.initializers`: an array of the given shape and dtype from a random key.

    >>> init: Initializer = stiefel()
    >>> init(jax.random.key(0), (3, 2)).shape
    (3, 2)
    """

    def __call__(
        self, key: jax.Array | None, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None
    ) -> jax.Array: ...


def initializer(
    scheme: SchemeName | Scheme = "stiefel",
    gain: float = 1.0,
    *,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    seed: int | None = None,
    name: str = "",
    dtype: Any = None,
) -> Initializer:
    r"""Build an initializer that draws gain · W, where W is an m × n matrix of the scheme.

    n and m are the sizes of the kernel's input and output axes, so the kernel of a dense layer, of shape (n, m), is Wᵀ.
    It works under `jit` and `vmap`.

    Args:
        scheme: A name of `stiefel_init.schemes.names()`, or a `Scheme`.
        gain: Factor on W.
        in_axis: Input axes; several are flattened in the order given.
        out_axis: Output axes, likewise.
        batch_axis: Axes that index independent matrices. All remaining axes are a convolution's window. Entrywise
            schemes fill the whole window, using its fans. The others put W at its centre, index (k - 1) // 2 of k, and
            zeros elsewhere, so that the convolution applies W to each pixel.
        seed: `None` to draw from the key, as every JAX initializer does. With an int the key is ignored (it may be
            `None`), and W belongs to (seed, name, index in the batch): up to rounding it is
            `stiefel_init.draw(scheme, m, n, seed=seed, name=name)`.
        name: Tells matrices with the same seed apart. Two kernels with one seed need two names.
        dtype: Of kernels for which `init` is given none; by default JAX's own, float32 unless `jax_enable_x64` is set.

    Returns:
        `init(key, shape, dtype=None, out_sharding=None)`, as JAX's own. bfloat16 and float16 are computed in float32
        and rounded.

    >>> kernel = initializer("he")(jax.random.key(0), (50, 64))
    >>> round(float(kernel.std()), 1)  # √(2/50)
    0.2
    """
    chosen = get(scheme)
    gain = _validate.number("gain", gain)
    stream = None if seed is None else _stream.key(_validate.size("seed", seed), name)

    usual = None if dtype is None else _dtype(dtype)

    def init(key: jax.Array | None, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> jax.Array:
        kernel = unsharded(key, shape, usual if dtype is None else dtype)
        return kernel if out_sharding is None else jax.sharding.reshard(kernel, out_sharding)

    def unsharded(key: jax.Array | None, shape: Sequence[int], dtype: Any) -> jax.Array:
        shape, dtype = _validate.shape("shape", tuple(shape)), _dtype(dtype)
        batch, outs, ins, window = _axes(shape, batch_axis, out_axis, in_axis)
        if stream is None and key is None:
            raise StiefelError("key=None; give a jax.random.key, or an int seed.")
        if 0 in shape:
            return jnp.zeros(shape, dtype)
        axes = (batch, outs, (*ins, *window), ()) if chosen.entrywise else (batch, outs, ins, window)
        places = math.prod(shape[axis] for axis in window) if chosen.entrywise else 1
        count = math.prod(shape[axis] for axis in batch)
        streams = key if stream is None else _stream.fold(stream, np.arange(count))
        return _kernel(chosen, stream is not None, streams, gain, shape, axes, places, dtype)

    return init


def stiefel(
    gain: float = 1.0,
    *,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    seed: int | None = None,
    name: str = "",
    dtype: Any = None,
) -> Initializer:
    r"""Build an initializer that draws gain · W, W uniform on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }.

    Args:
        gain: Factor on W.
        in_axis, out_axis, batch_axis, seed, name, dtype: As in `initializer`, and so is the result.

    >>> init = stiefel()
    >>> kernel = init(jax.random.key(0), (3, 2))
    >>> bool(jnp.allclose(jnp.ones(3) @ kernel, (3 / 2) ** 0.5))
    True
    """
    axes: dict[str, Axes] = {"in_axis": in_axis, "out_axis": out_axis, "batch_axis": batch_axis}
    return initializer(Stiefel(), gain, **axes, seed=seed, name=name, dtype=dtype)


def _dtype(dtype: Any) -> np.dtype:
    """`dtype` as JAX takes it (float64 needs `jax_enable_x64`), if a matrix can have it."""
    try:
        kind = jnp.zeros((), dtype).dtype
    except TypeError:
        kind = None
    if kind is None or kind.name not in DTYPES:
        raise StiefelError(f"dtype={dtype!r} is not supported; use one of {', '.join(DTYPES)}.")
    return kind


def _axes(shape: tuple[int, ...], *named: Axes) -> tuple[tuple[int, ...], ...]:
    """The batch, output, input and window axes of a kernel, counted from 0."""
    rank = len(shape)
    if rank < 2:
        raise StiefelError(f"shape={shape} has {rank} axes; a kernel needs two or more.")
    groups = []
    for what, axes in zip(("batch_axis", "out_axis", "in_axis"), named):
        listed = tuple(axes) if isinstance(axes, Sequence) else (axes,)
        if not all(isinstance(axis, int) and -rank <= axis < rank for axis in listed):
            raise StiefelError(f"{what}={axes!r} names an axis that a kernel of shape {shape} does not have.")
        groups.append(tuple(axis % rank for axis in listed))
    batch, outs, ins = groups
    if not outs or not ins or len({*batch, *outs, *ins}) < len(batch + outs + ins):
        raise StiefelError(
            f"batch_axis={named[0]!r}, out_axis={named[1]!r}, in_axis={named[2]!r} overlap or are empty for a kernel "
            f"of shape {shape}; name each axis once, with at least one for the outputs and one for the inputs."
        )
    return batch, outs, ins, tuple(axis for axis in range(rank) if axis not in batch + outs + ins)


@partial(jax.jit, static_argnames=("scheme", "seeded", "shape", "axes", "places", "dtype"))
def _kernel(
    scheme: Scheme,
    seeded: bool,
    streams: Any,
    gain: float,
    shape: tuple[int, ...],
    axes: tuple[tuple[int, ...], ...],
    places: int,
    dtype: Any,
) -> jax.Array:
    """gain · W, laid into a kernel whose batch, output, input and window axes are given."""
    batch, outs, ins = (tuple(shape[axis] for axis in group) for group in axes[:3])
    work = dtype if dtype == jnp.float64 else jnp.dtype(jnp.float32)
    source = (_Seeded if seeded else _Fresh)(math.prod(outs), math.prod(ins), math.prod(batch), places, work, streams)
    w = (gain * scheme.draw(source)).astype(dtype)
    window = axes[3]
    w = w.reshape(*batch, *outs, *ins, *(1 for _ in window)).transpose(np.argsort(sum(axes, ())))
    return jnp.pad(w, [((k - 1) // 2, k // 2) if axis in window else (0, 0) for axis, k in enumerate(shape)])


class _Source(ABC):
    """`schemes.Source` with JAX; `streams` are the stream keys, of shape (count, 2), or a key of jax.random."""

    xp: Any = jnp

    def __init__(self, m: int, n: int, count: int, places: int, dtype: np.dtype, streams: Any) -> None:
        self.m, self.n, self.count, self.fan_out, self.dtype, self.streams = m, n, count, m * places, dtype, streams
        self.draws = 0

    @abstractmethod
    def next_streams(self) -> Any:
        """The streams of the next draw, so that no two draws share numbers."""

    @abstractmethod
    def normals(self, rows: int, columns: int) -> jax.Array: ...
    @abstractmethod
    def uniforms(self, rows: int, columns: int) -> jax.Array: ...
    @abstractmethod
    def orders(self, size: int) -> jax.Array: ...

    def semi_orthogonal(self, *, aligned: bool) -> jax.Array:
        """Note [a member from reflectors]."""
        p, q = min(self.m, self.n), max(self.m, self.n)
        x = jnp.triu(self.normals(p, q))
        if aligned:
            x = x.at[:, 0, :].set(1)
        # At most four blocks, since XLA takes a fifth of a second to compile each; under 256 rows one is fastest.
        block = max(256, -(-p // 4))
        ops = _Ops((self.count,), self.dtype)
        with jax.default_matmul_precision("highest"):
            qt, signs = _construct.frame(ops, lambda start, stop: x[:, start:stop, start:], p, q, block)
        wide = signs[..., None] * qt
        if aligned:
            # (I - 2uuᵀ/uᵀu) S Qᵀ: every row but the first gets the same multiple of uᵀ S Qᵀ added, in which the first
            # row of S Qᵀ is known to be -ξ_q.
            total = wide.sum(-2, keepdims=True)
            root = 1 / math.sqrt(p)
            shift = root / (1 + root) * (1 / math.sqrt(q) - root * total)
            wide = jnp.concatenate((-root * total, wide[:, 1:] + shift), -2)
        else:
            wide = -wide
        return wide if self.m <= self.n else wide.mT

    def array(self, values: np.ndarray) -> jax.Array:
        return jnp.asarray(values, self.dtype if values.dtype.kind == "f" else None)

    def rotations(self, size: int, spread: float) -> jax.Array:
        numbers, u = self.normals(size - 1, size - 1), self.array(_construct.reflected_axis(size))
        with jax.default_matmul_precision("highest"):
            return _construct.small_rotations(_Arrays(), numbers, u, spread, float(jnp.finfo(self.dtype).eps))

    def expm1_skew(self, a: jax.Array, norm: float) -> jax.Array:
        with jax.default_matmul_precision("highest"):
            return _construct.expm1_skew(a, norm, float(jnp.finfo(a.dtype).eps), _Arrays())

    turn = expm1_skew  # its name in release 0.2

    def erfinv(self, a: jax.Array) -> jax.Array:
        return jax.scipy.special.erfinv(a)

    def precise(self) -> Source:
        return self


class _Seeded(_Source):
    def next_streams(self) -> Any:
        streams, index = self.streams, jnp.uint32(self.draws)
        self.draws += 1
        if self.draws == 1:
            return streams
        zero = jnp.zeros_like(streams[:, 0])
        return jnp.stack(_stream.threefry2x32(jnp, streams[:, 0], streams[:, 1], zero + index, zero), -1)

    def _words(self, rows: int, pairs: int) -> tuple[jax.Array, jax.Array]:
        """`_stream.words` with JAX: the two words of each pair, of shape (count, rows, pairs) each."""
        streams = self.next_streams()
        k0, k1 = (streams[:, word, None, None] for word in range(2))
        row, pair = (jax.lax.broadcasted_iota(jnp.uint32, (self.count, rows, pairs), axis) for axis in (1, 2))
        return _stream.threefry2x32(jnp, k0, k1, pair, row)

    def _in_rows(self, pairs: tuple[jax.Array, jax.Array], columns: int) -> jax.Array:
        count, rows, width = pairs[0].shape
        return jnp.stack(pairs, -1).reshape(count, rows, 2 * width)[..., :columns]

    def normals(self, rows: int, columns: int) -> jax.Array:
        return self._in_rows(_stream.box_muller(jnp, *self._words(rows, (columns + 1) // 2), self.dtype), columns)

    def uniforms(self, rows: int, columns: int) -> jax.Array:
        words = self._in_rows(self._words(rows, (columns + 1) // 2), columns)
        return (words.view(jnp.int32).astype(self.dtype) + 0.5) * 2.0**-31

    def orders(self, size: int) -> jax.Array:
        high, low = self._words(1, size)
        return jnp.lexsort((low[:, 0], high[:, 0]), axis=-1)


class _Fresh(_Source):
    def next_streams(self) -> Any:
        self.draws += 1
        return self.streams if self.draws == 1 else jax.random.fold_in(self.streams, self.draws - 1)

    def normals(self, rows: int, columns: int) -> jax.Array:
        return jax.random.normal(self.next_streams(), (self.count, rows, columns), self.dtype) + _construct.NEVER_ZERO

    def uniforms(self, rows: int, columns: int) -> jax.Array:
        return jax.random.uniform(self.next_streams(), (self.count, rows, columns), self.dtype, -1, 1)

    def orders(self, size: int) -> jax.Array:
        rows = jnp.broadcast_to(jnp.arange(size), (self.count, size))
        return jax.random.permutation(self.next_streams(), rows, axis=1, independent=True)


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


class _Arrays(_construct.Arrays):
    """`_construct.Arrays` for `jax.numpy`, without changing an array."""

    xp: Any = jnp

    def bordered_skew(self, a: jax.Array) -> jax.Array:
        return jnp.pad(a - a.mT, ((0, 0), (1, 0), (1, 0)))

    def scaled(self, a: jax.Array, factor: float, use: str) -> jax.Array:
        return factor * a

    def mirrored(self, a: jax.Array, b: jax.Array, use: str, sign: int = 1) -> jax.Array:
        return a @ b

    def add_identity(self, a: jax.Array, factor: float = 1.0) -> jax.Array:
        return a + factor * jnp.eye(a.shape[-1], dtype=a.dtype)[None]
