"""The one exception this package raises for bad input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class StiefelError(ValueError):
    """Bad input, in one sentence: what was wrong, its value, what to do.

    >>> from stiefel_init import sample
    >>> sample(-1, 3)
    Traceback (most recent call last):
    ...
    stiefel_init._errors.StiefelError: m=-1 is negative; give 0 or more.
    """


def unknown(what: str, value: Any, valid: Iterable[str]) -> StiefelError:
    """The error for a name that is not one of `valid`."""
    return StiefelError(f"{what}={value!r} is not known; choose one of {', '.join(map(repr, valid))}.")
