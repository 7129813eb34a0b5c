"""The laboratory: data, networks, training, records and the command line.

    from stiefel_init.lab import Cell, from_arrays, run

    mine = from_arrays(x, y)
    records = run([Cell("mine", scheme, depth=50) for scheme in ("stiefel", "he")], datasets={"mine": mine})

What it offers is loaded when it is first asked for, so that the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cells import ACTIVATIONS, SCHEMES, Cell
    from .data import Dataset, from_arrays, from_csv, load
    from .runner import run
    from .study import summary

__all__ = ["ACTIVATIONS", "SCHEMES", "Cell", "Dataset", "from_arrays", "from_csv", "load", "run", "summary"]

_HOME = {
    **dict.fromkeys(("ACTIVATIONS", "SCHEMES", "Cell"), "cells"),
    **dict.fromkeys(("Dataset", "from_arrays", "from_csv", "load"), "data"),
    "run": "runner",
    "summary": "study",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
