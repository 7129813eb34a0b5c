"""The user's own data, as arrays or as a CSV file; every defect is reported before anything is trained."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._errors import StiefelError, unknown
from .dataset import TASKS, TEST_SHARE, Dataset, Task

MOST_CLASSES = 20  # a target of whole numbers with more distinct values than this is taken for a quantity
SHOWN = 20  # columns named in a message


def from_arrays(x: Any, y: Any, *, name: str = "arrays", task: Task | None = None) -> Dataset:
    """Make a data set from arrays.

    Args:
        x: Features, of shape (rows, features).
        y: Targets, of shape (rows,). Classes may have any names; they are numbered in sorted order.
        name: The data set's name.
        task: By default classification if `y` is not numeric or has at most 20 distinct values, all of them whole
            numbers, and regression otherwise.

    Returns:
        The data set.

    Raises:
        StiefelError: for arrays that do not fit together, missing values, or classes too small to split.

    >>> x = np.arange(40.0).reshape(20, 2)
    >>> from_arrays(x, ["no", "yes"] * 10).classes
    2
    """
    try:
        features = np.asarray(x)
        if features.dtype.kind == "c":
            raise TypeError("they are complex")
        features = features.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise StiefelError(f"the features are not numbers ({error}); give an array of floats.") from None
    if features.ndim != 2:
        raise StiefelError(
            f"the features have shape {features.shape}; give (rows, features), as with reshape(len(x), -1)."
        )
    try:
        targets = np.asarray(y)
    except (TypeError, ValueError) as error:
        raise StiefelError(f"the targets are not an array ({error}); give one value per row.") from None
    return _build(name, features, [f"column {j}" for j in range(features.shape[1])], targets, task)


def from_csv(path: str | os.PathLike[str], target: str, *, task: Task | None = None) -> Dataset:
    """Make a data set from a CSV file with a header.

    Args:
        path: The file. Columns that are not numeric become integer codes, in the sorted order of their values.
        target: The column to predict; all others are features.
        task: As in `from_arrays`.

    Returns:
        The data set, named after the file.

    Raises:
        StiefelError: for a file that cannot be read, an unknown column, and as in `from_arrays`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "fruit.csv")
    ...     _ = path.write_text("weight,colour,kind\\n" + "150,red,apple\\n7,green,grape\\n" * 5)
    ...     fruit = from_csv(path, "kind")
    >>> fruit.name, fruit.x[:2].tolist(), fruit.y[:2].tolist()
    ('fruit', [[150.0, 1.0], [7.0, 0.0]], [0, 1])
    """
    frame = _read(Path(os.path.expanduser(path)))
    columns = [str(column) for column in frame.columns]
    if target not in columns:
        raise unknown("target", target, columns if len(columns) <= SHOWN else [*columns[:SHOWN], "…"])
    columns.remove(target)
    _refuse_gaps({column: int(frame[column].isna().sum()) for column in columns})
    x = np.empty((len(frame), len(columns)))
    for j, column in enumerate(columns):
        values = frame[column].to_numpy()
        x[:, j] = values if values.dtype.kind in "biuf" else np.unique(values.astype(str), return_inverse=True)[1]
    return _build(Path(path).stem, x, columns, frame[target].to_numpy(), task)


def _read(path: Path) -> Any:
    """The table in `path`, as a pandas data frame."""
    try:
        import pandas
    except ImportError:
        raise StiefelError("reading a CSV file needs pandas; run pip install 'stiefel-init[lab]'.") from None
    try:
        with warnings.catch_warnings():
            # Lines longer than the header would be cut, with a warning; that is damage, and told as such.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            frame = pandas.read_csv(path, index_col=False, low_memory=False)
    except OSError as error:
        raise StiefelError(f"{path} cannot be read ({error.strerror or error}); give the path of a CSV file.") from None
    except pandas.errors.EmptyDataError:
        raise StiefelError(f"{path} is empty; give a CSV file with a header and rows.") from None
    except (pandas.errors.ParserError, pandas.errors.ParserWarning, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise StiefelError(f"{path} is not a readable CSV file ({reason}); save it as UTF-8 with commas.") from None
    if frame.empty:
        raise StiefelError(f"{path} has a header and no rows; give a CSV file with rows.")
    return frame


def _build(name: str, x: np.ndarray, columns: Sequence[str], y: np.ndarray, task: Task | None) -> Dataset:
    """The data set, once everything that would fail in training has been ruled out."""
    if task is not None and task not in TASKS:
        raise unknown("task", task, TASKS)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1 or len(y) != len(x):
        raise StiefelError(f"{name} has features of shape {x.shape} and targets of shape {y.shape}; give one per row.")
    if 0 in x.shape:
        raise StiefelError(f"{name} has features of shape {x.shape}; give at least one row and one feature.")
    _refuse_gaps({column: int(count) for column, count in zip(columns, (~np.isfinite(x)).sum(axis=0))})
    targets = y.tolist()
    if missing := sum(map(_is_gap, targets)):
        raise StiefelError(f"{name} has {missing} missing or infinite targets; remove those rows.")
    y = np.array(targets) if y.dtype.kind == "O" else y  # numbers in an array of objects are numbers
    task = task or _task(y)
    if task == "regression":
        return Dataset(name, task, x, _quantities(name, y), None)
    classes, codes = _classes(name, y)
    return Dataset(name, task, x, codes, classes)


def _refuse_gaps(gaps: dict[str, int]) -> None:
    """Stop at missing or infinite features, naming the columns."""
    columns = [f"{column} ({count})" for column, count in gaps.items() if count]
    if columns:
        more = f" and {len(columns) - SHOWN} more columns" if len(columns) > SHOWN else ""
        raise StiefelError(
            f"missing or infinite features in {', '.join(columns[:SHOWN])}{more}; fill them in or remove the rows."
        )


def _is_gap(value: Any) -> bool:
    try:
        return value is None or bool(value != value) or value in (math.inf, -math.inf)
    except TypeError:  # pandas.NA has no truth value
        return True


def _task(y: np.ndarray) -> Task:
    if y.dtype.kind not in "iuf":
        return "classification"
    values = np.unique(y)
    return "classification" if len(values) <= MOST_CLASSES and (values == np.floor(values)).all() else "regression"


def _quantities(name: str, y: np.ndarray) -> np.ndarray:
    try:
        values = y.astype(np.float64)
    except (TypeError, ValueError):
        raise StiefelError(
            f"{name} has targets that are not numbers, such as {y.tolist()[0]!r}; use task='classification'."
        ) from None
    if len(values) < 5:
        raise StiefelError(f"{name} has {len(values)} rows; an 80/20 split needs at least 5.")
    return values


def _classes(name: str, y: np.ndarray) -> tuple[int, np.ndarray]:
    """The number of classes and each row's class; there must be enough rows for a stratified split."""
    labels, codes, counts = np.unique(
        y if y.dtype.kind in "biuf" else y.astype(str), return_inverse=True, return_counts=True
    )
    if len(labels) < 2:
        raise StiefelError(f"{name} has only the class {labels[0]!s}; classification needs at least two.")
    rare = [str(label) for label in labels[counts < 2]]
    advice = "add rows, merge classes, or use task='regression' if the target is a quantity"
    if rare:
        more = f" and {len(rare) - SHOWN} more" if len(rare) > SHOWN else ""
        raise StiefelError(
            f"{name} has classes with a single row, {', '.join(rare[:SHOWN])}{more}, which cannot be split; {advice}."
        )
    if math.ceil(TEST_SHARE * len(y)) < len(labels):
        raise StiefelError(
            f"{name} has {len(y)} rows for {len(labels)} classes, and the test fifth must hold a row of each; {advice}."
        )
    return len(labels), codes.astype(np.int64)
