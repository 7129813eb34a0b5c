"""How to install a part of this package that is missing: from a clone or from an index, whichever this one is."""

from __future__ import annotations

from pathlib import Path


def install(extra: str) -> str:
    """The command that installs an extra.

    >>> install("lab").startswith("pip install ")
    True
    """
    root = Path(__file__).parents[2]
    if (root / "pyproject.toml").is_file() and (root / "constraints.txt").is_file():
        return f"`pip install -c constraints.txt -e '.[{extra}]'` in {root}"
    return f"`pip install 'stiefel-init[{extra}]'`"
