"""Schedules: how the learning rate changes over the steps of a training."""

from __future__ import annotations

import math

from .cell import ScheduleName

WARM_UP = 0.1
"""The share of the steps that a warm-up takes."""


def factor(schedule: ScheduleName, step: int, steps: int) -> float:
    """What the learning rate of a step, counted from 0, is multiplied with.

    With W = ⌈steps/10⌉, `"cosine"` is (step + 1)/W while step < W, then (1 + cos(π (step - W)/(steps - W)))/2.

    >>> [round(factor("cosine", step, 20), 2) for step in (0, 1, 2, 11, 19)]
    [0.5, 1.0, 1.0, 0.5, 0.01]
    """
    if schedule == "constant":
        return 1.0
    warm = math.ceil(WARM_UP * steps)
    if step < warm:
        return (step + 1) / warm
    return (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1))) / 2
