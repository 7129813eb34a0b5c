"""The one exception this package raises for bad input, and the sentence for a package that is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class StiefelError(ValueError):
    """Bad input, in one sentence: what was wrong, its value, what to do.

    Every function raises it for what it cannot use, before anything is changed.

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


def said(error: Exception) -> str:
    """The first line of an error of someone else's, to go on with in a sentence."""
    return (str(error).strip().splitlines() or [""])[0].rstrip(".:")


def install(extra: str) -> str:
    """The command that installs an extra, from the clone that this is, or from an index.

    >>> install("lab").startswith("`pip install ")
    True
    """
    root = Path(__file__).parents[3]
    if (root / "pyproject.toml").is_file() and (root / "constraints.txt").is_file():
        return f"`pip install -c constraints.txt -e '.[{extra}]'` in {root}"
    return f"`pip install 'stiefel-init[{extra}]'`"


def missing(error: ModuleNotFoundError, what: str, package: str, extra: str) -> ImportError:
    """The sentence for a failed import: of the package itself, of Keras's backend, or else the error as it is.

    >>> str(missing(ModuleNotFoundError("", name="jax"), "stiefel_init.jax", "jax", "jax"))[:54]
    'stiefel_init.jax needs jax, which is not installed; ru'
    """
    name = (error.name or "").partition(".")[0]
    if name == package:
        return ImportError(f"{what} needs {package}, which is not installed; run {install(extra)}.", name=package)
    if package == "keras" and name in ("tensorflow", "jax", "torch"):
        chosen = os.environ.get("KERAS_BACKEND", "tensorflow, its default")
        return ImportError(
            f"{what} needs a backend of Keras, and {name} is not installed (KERAS_BACKEND is {chosen}); set "
            "KERAS_BACKEND to jax, torch or tensorflow, whichever you have or install.",
            name=name,
        )
    return error
