"""Parameters that nobody meant to be so: memory without values, and equal values in two places."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

HUGE = 1e6
"""No initialization has entries this large."""


def never_initialized(values: np.ndarray, smallest: float, *, is_weight: bool) -> str:
    """Why a parameter looks as if it had never been given values; empty if it does not.

    Args:
        values: The parameter.
        smallest: The smallest normal number of its dtype.
        is_weight: Whether it is a matrix or a kernel, which zeros would keep from learning.
    """
    if not np.isfinite(values).all():
        return f"{int((~np.isfinite(values)).sum())} entries are not finite: never initialized?"
    size = np.abs(values)
    if (size > HUGE).any():
        return f"entries up to {size.max():.1e}: never initialized?"
    if ((size > 0) & (size < smallest)).any():
        return "entries too small for its dtype: never initialized?"
    return "all zeros: never initialized?" if is_weight and not size.any() else ""


def equal_parameters(values: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Parameters that have the values of an earlier one: name → the earlier one's name."""
    first: dict[tuple[tuple[int, ...], bytes], str] = {}
    found: dict[str, str] = {}
    for name, value in values.items():
        if value.size > 1 and value.min() < value.max():
            key = value.shape, hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
            if key in first:
                found[name] = first[key]
            first.setdefault(key, name)
    return found


def equal_units(weight: np.ndarray, bias: np.ndarray | None) -> int:
    """How many units of a layer, rows of its weight with their biases, repeat an earlier one; rows of zeros aside."""
    rows = weight.reshape(len(weight), -1)
    if bias is not None and bias.shape == (len(rows),):
        rows = np.column_stack([rows, bias])
    rows = rows[np.abs(weight.reshape(len(weight), -1)).sum(1) > 0]
    return len(rows) - len(np.unique(rows, axis=0))
