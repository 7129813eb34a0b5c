"""The one exception this package raises for bad input."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class StiefelError(ValueError):
    """Bad input, in one sentence: what was wrong, its value, what to do.

    >>> from stiefel_init import sample
    >>> sample(-1, 3)
    Traceback (most recent call last):
    ...
    stiefel_init.core.errors.StiefelError: m=-1 is negative; give 0 or more.
    """


def unknown(what: str, value: Any, valid: Iterable[str]) -> StiefelError:
    """The error for a name that is not one of `valid`; it names the one that is nearest, if one is near.

    >>> print(unknown("optimizer", "AdamW", ("adam", "sgd")))
    optimizer='AdamW' is not known; choose one of 'adam', 'sgd' (did you mean 'adam'?).
    """
    known = list(valid)
    choices = ", ".join(map(repr, known))
    return StiefelError(f"{what}={value!r} is not known; choose one of {choices}{meant(value, known)}.")


def meant(value: Any, valid: Iterable[str]) -> str:
    """Words for the end of a sentence: the name that is nearest; none if none is near."""
    names = {name.lower(): name for name in valid}
    near = get_close_matches(str(value).lower(), names, 1)
    return f" (did you mean {names[near[0]]!r}?)" if near else ""
