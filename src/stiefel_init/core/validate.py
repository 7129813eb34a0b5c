"""Checks of sizes, batches and seeds, shared by every framework's entry points."""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, get_args

from .errors import StiefelError

Method = Literal["householder", "algorithm1", "algorithm2"]
METHODS: tuple[Method, ...] = get_args(Method)


def size(name: str, value: Any, *, at_least: int = 0) -> int:
    """`value` as an int that is not below another."""
    try:
        number = operator.index(value)
    except TypeError:
        raise StiefelError(f"{name}={value!r} is not a whole number; give {name} as an int.") from None
    if number < at_least:
        raise StiefelError(f"{name}={number} is {'negative' if number < 0 else 'too small'}; give {at_least} or more.")
    return number


def shape(name: str, value: Any) -> tuple[int, ...]:
    """`value`, an int or a sequence of ints, as a tuple of non-negative ints."""
    if isinstance(value, (tuple, list)):
        return tuple(size(f"{name}[{i}]", entry) for i, entry in enumerate(value))
    return (size(name, value),)


def number(
    name: str, value: Any, *, at_least: float = -math.inf, above: float = -math.inf, hint: str = "give a finite float"
) -> float:
    """`value` as a finite float in its range."""
    try:
        result = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError):
        result = math.nan
    if not (math.isfinite(result) and result >= at_least and result > above):
        bound = f" ≥ {at_least:g}" if at_least > -math.inf else f" > {above:g}" if above > -math.inf else ""
        raise StiefelError(f"{name}={value!r} is not a finite number{bound}; {hint}.")
    return result


def decay(name: str, value: Any) -> float:
    """`value` as a float in [0, 1): how much of a moment is left after a step."""
    if not 0 <= number(name, value) < 1:
        raise StiefelError(f"{name}={value!r} is not in [0, 1); give how much of it is left after a step.")
    return float(value)
