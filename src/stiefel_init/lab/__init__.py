"""The laboratory: data, networks, training, records and the command line.

    from stiefel_init.lab import Cell, from_arrays, run

    mine = from_arrays(x, y)
    records = run([Cell("mine", scheme, depth=50) for scheme in ("stiefel", "he")], datasets={"mine": mine})

Everything is loaded on first use, so that the command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import Dataset, from_arrays, from_file, from_images, load
    from .report.tables import Table, summary
    from .train.cell import Cell
    from .train.record import Record
    from .train.runner import run

__all__ = [
    "Cell", "Dataset", "Record", "Table", "from_arrays", "from_file", "from_images",
    "load", "run", "summary",
]  # fmt: skip

_HOME = {
    "Cell": "train.cell", "Record": "train.record", "Table": "report.tables", "run": "train.runner",
    "summary": "report.tables",
}  # fmt: skip
"""Where names are that are not in `data`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME.get(name, 'data')}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
