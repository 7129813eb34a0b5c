"""File formats: from the bytes of files, or OpenML's tables, to the arrays of a set.

A set is a dict of arrays: `x`, `y`, or `x_train`, `y_train`, `x_test`, `y_test` where it comes in two parts.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import images

Arrays = dict[str, np.ndarray]
Files = Mapping[str, bytes]

ADULT_TEST_ROWS = 16281
ADULT_NUMERIC = (0, 2, 4, 10, 11, 12)  # age, fnlwgt, education-num, capital-gain, capital-loss, hours-per-week
IMAGE_TRAIN_ROWS = 60_000


class UnreadableError(Exception):
    """A file that does not have its format: which, and why."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(reason)
        self.file = file


def decompress(raw: bytes, file: str) -> bytes:
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(file, f"its gzip data are damaged ({error})") from None


def idx_images(files: Files) -> Arrays:
    """Four idx files (train images, train labels, test images, test labels, in this order)."""
    parts = zip(("x_train", "y_train", "x_test", "y_test"), files.items())
    return {part: _idx(raw, file, 3 if part.startswith("x") else 1) for part, (file, raw) in parts}


def _idx(raw: bytes, file: str, ndim: int) -> np.ndarray:
    """The unsigned bytes of an idx file, one row per item, or its labels.

    Two zero bytes, the type (8: unsigned byte), the number of dimensions, each dimension as a
    big-endian 32-bit number, then the data.
    """
    start = 4 + 4 * ndim
    if raw[:4] != bytes((0, 0, 8, ndim)) or len(raw) < start:
        raise UnreadableError(file, f"it does not begin like an idx file of {ndim}-dimensional unsigned bytes")
    shape = tuple(int(size) for size in np.frombuffer(raw[4:start], ">u4"))
    if len(raw) - start != math.prod(shape):
        raise UnreadableError(file, f"it holds {len(raw) - start} bytes of data where {math.prod(shape)} belong")
    items = np.frombuffer(raw, np.uint8, offset=start)
    return items.astype(np.int64) if ndim == 1 else items.reshape(shape[0], math.prod(shape[1:])).copy()


CIFAR = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


class _Numbers(pickle.Unpickler):
    """Reads a pickle of NumPy's arrays, and refuses any other object."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is no array")


def cifar(files: Files) -> Arrays:
    """CIFAR-10's six files, the test part last: pickles of arrays."""
    parts = []
    for file, raw in files.items():
        try:
            batch = _Numbers(io.BytesIO(raw), encoding="bytes").load()
            parts.append((np.asarray(batch[b"data"], np.uint8).reshape(-1, 3072), np.asarray(batch[b"labels"])))
        except Exception as error:  # a damaged pickle raises nearly anything
            raise UnreadableError(file, f"it is no batch of images ({error})") from None
    (x_train, y_train), (x_test, y_test) = (
        (np.concatenate([x for x, _ in some]), np.concatenate([y for _, y in some]).astype(np.int64))
        for some in (parts[:-1], parts[-1:])
    )
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def cifar_archive(files: Files) -> Arrays:
    """The same files in an archive."""
    ((file, raw),) = files.items()
    held = {name.rpartition("/")[2]: content for name, content in images.archive(raw, file).files.items()}
    if missing := [name for name in CIFAR if name not in held]:
        raise UnreadableError(file, f"it has no {missing[0]}")
    try:
        return cifar({name: held[name] for name in CIFAR})
    except UnreadableError as error:
        raise UnreadableError(file, f"of its {error.file}, {error}") from None


def image_archive(files: Files) -> Arrays:
    """An archive of images in class folders."""
    ((file, raw),) = files.items()
    return images.decoded(images.archive(raw, file), file)


def csv_images(files: Files) -> Arrays:
    """Two CSV files (train, test): a header, then a label and the pixels in each line."""
    arrays = {}
    for part, (file, raw) in zip(("train", "test"), files.items()):
        try:
            table = np.loadtxt(io.BytesIO(raw), np.uint8, delimiter=",", skiprows=1, ndmin=2)
        except ValueError as error:
            raise UnreadableError(file, f"it is not a table of bytes ({error})") from None
        arrays[f"x_{part}"], arrays[f"y_{part}"] = table[:, 1:].copy(), table[:, 0].astype(np.int64)
    return arrays


