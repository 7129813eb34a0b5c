"""Commands about the paper, `reproduce` and `compare`: those of the clone's `paper/`, which no wheel has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import typer

from ...core.errors import StiefelError

ROOT = Path(__file__).parents[4]


def find() -> bool:
    """Whether this is a clone; its `paper` can then be imported."""
    if not (ROOT / "paper" / "commands.py").is_file():
        return False
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return True


def commands() -> dict[str, Callable[..., None]]:
    """The clone's commands by name; without it, commands that say where to get it."""
    if find():
        from paper import commands

        return {"reproduce": commands.reproduce, "compare": commands.compare}
    return dict.fromkeys(("reproduce", "compare"), absent)


def absent(context: typer.Context) -> None:
    """In a clone of the repository only: the paper's tables and figures, and our studies."""
    raise StiefelError(
        f"{context.info_name} needs the paper's experiments, which are in the repository and not in the package; clone "
        "it, install it from there and run this again."
    )
