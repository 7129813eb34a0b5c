"""The user's own data, as arrays, a table or images; every defect is reported before anything is trained."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import StiefelError, unknown
from . import images, sources
from .dataset import TASKS, TEST_SHARE, Dataset, Task
from .library import names
from .table import MARKS, Decimal, Reading, classes_or_numbers, decimal_mark, features, labels, read_table, shown, times

MOST_CLASSES = 20  # whole numbers with at most as many values are classes
MOST_DOUBTFUL = 100  # with more than that they are a quantity; between the two, the user must say
SHOWN = 20  # columns named in a message
_READING = b"2"  # raised whenever the same file and options are read in another way


def from_arrays(x: Any, y: Any, *, name: str = "arrays", task: Task | None = None) -> Dataset:
    """Make a data set from arrays.

    For training, its features and the targets of a regression are standardized.

    Args:
        x: Features, of shape (rows, features). NaN is a missing value, which becomes the mean of the training part.
        y: Targets, of shape (rows,). Classes may have any names; they are numbered in sorted order.
        name: The data set's name.
        task: By default classification if `y` is not numeric or has at most 20 distinct values, all of them whole
            numbers, and regression if it has fractions or more than 100; in between you must say.

    Raises:
        StiefelError: for arrays that do not fit together, infinite values, or classes too small to split.

    >>> x = np.arange(40.0).reshape(20, 2)
    >>> from_arrays(x, ["no", "yes"] * 10).classes
    2
    """
    try:
        values = np.asarray(x)
        if values.dtype.kind == "c":
            raise TypeError("they are complex")
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise StiefelError(f"the features are not numbers ({error}); give an array of floats.") from None
    if values.ndim != 2:
        raise StiefelError(
            f"the features have shape {values.shape}; give (rows, features), as with reshape(len(x), -1)."
        )
    try:
        targets = np.asarray(y)
    except (TypeError, ValueError) as error:
        raise StiefelError(f"the targets are not an array ({error}); give one value per row.") from None
    return _build(name, values, targets, task)


def from_file(
    path: str | os.PathLike[str],
    target: str,
    *,
    task: Task | None = None,
    drop: Sequence[str] = (),
    category: Sequence[str] = (),
    group: str | None = None,
    time: str | None = None,
    decimal: Decimal | None = None,
    number: Sequence[str] = (),
) -> Dataset:
    """Make a data set from a table with a header: text with any usual separator, compressed or not, or Parquet.

    Columns of numbers are features as they are; missing ones become the mean of the training part. Any other column
    becomes one feature per category. Dates and free text are refused by name. `Dataset.columns` says how each was read.

    Args:
        path: The file.
        target: The column to predict; all others are features.
        task: As in `from_arrays`.
        drop: Columns to leave out.
        category: Columns of numbers, or of many texts, that are categories.
        group: A column whose equal values stay on one side of the split; it is no feature.
        time: A column by which the last fifth becomes the test part; it is no feature.
        decimal: The decimal mark, where the file does not tell.
        number: Columns that are quantities, though they look like codes: 01067, or by their name.

    Raises:
        StiefelError: for a file that cannot be read, columns that are unknown or unsuitable, and as in `from_arrays`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "fruit.csv")
    ...     _ = path.write_text("weight,colour,kind\\n" + "150,red,apple\\n7,green,grape\\n" * 5)
    ...     fruit = from_file(path, "kind")
    >>> fruit.name, fruit.x[:2].tolist(), fruit.y[:2].tolist()
    ('fruit', [[150.0, 1.0], [7.0, 0.0]], [0, 1])
    >>> [tuple(reading)[:2] for reading in fruit.columns]
    [('weight', 'number'), ('colour', 'category'), ('kind', 'target')]
    """
    path = Path(os.path.expanduser(path))
    frame, separator = read_table(path)
    columns = [str(column) for column in frame.columns]
    named: dict[str, Sequence[str | None]] = {
        "target": [target], "drop": drop, "category": category, "number": number, "group": [group], "time": [time],
    }  # fmt: skip
    for option, chosen in named.items():
        for column in chosen:
            if column is not None and column not in columns:
                raise unknown(option, column, columns if len(columns) <= SHOWN else [*columns[:SHOWN], "…"])
    if group is not None and time is not None:
        raise StiefelError("group and time are two ways to split the rows; give one of them.")
    for option, column in (("group", group), ("time", time), ("drop", target if target in drop else None)):
        if column == target:
            raise StiefelError(f"{option}={column!r} is the target; name another column.")
    if decimal not in (None, *MARKS):
        raise unknown("decimal", decimal, MARKS)
    mark = decimal_mark(frame[[c for c in columns if c not in drop and c != time]], separator, decimal)
    counts = [[str(row + first) for row in range(len(frame))] for first in (0, 1)]  # as pandas writes row numbers
    parts, readings = [], []
    for column in columns:
        if column == target:
            continue
        if column in drop:
            readings.append(Reading(column, "left out", "as asked"))
        elif column in (group, time):
            readings.append(Reading(column, "split", "kept together" if column == group else "the last fifth tests"))
        elif column == "column 1" and list(frame[column]) in counts:
            readings.append(Reading(column, "left out", "row numbers without a name"))
        else:
            says = {"category": column in category, "quantity": column in number}
            values, reading = features(column, frame[column], mark, **says)
            parts.append(values)
            readings.append(reading)
    x = np.concatenate(parts, axis=1) if parts else np.empty((len(frame), 0))
    y = classes_or_numbers(target, frame[target], mark, classes=task == "classification")
    stem = path.name.partition(".")[0] or path.name
    return _build(
        stem, x, y, task, target=target, readings=readings,
        groups=None if group is None else labels(group, frame[group]),
        times=None if time is None else times(time, frame[time], mark),
    )  # fmt: skip


def from_images(path: str | os.PathLike[str]) -> Dataset:
    """Make a data set from images in class folders, of any format that Pillow reads; decoded, it is kept in the cache.

    Args:
        path: A folder, or an archive (.zip, .tar, .tar.gz, .tar.xz, .tar.bz2), of CLASS/IMAGE, of which a fifth of each
            class becomes the test part; or of train/CLASS/IMAGE and test/CLASS/IMAGE.

    Raises:
        StiefelError: for what cannot be read, files that are no images, and images or classes that do not go together.
    """
    path = Path(os.path.expanduser(path))
    contents, word = images.read(path)
    cached = sources.cache_path(f"images-{word}")
    try:
        arrays = sources.from_cache(cached)
    except sources.UnavailableError:
        arrays = images.decoded(contents, str(path))
        with contextlib.suppress(OSError):  # without a cache it is decoded again next time
            sources.write_cache(cached, arrays, packed=False)
    x, y = (np.concatenate([arrays[f"{what}_train"], arrays[f"{what}_test"]]) for what in "xy")
    name, image = path.name.partition(".")[0] or path.name, (x.shape[1], x.shape[2], x.shape[3])
    pixels, train_rows = x.reshape(len(x), -1), len(arrays["y_train"])
    return Dataset(name, "classification", pixels, y, int(y.max()) + 1, 255.0, train_rows, image=image)


@dataclass(frozen=True)
class Columns:
    """How to read a user's file; every field is an option of the command line."""

    target: str | None = None
    task: Task | None = None
    drop: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    decimal: Decimal | None = None
    number: tuple[str, ...] = field(default=(), repr=False)  # without a part in the name of what is read

    def given(self) -> list[str]:
        """The options that were given, as words."""
        return [f"--{name} {value}" for name, value in vars(self).items() if value]


