"""Keras 3: a constraint that keeps the kernels of layers in the set, with any optimizer."""

from __future__ import annotations

import math
from typing import Any

import keras

from ..core.errors import StiefelError
from ..core.geometry import ones_entry

__all__ = ["Aligned"]


@keras.saving.register_keras_serializable(package="stiefel_init")
class Aligned(keras.constraints.Constraint):  # type: ignore[misc]
    r"""Replaces a kernel by its nearest member of Õ(m,n) after every update.

    Give it as `kernel_constraint`. The kernel of a Dense layer, of shape (n, m), is the transpose of a member, which is
    a member of Õ(n,m). The kernel of a Conv layer, of shape (…, n, m), is read as a matrix of (… · n) × m. Keras calls
    it inside compiled steps, so values are not checked: start from a member, for example with `keras.Stiefel`.

    >>> kernel = Aligned()(2 * keras.ops.eye(3))
    >>> bool(keras.ops.max(keras.ops.abs(kernel - keras.ops.eye(3))) < 1e-6)
    True
    """

    def __call__(self, w: Any) -> Any:
        shape = tuple(w.shape)
        if len(shape) < 2:
            raise StiefelError(f"a kernel has shape {shape}; give Aligned to kernels of two or more axes.")
        if 0 in shape:
            return w
        kernel = keras.ops.convert_to_tensor(w)
        kind = keras.backend.standardize_dtype(kernel.dtype)
        work = keras.ops.cast(kernel, "float64" if kind == "float64" else "float32")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        matrix = keras.ops.reshape(work, (rows, columns))
        # As `geometry.nearest`, in keras.ops: not every backend's arrays have methods.
        for axis in (0, 1):
            matrix = matrix - keras.ops.mean(matrix, axis=axis, keepdims=True)
        u, _, v = keras.ops.svd(matrix, full_matrices=False)
        size = min(rows, columns) - 1  # the last singular value belongs to the ones
        member = keras.ops.matmul(u[:, :size], v[:size]) + ones_entry(rows, columns)
        return keras.ops.cast(keras.ops.reshape(member, shape), kind)