def adult(files: Files) -> Arrays:
    """UCI's adult.data and adult.test (in this order), or CSV files with the same columns and a header."""
    parts = []
    for file, raw in files.items():
        rows = [[field.strip() for field in row] for row in _table(raw, file, 15)]
        parts.append([[*row[:-1], row[-1].rstrip(".")] for row in rows if row[0] != "age"])
        for row in parts[-1]:
            if row[-1] not in ("<=50K", ">50K") or not all(row[j].isdecimal() for j in ADULT_NUMERIC):
                raise UnreadableError(file, f"it has a line that is not one of Adult's: {', '.join(row)}")
    return _adult(*parts)


def _adult(train: Sequence[Sequence[Any]], test: Sequence[Sequence[Any]]) -> Arrays:
    """Fourteen features and the class (1: income above 50K) of rows with fifteen fields.

    A category becomes its number in the sorted names of its column, over both parts; "?" is a name too.
    """
    rows = [*train, *test]
    x = np.empty((len(rows), 14))
    for j in range(14):
        column = [row[j] for row in rows]
        x[:, j] = column if j in ADULT_NUMERIC else np.unique(column, return_inverse=True)[1]
    y = np.array([row[14] == ">50K" for row in rows], np.int64)
    k = len(train)
    return {"x_train": x[:k], "y_train": y[:k], "x_test": x[k:], "y_test": y[k:]}


def pima(files: Files) -> Arrays:
    """Lines of eight numbers and 0 or 1, with or without a header."""
    return _numbers(files, 9, {"0": 0, "1": 1})


def ionosphere(files: Files) -> Arrays:
    """Lines of 34 numbers and a class: g (good, class 1) or b (bad, class 0); some copies write 1 and 2 for g and b."""
    return _numbers(files, 35, {"g": 1, "b": 0, "1": 1, "2": 0})


def _numbers(files: Files, columns: int, labels: Mapping[str, int]) -> Arrays:
    """The one table in `files`: numbers, then a label; a first line without a label is a header."""
    ((file, raw),) = files.items()
    rows = _table(raw, file, columns)
    if rows and rows[0][-1] not in labels:
        del rows[0]
    try:
        x = np.array([[float(field) for field in row[:-1]] for row in rows])
        y = np.array([labels[row[-1]] for row in rows], np.int64)
    except ValueError as error:
        raise UnreadableError(file, f"it has a field that is not a number ({error})") from None
    except KeyError as error:
        raise UnreadableError(file, f"it has a line with the class {error}") from None
    return {"x": x, "y": y}


def _table(raw: bytes, file: str, columns: int) -> list[list[str]]:
    """The comma-separated fields of each line; empty lines and UCI's remarks (|...) are left out."""
    try:
        lines = raw.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise UnreadableError(file, f"it is not a text file (byte {error.start})") from None
    table = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("|"):
            table.append(line.split(","))
            if len(table[-1]) != columns:
                raise UnreadableError(file, f"its line {number} has {len(table[-1])} fields where {columns} belong")
    return table


def openml_images(data: np.ndarray, target: Iterable[Any]) -> Arrays:
    """OpenML's 70,000 rows: the training images, then the test images."""
    x, k = data.astype(np.uint8), IMAGE_TRAIN_ROWS
    y = np.array([int(label.strip("'")) for label in target], np.int64)
    return {"x_train": x[:k], "y_train": y[:k], "x_test": x[k:], "y_test": y[k:]}


def openml_adult(data: np.ndarray, target: Iterable[Any]) -> Arrays:
    """OpenML's version 2 of Adult: the test rows, then the training rows; a missing category is NaN for "?"."""
    rows = [["?" if field != field else field for field in row] + [label] for row, label in zip(data, target)]
    return _adult(rows[ADULT_TEST_ROWS:], rows[:ADULT_TEST_ROWS])


def openml_numbers(positive: str) -> Callable[[np.ndarray, Iterable[Any]], Arrays]:
    """Reads OpenML's table of numbers with two classes; rows labelled `positive` are class 1."""
    return lambda data, target: {
        "x": data.astype(np.float64),
        "y": np.array([label == positive for label in target], np.int64),
    }
