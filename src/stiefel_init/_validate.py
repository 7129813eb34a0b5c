"""Checks of sizes, batches and seeds, shared by every framework's entry points."""

from __future__ import annotations

import math
import operator
from typing import Any

from ._errors import StiefelError

METHODS = ("householder", "algorithm1", "algorithm2")


def size(name: str, value: Any) -> int:
    """`value` as a non-negative int."""
    try:
        number = operator.index(value)
    except TypeError:
        raise StiefelError(f"{name}={value!r} is not a whole number; give {name} as an int.") from None
    if number < 0:
        raise StiefelError(f"{name}={number} is negative; give 0 or more.")
    return number


def shape(name: str, value: Any) -> tuple[int, ...]:
    """`value`, an int or a sequence of ints, as a tuple of non-negative ints."""
    if isinstance(value, (tuple, list)):
        return tuple(size(f"{name}[{i}]", entry) for i, entry in enumerate(value))
    return (size(name, value),)


def gain(value: Any) -> float:
    """`value` as a finite float."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise StiefelError(f"gain={value!r} is not a number; give a finite float.") from None
    if not math.isfinite(number):
        raise StiefelError(f"gain={number} is not finite; give a finite float.")
    return number
