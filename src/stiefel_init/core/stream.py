r"""(seed, name) → random numbers that are the same on every framework and device.

The numbers are a function of a 64-bit key and a position (row, column): word pair k of row i is
Threefry-2x32-20 of the counter (k, i) (Salmon, Moraes, Dror, Shaw 2011), and the Box–Muller
transform turns it into the Gaussian entries 2k and 2k+1 of that row. Any sub-block of the infinite
matrix can be computed without the rest, in any order, on any number of threads. `xp` is `numpy` or
`jax.numpy`; the Triton kernels of `stiefel_init.torch` compute the same function.
"""

from __future__ import annotations

import hashlib
import math
import operator
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

Array = Any
Scratch = tuple[np.ndarray, ...]  # an array of words, and three of the numbers' type


def _word(value: int) -> np.ndarray:
    """A 32-bit number as an array, which NumPy takes in a fraction of the time it needs for a Python int."""
    return np.array(value, np.uint32)


_ROTATIONS = tuple(
    tuple((_word(left), _word(32 - left)) for left in group) for group in ((13, 15, 26, 6), (17, 29, 16, 24))
)
_PARITY = _word(0x1BD11BDA)
_ROUNDS = tuple(map(_word, range(1, 6)))
_CHUNK = 1 << 15  # word pairs worked on at once: their arrays stay in a core's cache
_SCRATCH = threading.local()  # kept, as the system takes as long to clear fresh memory as NumPy to fill it
_THREADED = 1 << 18  # below this many word pairs, starting threads costs more than it saves


def key(seed: int, name: str = "") -> np.ndarray:
    """The key of the stream that belongs to `seed` and `name`: two 32-bit words of a BLAKE2b hash."""
    return keys(seed, (name,))[0]


def keys(seed: int, names: Iterable[str]) -> np.ndarray:
    """The keys of all the names, of shape (names, 2)."""
    begun = hashlib.blake2b(f"{seed}/".encode(), digest_size=8)
    digests = []
    for name in names:
        ended = begun.copy()
        ended.update(name.encode())
        digests.append(ended.digest())
    return np.frombuffer(b"".join(digests), "<u4").astype(np.uint32).reshape(-1, 2)


def fold(k: np.ndarray, index: int | np.ndarray) -> np.ndarray:
    """The keys of members `index` of the batches whose keys are `k`, of shape (…, 2); the two shapes are broadcast."""
    place = np.atleast_1d(np.asarray(index, np.uint64))
    low, high = (place & np.uint64(0xFFFFFFFF)).astype(np.uint32), (place >> np.uint64(32)).astype(np.uint32)
    words = np.stack(threefry2x32(np, k[..., 0], k[..., 1], low, high), -1)
    return words if np.ndim(index) or k.ndim > 1 else words[0]


def unfolded(k: np.ndarray, index: np.ndarray) -> np.ndarray:
    """What `folded` makes those keys of: the words of `k` and of `index`, of shape (…, 4)."""
    place = np.ascontiguousarray(index, "<u8").view("<u4").astype(np.uint32, copy=False).reshape(*index.shape, 2)
    return np.concatenate([k, place], -1)


def folded(k: np.ndarray) -> np.ndarray:
    """Keys, of shape (…, 2), from such, or from what `unfolded` gives."""
    return k if k.shape[-1] == 2 else np.stack(threefry2x32(np, *np.moveaxis(k, -1, 0)), -1)


