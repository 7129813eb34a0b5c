"""What `diagnose` and `watch` see of a PyTorch model: its layers and their calls, statistics of tensors, weights."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...core.errors import StiefelError


def plots() -> Any:
    """The module that draws, imported when it is asked for, as matplotlib need not be installed."""
    try:
        return import_module(".pictures", __name__)
    except ImportError as error:
        raise StiefelError(f"plot() needs matplotlib ({error}); run pip install matplotlib.") from None


def frame(records: list[dict[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """Records as a pandas DataFrame; where pandas is not installed, as they are."""
    try:
        import pandas
    except ImportError:
        return records
    return pandas.DataFrame(records, columns=columns)