def words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def user_data(data: str, columns: Columns) -> dict[str, Dataset]:
    """A file or folder as a data set, named by its content; nothing for the sets that are known by name."""
    path = Path(data)
    if data in names():
        if given := columns.given():
            raise StiefelError(f"{given[0]} is for files; {data} has its own target and columns.")
        return {}
    if not path.suffix and not path.exists():
        return {}  # an unknown name: loading it says which are known
    if not path.exists():
        raise StiefelError(f"--data {data} does not exist; give a file, a folder, or one of {', '.join(names())}.")
    if (path.is_dir() or path.name.lower().endswith(images.ARCHIVES)) and columns.target is None:
        if given := columns.given():
            raise StiefelError(f"{given[0]} is for tables; {data} has images, whose classes are their folders.")
        dataset = from_images(path)
        pixels = hashlib.blake2b(dataset.x.data, digest_size=4)
        pixels.update(dataset.y.data)
        return {f"{path.resolve().name}@{pixels.hexdigest()}": dataset}
    if path.is_dir():
        raise StiefelError(f"--data {data} is a directory; a table with --target is a file.")
    if columns.target is None:
        raise StiefelError(f"--data {data} is a file; name the column to predict with --target.")
    dataset = from_file(path, **vars(columns))
    content = hashlib.blake2b(path.read_bytes() + repr(columns).encode() + _READING, digest_size=4).hexdigest()
    return {f"{path.name}@{content}": dataset}


