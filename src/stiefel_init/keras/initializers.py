"""Initializers for the kernels of Dense and Conv layers, on every backend."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np

from ..core import validate as _validate
from ..core.errors import StiefelError
from ..core.sample import of_kernel
from ..recipe.layers import DTYPES
from ..schemes import SchemeName, get


@keras.saving.register_keras_serializable(package="stiefel_init")
class Initializer(keras.initializers.Initializer):  # type: ignore[misc]
    r"""Draws gain · W, where W is an m × n matrix of the scheme for m outputs and n inputs.

    The kernel of a Dense layer, of shape (n, m), is Wᵀ. In the kernel of a Conv layer, of shape (…, n, m), entrywise
    schemes fill the whole window; the others put Wᵀ at its centre, index (k - 1) // 2 of k, and zeros elsewhere, so
    that the layer applies W to each pixel. Do not use it for attention layers: their kernels, of shape (inputs, heads,
    size), look like those of Conv1D.

    Args:
        scheme: A name of `stiefel_init.schemes.names()`.
        gain: Factor on W.
        seed: `None` for a new matrix on every call, which follows `keras.utils.set_random_seed`. With an int, call
            k = 0, 1, … of this object returns, up to rounding,
            `stiefel_init.draw(scheme, m, n, seed=seed, name=str(k))`, the same on every backend. So layers that share
            one `Initializer(seed=0)` get different weights, unlike with Keras' own initializers. Keras calls it once
            for each kernel of a model that has an Input, and again where it first has to find out the shapes. An
            object made from a config starts again at call 0.
        groups: Number of independent matrices, of m / groups outputs each, side by side in the kernel: the `groups` of
            a Conv layer, 4 for an LSTM and 3 for a GRU (one matrix for each gate). Or `"depthwise"`, for the kernel
            (…, channels, multiplier) of a DepthwiseConv layer: one matrix for each channel.

    >>> Initializer("identity")((3, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        scheme: SchemeName = "stiefel",
        gain: float = 1.0,
        seed: int | None = None,
        groups: int | Literal["depthwise"] = 1,
    ) -> None:
        self.scheme = get(scheme)
        self.gain = _validate.number("gain", gain)
        self.seed = None if seed is None else _validate.size("seed", seed)
        self.groups = groups if groups == "depthwise" else _validate.size("groups", groups, at_least=1)
        self._calls = 0

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        shape = _validate.shape("shape", tuple(shape))
        if len(shape) < 2:
            raise StiefelError(f"shape={shape} has {len(shape)} axes; a kernel needs two or more.")
        kind = keras.backend.standardize_dtype(dtype)
        if kind not in DTYPES:
            raise StiefelError(f"dtype={dtype!r} is not supported; use one of {', '.join(DTYPES)}.")
        kernel = np.zeros(shape, "float64" if kind == "float64" else "float32")
        *window, rows, columns = shape
        filled = window if self.scheme.entrywise else ()
        matrices = self.gain * self._matrices(rows, columns, math.prod(filled), kernel.dtype)
        if kernel.size:
            # (groups, outputs, inputs, *places) to (*places, inputs, groups · outputs)
            groups, outputs = matrices.shape[:2]
            apart = matrices.reshape(groups, outputs, -1, *filled)
            order = (*range(3, apart.ndim), 2, 0, 1)
            centre = () if self.scheme.entrywise else tuple((k - 1) // 2 for k in window)
            kernel[centre] = apart.transpose(order).reshape(*filled, rows, columns)
        return keras.ops.convert_to_tensor(kernel, dtype=kind)

    def _matrices(self, rows: int, columns: int, places: int, dtype: np.dtype) -> np.ndarray:
        """The next matrices, of shape (groups, m, n · places), for a kernel with rows × columns at each place."""
        if self.groups == "depthwise":
            batch, m, n = rows, columns, 1
        else:
            batch = _validate.size("groups", self.groups)
            m, n = columns // batch, rows
            if m * batch != columns:
                raise StiefelError(f"groups={batch} does not divide the {columns} outputs of a kernel of this layer.")
        seed, name = (random.getrandbits(63), "") if self.seed is None else (self.seed, str(self._calls))
        self._calls += 1
        return of_kernel(self.scheme, m, n * places, places, batch, seed, name, dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments by name, as Keras saves them."""
        return {"scheme": str(self.scheme), "gain": self.gain, "seed": self.seed, "groups": self.groups}


@keras.saving.register_keras_serializable(package="stiefel_init")
class Stiefel(Initializer):
    r"""`Initializer("stiefel")`: W uniform on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }.

    Args:
        gain: Factor on W.
        seed: As in `Initializer`.
        groups: As in `Initializer`.

    >>> kernel = Stiefel()((3, 2))
    >>> [round(float(total), 4) for total in keras.ops.sum(kernel, axis=0)]  # √(3/2): ones map to ones
    [1.2247, 1.2247]
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None, groups: int | Literal["depthwise"] = 1) -> None:
        super().__init__("stiefel", gain, seed, groups)

    def get_config(self) -> dict[str, Any]:
        """The arguments by name, as Keras saves them."""
        return {name: value for name, value in super().get_config().items() if name != "scheme"}
