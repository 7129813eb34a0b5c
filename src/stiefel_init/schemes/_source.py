"""What a scheme draws from: `Source`, which each framework implements for its own arrays."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Array = Any


class Source(Protocol):
    """Independent random streams for `count` matrices of m rows and n columns, as arrays of one framework.

    A seeded source gives the same numbers, up to rounding, in every framework and on every device, in the precision
    that matrices are computed in: float64 for float64, float32 for everything else. `Scheme` shows one in use.
    """

    xp: Any
    """The array namespace: `numpy`, `torch` or `jax.numpy`."""
    count: int
    m: int
    """Outputs."""
    n: int
    """Fan-in: inputs, times the kernel's entries if a convolution's whole kernel is filled."""
    fan_out: int
    """Outputs, times the kernel's entries likewise."""

    def normals(self, rows: int, columns: int) -> Array:
        """N(0, 1) numbers of shape (count, rows, columns)."""

    def uniforms(self, rows: int, columns: int) -> Array:
        """Numbers uniform on (-1, 1), of shape (count, rows, columns)."""

    def orders(self, size: int) -> Array:
        """Random permutations of 0 … size-1, of shape (count, size)."""

    def semi_orthogonal(self, *, aligned: bool) -> Array:
        """Matrices of shape (count, m, n): uniform on Õ(m,n) if `aligned`, else Haar semi-orthogonal."""

    def array(self, values: np.ndarray) -> Array:
        """`values` as an array of the framework."""

    def turn(self, a: Array, norm: float) -> Array:
        """exp(a) - I of each of a batch of skew-symmetric matrices, whose spectral norms are at most `norm`."""

    def erfinv(self, a: Array) -> Array:
        """The inverse of the error function, entry by entry."""

    def precise(self) -> Source:
        """The same streams in float64, where the framework has it."""
