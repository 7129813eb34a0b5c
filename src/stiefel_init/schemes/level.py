"""What smooth activations take of a signal, and what makes up for it: a common level, or a gain."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

_TAKEN = 2.0
"""Of the level, by all layers of a row together: about what networks of 15 and of 40 layers train best from."""
_HIGHEST = 30.0
_KEPT: dict[str, Callable[[float], float]] = {
    "silu": lambda level: 1 / (1 + math.exp(-level)),
    "gelu": lambda level: 0.5 * (1 + math.erf(level / math.sqrt(2))),
    "mish": lambda level: math.tanh(math.log1p(math.exp(level))),
    "hardswish": lambda level: min(max((level + 3) / 6, 0.0), 1.0),
}
"""Activation → φ(level) / level: the share of a level that it keeps. A rectifier keeps all of it."""


def level(activation: str | None, layers: int) -> float:
    """The common level at which L layers in a row pass a signal on; 0 for short rows, and activations that need none.

    Members of the set keep the mean of a signal, and a rectifier keeps it too. Smooth ones take a share of a low level
    in every layer, until the signal is where they are small: twenty layers of SiLU halve it twenty times. High enough,
    a level loses little, L (1 - φ(c)/c) ≤ 2 times itself in L layers.

    >>> level("relu", 40), level("silu", 4), round(level("silu", 40), 2), round(level("gelu", 40), 2)
    (0.0, 0.0, 2.94, 1.64)
    """
    kept = _KEPT.get(activation or "")
    if kept is None or layers * (1 - kept(0.0)) <= _TAKEN:
        return 0.0
    low, high = 0.0, _HIGHEST
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if layers * (1 - kept(middle)) > _TAKEN else (low, middle)
    return high


@lru_cache
def gain(activation: str) -> float:
    """What keeps the size of a random signal through a smooth activation: g = 1/√E φ(z)², z ~ N(0, 1).

    A rectifier's is √2. Where weights without a common level, g times orthonormal rows, read what such an activation
    makes of a signal of size 1, what they make has size 1 again.

    >>> {name: round(gain(name), 2) for name in _KEPT}
    {'silu': 1.68, 'gelu': 1.53, 'mish': 1.49, 'hardswish': 1.74}
    """
    kept = _KEPT[activation]
    z, weights = np.polynomial.hermite_e.hermegauss(100)
    power = sum(w * (x * kept(x)) ** 2 for x, w in zip(z.tolist(), weights.tolist())) / math.sqrt(2 * math.pi)
    return 1 / math.sqrt(power)
