"""Schedules: how the learning rate changes over the steps of a training."""

from __future__ import annotations

import math

from .cell import ScheduleName

WARM_UP = 0.1
"""The share of the steps that a warm-up takes."""
RELEASED = 1 / 16
"""Of the rate, once weights are let go: free training takes no larger one."""


def factor(schedule: ScheduleName, step: int, steps: int) -> float:
    """What the learning rate of a step, counted from 0, is multiplied with.

    With W = ⌈steps/10⌉, `"cosine"` is (step + 1)/W while step < W, then (1 + cos(π (step - W)/(steps - W)))/2.
    With H = ⌈steps/2⌉, `"release"` is 1 while step < H, on the set, then (1 + cos(π (step - H)/(steps - H)))/32 off it.

    >>> [round(factor("cosine", step, 20), 2) for step in (0, 1, 2, 11, 19)]
    [0.5, 1.0, 1.0, 0.5, 0.01]
    >>> [round(factor("release", step, 20), 4) for step in (0, 9, 10, 15)]
    [1.0, 1.0, 0.0625, 0.0312]
    """
    if schedule == "constant" or (schedule == "release" and not released(schedule, step, steps)):
        return 1.0
    if schedule == "release":
        held = math.ceil(steps / 2)
        return RELEASED * _falling(step - held, steps - held)
    warm = math.ceil(WARM_UP * steps)
    if step < warm:
        return (step + 1) / warm
    return _falling(step - warm, steps - warm)


def released(schedule: ScheduleName, step: int, steps: int) -> bool:
    """Whether a step, counted from 0, is free of the set."""
    return schedule == "release" and step >= math.ceil(steps / 2)


def _falling(step: int, steps: int) -> float:
    """Half a cosine, from 1 to 0."""
    return (1 + math.cos(math.pi * step / max(steps, 1))) / 2
