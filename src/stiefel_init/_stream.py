r"""(seed, name) → Gaussian numbers that are the same on every framework and device.

The numbers are a function of a 64-bit key and a position (row, column): word pair k of row i is
Threefry-2x32-20 of the counter (k, i) (Salmon, Moraes, Dror, Shaw 2011), and the Box–Muller
transform makes of it the entries 2k and 2k+1 of that row. Any sub-block of the infinite matrix can
be had without the rest, in any order, on any number of threads. `xp` is `numpy` or `jax.numpy`;
the Triton kernels of `stiefel_init.torch` compute the same function.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

Array = Any
Key = tuple[int, int]

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_CHUNK = 1 << 14  # word pairs worked on at once: the temporaries stay in the second-level cache
_THREADED = 1 << 18  # below this many word pairs, starting threads costs more than it saves


def key(seed: int, name: str = "") -> Key:
    """The key of the stream that belongs to `seed` and `name`: two 32-bit words of a BLAKE2b hash."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def fold(k: Key, index: int) -> Key:
    """The key of member `index` of a batch whose key is `k`."""
    words = threefry2x32(np, k, np.array([index & 0xFFFFFFFF], np.uint32), np.array([index >> 32], np.uint32))
    return int(words[0][0]), int(words[1][0])


def threefry2x32(xp: Any, k: Key, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds of the uint32 counters (x0, x1)."""
    schedule = [xp.uint32(word) for word in (k[0], k[1], k[0] ^ k[1] ^ _PARITY)]
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << rotation) | (x1 >> (32 - rotation))) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + xp.uint32(group + 1)
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


def normals(k: Key, rows: tuple[int, int], columns: tuple[int, int], dtype: Any) -> np.ndarray:
    """The block [rows[0]:rows[1], columns[0]:columns[1]] of the Gaussian matrix of key `k`, with NumPy.

    >>> whole = normals(key(0, "w"), (0, 4), (0, 6), np.float64)
    >>> bool((normals(key(0, "w"), (1, 3), (2, 6), np.float64) == whole[1:3, 2:]).all())
    True
    """
    first = columns[0] // 2
    pairs = (columns[1] + 1) // 2 - first
    out = np.empty((rows[1] - rows[0], pairs, 2), dtype)

    def fill(top: int, bottom: int, left: int, right: int) -> None:
        x0 = np.arange(first + left, first + right, dtype=np.uint32)
        x1 = np.arange(rows[0] + top, rows[0] + bottom, dtype=np.uint32)[:, None]
        words = threefry2x32(np, k, *np.broadcast_arrays(x0, x1))
        out[top:bottom, left:right, 0], out[top:bottom, left:right, 1] = box_muller(np, *words, dtype)

    def chunks() -> Iterator[tuple[int, int, int, int]]:
        height = max(1, _CHUNK // max(pairs, 1))
        for top in range(0, out.shape[0], height):
            for left in range(0, pairs, _CHUNK):
                yield top, min(top + height, out.shape[0]), left, min(left + _CHUNK, pairs)

    if out.shape[0] * pairs < _THREADED:
        for chunk in chunks():
            fill(*chunk)
    else:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None) as pool:
            for _ in pool.map(lambda chunk: fill(*chunk), chunks()):
                pass
    odd = columns[0] % 2
    return out.reshape(out.shape[0], 2 * pairs)[:, odd : odd + columns[1] - columns[0]]
