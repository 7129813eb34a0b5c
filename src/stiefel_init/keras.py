"""Keras 3: `Stiefel`, an initializer for the kernels of Dense and Conv layers, on every backend of Keras."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy as np

from . import _validate
from ._errors import StiefelError
from ._sample import sample

__all__ = ["Stiefel"]

_DTYPES = ("float64", "float32", "bfloat16", "float16")


@keras.saving.register_keras_serializable(package="stiefel_init")
class Stiefel(keras.initializers.Initializer):  # type: ignore[misc]
    r"""Draws gain · W, W uniform on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }, for m outputs and n inputs.

    The kernel of a Dense layer, of shape (n, m), is Wᵀ. That of a Conv layer, of shape (…, n, m), has Wᵀ at
    the centre of its window, index (k - 1) // 2 of k, and zeros elsewhere: the layer acts on each pixel
    as W does. The kernels of attention layers, of shape (inputs, heads, size), look like those of Conv1D
    and are not meant here.

    Args:
        gain: what W is multiplied by.
        seed: `None` for a matrix that is new on every call and follows `keras.utils.set_random_seed`; or an
            int: then call number k = 0, 1, … of this object gives, to rounding,
            `stiefel_init.sample(m, n, seed=seed, name=str(k))`, the same on every backend. So the layers that
            share one `Stiefel(seed=0)` differ, unlike with Keras' own initializers, and the same program gives
            the same weights. Keras calls once for each kernel of a model that has its Input, and again where
            it must find out shapes first. An object made from a config begins at call 0.
        groups: how many independent matrices, of m / groups outputs each, lie side by side in the kernel: the
            `groups` of a Conv layer, 4 for an LSTM and 3 for a GRU layer (one matrix for each gate). Or
            `"depthwise"`, for the kernel (…, channels, multiplier) of a DepthwiseConv layer: one matrix for
            each channel, so that every channel passes as it is, times 1/√multiplier.

    >>> kernel = Stiefel()((3, 2))
    >>> [round(float(total), 4) for total in keras.ops.sum(kernel, axis=0)]  # √(3/2): ones go to ones
    [1.2247, 1.2247]
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None, groups: int | str = 1) -> None:
        self.gain = _validate.gain(gain)
        self.seed = None if seed is None else _validate.size("seed", seed)
        if groups != "depthwise" and _validate.size("groups", groups) == 0:
            raise StiefelError('groups=0 is not a number of matrices; give an int from 1 on, or "depthwise".')
        self.groups = groups
        self._calls = 0

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        shape = _validate.shape("shape", tuple(shape))
        if len(shape) < 2:
            raise StiefelError(f"shape={shape} has {len(shape)} axes; a kernel needs two or more.")
        kind = keras.backend.standardize_dtype(dtype)
        if kind not in _DTYPES:
            raise StiefelError(f"dtype={dtype!r} is not supported; use one of {', '.join(_DTYPES)}.")
        kernel = np.zeros(shape, "float64" if kind == "float64" else "float32")
        *window, rows, columns = shape
        matrices = self._matrices(rows, columns, kernel.dtype)
        if kernel.size:
            centre = tuple((k - 1) // 2 for k in window)
            kernel[centre] = self.gain * matrices.transpose(2, 0, 1).reshape(rows, columns)
        return keras.ops.convert_to_tensor(kernel, dtype=kind)

    def _matrices(self, rows: int, columns: int, dtype: np.dtype) -> np.ndarray:
        """The next members of the set, of shape (groups, m, n), for the rows × columns at a kernel's centre."""
        if self.groups == "depthwise":
            batch, m, n = rows, columns, 1
        else:
            batch = _validate.size("groups", self.groups)
            m, n = columns // batch, rows
            if m * batch != columns:
                raise StiefelError(f"groups={batch} does not divide the {columns} outputs of a kernel of this layer.")
        seed, name = (random.getrandbits(63), "") if self.seed is None else (self.seed, str(self._calls))
        self._calls += 1
        return sample(m, n, batch=batch, seed=seed, name=name, dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain, "seed": self.seed, "groups": self.groups}
