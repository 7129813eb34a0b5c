"""What to do about a package that is missing: one sentence, with the command for a clone or for an index."""

from __future__ import annotations

import os
from pathlib import Path


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
