"""The leaky ReLU that is tailored to a network's depth."""

from __future__ import annotations

import math
from functools import lru_cache

from ..core import validate

CORRELATION = 0.9
"""Of two orthogonal inputs, at the end of the network; the paper's η."""


def correlation_after(slope: float, depth: int, start: float = 0.0) -> float:
    """The correlation of two signals behind `depth` layers with a leaky ReLU of that slope.

    Each maps c to c + (1-a)²/(π(1+a²)) · (√(1-c²) - c·arccos c).

    >>> round(correlation_after(0.0, 1), 4)  # ReLU: 1/π
    0.3183
    """
    strength = (1 - slope) ** 2 / (math.pi * (1 + slope**2))
    c = start
    for _ in range(depth):
        c = min(1.0, c + strength * (math.sqrt(max(0.0, 1 - c * c)) - c * math.acos(c)))
    return c


@lru_cache
def tailored_slope(depth: int) -> float:
    """The slope a at which orthogonal inputs have correlation 0.9 after `depth` layers √(2/(1+a²)) · LeakyReLU_a.

    Zhang, Botev, Martens: Deep Learning without Shortcuts: Shaping the Kernel with Tailored Rectifiers (2022). In
    networks so shallow that ReLU itself stays below 0.9, the slope is 0. `depth` counts the activations.

    >>> [round(tailored_slope(depth), 2) for depth in (100, 300, 1000)]
    [0.57, 0.73, 0.84]
    """
    low, high = 0.0, 1.0
    if correlation_after(low, validate.size("depth", depth, at_least=1)) <= CORRELATION:
        return low
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if correlation_after(middle, depth) > CORRELATION else (low, middle)
    return (low + high) / 2


def tailored_scale(slope: float) -> float:
    """√(2/(1+a²)), which keeps the mean square of a centred Gaussian signal."""
    return math.sqrt(2 / (1 + slope**2))