def threefry2x32(xp: Any, k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds of the uint32 counters (x0, x1) under the uint32 keys (k0, k1)."""
    zeros = xp.zeros_like(x0 + x1 + k0 + k1)  # of the shape of all, in which every step runs through in one loop
    return _twenty_rounds(x0 + zeros, x1 + zeros, k0 + zeros, k1 + zeros, operator.lshift)


def _twenty_rounds(x0: Array, x1: Array, k0: Array, k1: Array, shifted: Callable[..., Array]) -> tuple[Array, Array]:
    """`threefry2x32` of counters that may be changed in place."""
    schedule = k0, k1, k0 ^ k1 ^ _PARITY
    x0 += k0
    x1 += k1
    for group in range(5):
        for left, right in _ROTATIONS[group % 2]:
            x0 += x1
            high = shifted(x1, left)
            x1 >>= right
            x1 |= high
            x1 ^= x0
        x0 += schedule[(group + 1) % 3]
        x1 += schedule[(group + 2) % 3]
        x1 += _ROUNDS[group]
    return x0, x1


def box_muller(xp: Any, w0: Array, w1: Array, dtype: Any) -> tuple[Array, Array]:
    """Two independent N(0,1) numbers from two uniform 32-bit words, accurate to rounding in `dtype`.

    With u = (w0 + ½)/2³² the radius is √(-2 ln u); for u > ½ it is computed from 1 - u, which an
    integer complement gives exactly, since u itself would round to 1.
    """
    half = (xp.minimum(w0, ~w0).astype(dtype) + xp.asarray(0.5, dtype)) * xp.asarray(2.0**-32, dtype)
    log_u = xp.where(w0 < xp.uint32(1 << 31), xp.log(half), xp.log1p(-half))
    radius = xp.sqrt(xp.asarray(-2, dtype) * log_u)
    angle = w1.view(xp.int32).astype(dtype) * xp.asarray(math.pi * 2.0**-31, dtype)
    return radius * xp.cos(angle), radius * xp.sin(angle)


def _box_muller_into(left: np.ndarray, right: np.ndarray, w0: np.ndarray, w1: np.ndarray, scratch: Scratch) -> None:
    """`box_muller` with NumPy in memory that is there already, for which the system need not be asked.

    Both logarithms get factors 0 and 1, since to choose among random ones costs more than to compute them.
    """
    spare, radius, beyond, other = scratch
    np.copyto(beyond, np.right_shift(w0, _word(31), out=spare))
    np.copyto(radius, np.minimum(w0, np.invert(w0, out=spare), out=spare))
    radius += 0.5
    radius *= 2.0**-32
    np.log(radius, out=other)
    np.log1p(np.negative(radius, out=radius), out=radius)
    radius *= beyond
    other *= np.subtract(1, beyond, out=beyond)
    radius += other
    radius *= -2
    np.sqrt(radius, out=radius)
    angle = beyond
    np.copyto(angle, w1.view(np.int32))
    angle *= math.pi * 2.0**-31
    np.multiply(radius, np.cos(angle, out=other), out=left)
    np.multiply(radius, np.sin(angle, out=other), out=right)


def words(keys: np.ndarray, rows: tuple[int, int], pairs: tuple[int, int]) -> np.ndarray:
    """uint32 words of shape (*keys.shape[:-1], rows, pairs, 2): a block of word pairs of each key."""
    out = np.empty((*keys.shape[:-1], rows[1] - rows[0], pairs[1] - pairs[0], 2), np.uint32)
    _fill(out, keys, rows, pairs[0], _words_into)
    return out


def uniforms(keys: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """float64 numbers on (-1, 1), of shape (…, rows, columns): (word + ½)/2³¹ of the words taken as signed."""
    pairs = words(keys, (0, rows), (0, (columns + 1) // 2))
    flat = pairs.reshape(*pairs.shape[:-2], -1)[..., :columns]
    return (flat.view(np.int32) + 0.5) * 2.0**-31


def orders(keys: np.ndarray, size: int) -> np.ndarray:
    """Permutations of 0 … size-1, of shape (…, size): each is sorted by the 64-bit words of its key."""
    lots = words(keys, (0, 1), (0, size))[..., 0, :, :].astype(np.uint64)
    return np.argsort(lots[..., 0] << np.uint64(32) | lots[..., 1], axis=-1, kind="stable")


def normals(keys: np.ndarray, rows: tuple[int, int], columns: tuple[int, int], dtype: Any) -> np.ndarray:
    """The block [rows[0]:rows[1], columns[0]:columns[1]] of the Gaussian matrix of each key, with NumPy.

    `keys` has shape (…, 2); the result has shape (…, rows, columns).

    >>> whole = normals(key(0, "w"), (0, 4), (0, 6), np.float64)
    >>> bool((normals(key(0, "w"), (1, 3), (2, 6), np.float64) == whole[1:3, 2:]).all())
    True
    """
    first, last = columns[0] // 2, (columns[1] + 1) // 2
    height, odd = rows[1] - rows[0], columns[0] % 2
    out = np.empty((*keys.shape[:-1], height, last - first, 2), dtype)
    _fill(out, keys, rows, first, _box_muller_into)
    entries = out.reshape(*keys.shape[:-1], height, 2 * (last - first))
    return entries[..., odd : odd + columns[1] - columns[0]]


def _words_into(left: np.ndarray, right: np.ndarray, w0: np.ndarray, w1: np.ndarray, scratch: Scratch) -> None:
    left[...], right[...] = w0, w1


def _fill(out: np.ndarray, keys: np.ndarray, rows: tuple[int, int], first: int, write: Callable[..., None]) -> None:
    """Fill `out`, of shape (…, rows, pairs, 2), with what is made of the word pairs, chunk by chunk."""
    height, pairs = out.shape[-3:-1]
    lines = out.reshape(math.prod(out.shape[:-2]), pairs, 2)
    owner = np.repeat(keys.reshape(-1, 2, 1), height, axis=0)
    index = np.tile(np.arange(*rows, dtype=np.uint32), len(lines) // max(height, 1))
    step = max(1, _CHUNK // max(pairs, 1))
    chunks = [(top, left) for top in range(0, len(lines), step) for left in range(0, pairs, _CHUNK)]

    def fill(chunks: list[tuple[int, int]]) -> None:
        held = vars(_SCRATCH)
        words, floats = (held.setdefault(kind, np.empty((3, _CHUNK), kind)) for kind in ("uint32", out.dtype.name))
        for top, left in chunks:
            target = lines[top : top + step, left : left + _CHUNK]
            (x0, x1, spare), (*scratch,) = (
                memory[:, : target.size // 2].reshape(3, *target.shape[:2]) for memory in (words, floats)
            )
            x0[:] = np.arange(first + left, first + left + x0.shape[1], dtype=np.uint32)
            x1[:] = index[top : top + step, None]
            key = owner[top : top + step]
            if (key == key[0]).all():
                k0, k1 = key[0]
            else:  # spread out, so that every step runs through in one loop
                k0, k1 = (np.repeat(key[:, word], x0.shape[1], 1) for word in range(2))
            _twenty_rounds(x0, x1, k0, k1, partial(np.left_shift, out=spare))
            write(target[..., 0], target[..., 1], x0, x1, (spare, *scratch))

    if len(lines) * pairs < _THREADED:
        fill(chunks)
        return
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(fill, (chunks[place::threads] for place in range(threads))):
            pass