def _build(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    task: Task | None,
    *,
    target: str = "",
    readings: Sequence[Reading] = (),
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
) -> Dataset:
    """The data set, once everything that would fail in training has been ruled out."""
    if task is not None and task not in TASKS:
        raise unknown("task", task, TASKS)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1 or len(y) != len(x):
        raise StiefelError(f"{name} has features of shape {x.shape} and targets of shape {y.shape}; give one per row.")
    if 0 in x.shape:
        what = "no rows" if not len(x) else "no column besides the target that can be a feature"
        raise StiefelError(f"{name} has {what}; give at least one row and one feature.")
    if infinite := [f"column {j} ({count})" for j, count in enumerate(np.isinf(x).sum(axis=0)) if count]:
        more = f" and {len(infinite) - SHOWN} more columns" if len(infinite) > SHOWN else ""
        raise StiefelError(f"infinite features in {', '.join(infinite[:SHOWN])}{more}; correct them.")
    if (empty := np.isnan(x).all(axis=0)).any():
        raise StiefelError(f"column {empty.argmax()} has no values; leave it out.")
    if np.nanmin(np.nanmax(x, axis=0) == np.nanmin(x, axis=0)):
        raise StiefelError(f"{name} has the same features in every row; there is nothing to learn from.")
    values = y.tolist()
    if missing := sum(map(_is_gap, values)):
        raise StiefelError(f"{name} has {missing} missing or infinite targets; remove those rows.")
    y = np.array(values) if y.dtype.kind == "O" else y  # numbers in an array of objects are numbers
    task = task or _task(name, y)
    if task == "regression":
        try:
            classes, targets = None, y.astype(np.float64)
        except (TypeError, ValueError):
            raise StiefelError(
                f"{name} has targets that are not numbers, such as {shown(y.tolist()[0])}; use task='classification'."
            ) from None
        if len(y) < 5:
            raise StiefelError(f"{name} has {len(y)} rows; an 80/20 split needs at least 5.")
        if targets.min() == targets.max():
            raise StiefelError(f"{name} has the same target, {targets[0]:g}, in every row; there is nothing to learn.")
        note = f"regression: {targets.min():g} to {targets.max():g}, standardized for training"
    else:
        classes, targets = _classes(name, y, strict=groups is None and times is None)
        counts = np.bincount(targets)
        note = f"classification: {classes} classes of {counts.min():,} to {counts.max():,} rows"
    read = (*readings, Reading(target, "target", note)) if target else ()
    return Dataset(
        name, task, x, targets, classes, standardize=True, target=target, columns=read, groups=groups, times=times
    )


def _is_gap(value: Any) -> bool:
    try:
        return value is None or bool(value != value) or value in (math.inf, -math.inf)
    except TypeError:  # pandas.NA has no truth value
        return True


def _task(name: str, y: np.ndarray) -> Task:
    if y.dtype.kind not in "iuf":
        return "classification"
    values = np.unique(y)
    if (values != np.floor(values)).any() or len(values) > MOST_DOUBTFUL or len(values) == len(y):
        return "regression"
    if len(values) <= MOST_CLASSES:
        return "classification"
    raise StiefelError(
        f"{name} has {len(values)} different whole numbers as targets, which may be classes or a quantity; say "
        "--task classification or --task regression (task=)."
    )


def _classes(name: str, y: np.ndarray, *, strict: bool) -> tuple[int | None, np.ndarray]:
    """The number of classes and each row's class; `strict` asks for enough rows for a stratified split."""
    names, codes, counts = np.unique(
        y if y.dtype.kind in "biuf" else y.astype(str), return_inverse=True, return_counts=True
    )
    if len(names) < 2:
        raise StiefelError(f"{name} has only the class {names[0]!s}; classification needs at least two.")
    advice = "add rows, merge classes, or say --task regression (task=) if the target is a quantity"
    if rare := [str(label) for label in names[counts < 2]] if strict else []:
        more = f" and {len(rare) - 3} more" if len(rare) > 3 else ""
        raise StiefelError(
            f"{name} has classes with a single row, {', '.join(map(shown, rare[:3]))}{more}, which cannot be split; "
            f"{advice}."
        )
    if math.ceil(TEST_SHARE * len(y)) < len(names):
        raise StiefelError(
            f"{name} has {len(y)} rows for {len(names)} classes, and the test fifth must hold a row of each; {advice}."
        )
    return len(names), codes.astype(np.int64)
