"""`Dataset`, the form every set takes, and `split`, which makes training and test data of it."""

from __future__ import annotations

import math
import numbers
import warnings
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ...core.errors import StiefelError
from .table import Reading

Task = Literal["classification", "regression"]
TASKS: tuple[Task, ...] = ("classification", "regression")
TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features and targets of n rows, as published; `split` prepares them for training.

    >>> from stiefel_init.lab import load
    >>> wine = load("wine")
    >>> wine.features, wine.outputs
    (13, 3)
    """

    name: str
    task: Task
    x: np.ndarray
    """(n, features): float64, or uint8 between 0 and `scale` for images."""
    y: np.ndarray
    """(n,): int64 classes 0, 1, … or float64 values."""
    classes: int | None
    """Number of classes; None for regression."""
    scale: float = 1.0
    """What the features of images are divided by: 255 for MNIST, 16 for digits; 1 for tabular sets."""
    train_rows: int | None = None
    """With a fixed split, the first `train_rows` rows are for training and the rest for testing."""
    standardize: bool = False
    """Whether the targets of a regression are standardized for training. The paper leaves its own as they are."""
    target: str = ""
    """What the targets are, where they have a name."""
    columns: tuple[Reading, ...] = ()
    """How the columns of a user's file were read."""
    groups: np.ndarray | None = None
    """(n,): rows of one number stay on one side of the split."""
    times: np.ndarray | None = None
    """(n,): the rows of the last fifth of these are the test part, whatever the seed."""
    test_seed: int | None = None
    """With it, the test part is the same for every seed: the one of this seed."""
    image: tuple[int, int, int] | None = None
    """Channels, height and width of a row, where rows are images."""
    validation: bool = False
    """Put the test part aside; a fifth of the training part is tested on in its place."""

    @property
    def features(self) -> int:
        """Inputs of a network on this set."""
        return self.x.shape[1]

    @property
    def outputs(self) -> int:
        """Outputs of a network on this set: one per class, or one value."""
        return self.classes or 1


class Split(NamedTuple):
    """Training and test data."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def split(dataset: Dataset, seed: int = 0, *, alpha: float = 0.0) -> Split:
    """The training and the test part of `dataset`.

    A set with a fixed split (mnist, fashion-mnist, digits) keeps it for every seed, as uint8 pixels. Any other is split
    80/20: by its times, by its groups, or by `seed`, stratified by class in classification. Its features become
    (x - μ)/σ + alpha in float32, with μ and σ of the training part, per column; a missing one becomes μ. A column that
    is constant there is only centred. Targets stay as they are, int64 classes or float32 values; with
    `dataset.standardize`, values stay float64, for `standardized`.

    >>> from stiefel_init.lab.data import load
    >>> parts = split(load("wine"), seed=0, alpha=2.0)
    >>> parts.x_train.shape, parts.x_test.shape, round(float(parts.x_train.mean()), 3)
    ((142, 13), (36, 13), 2.0)
    """
    if not (isinstance(alpha, numbers.Real) and math.isfinite(alpha)):
        raise StiefelError(f"alpha={alpha!r} is not a shift of the features; give a finite number.")
    if not (isinstance(seed, numbers.Integral) and 0 <= seed < 2**32):
        raise StiefelError(f"seed={seed!r} cannot pick a split; give an int from 0 to 2**32 - 1.")
    x, y = dataset.x, dataset.y
    targets = y if dataset.task == "classification" or dataset.standardize else y.astype(np.float32)
    if dataset.train_rows is not None and alpha:
        raise StiefelError(
            f"alpha={alpha} shifts standardized features, and {dataset.name} has pixels; leave alpha at 0."
        )
    if (k := dataset.train_rows) is not None and not dataset.validation:
        return Split(x[:k], targets[:k], x[k:], targets[k:])
    if dataset.train_rows is not None:
        train = np.arange(dataset.train_rows)  # and the rest are for testing
    else:
        picked = seed if dataset.test_seed is None else dataset.test_seed
        train, test = _fifth(dataset, np.arange(len(y)), int(picked))
    if dataset.validation:
        train, test = _fifth(dataset, train, int(seed))
    if dataset.train_rows is None:
        mean, deviation = _moments(x[train])
        x = _float32(np.where(np.isnan(x), 0.0, (x - mean) / deviation) + alpha)
    return Split(x[train], targets[train], x[test], targets[test])


def standardized(parts: Split) -> tuple[Split, float]:
    """Targets of a regression less their mean in the training part, in units of their deviation there; and that unit.

    >>> y = np.array([1.0, 3.0])
    >>> parts, unit = standardized(Split(np.eye(2), y, np.eye(2), y))
    >>> parts.y_train.tolist(), unit
    ([-1.0, 1.0], 1.0)
    """
    mean, deviation = _moments(parts.y_train.astype(np.float64)[:, None])
    train, test = (_float32((y.astype(np.float64) - mean) / deviation) for y in (parts.y_train, parts.y_test))
    return parts._replace(y_train=train, y_test=test), float(deviation[0])


def _fifth(dataset: Dataset, rows: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`rows` without a fifth of them, and that fifth."""
    from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold

    y = dataset.y[rows]
    classes = dataset.task == "classification"
    try:
        if dataset.times is not None:
            times = dataset.times[rows]
            first = np.sort(times)[len(rows) - math.ceil(TEST_SHARE * len(rows))]
            train, test = np.flatnonzero(times < first), np.flatnonzero(times >= first)
        elif dataset.groups is not None:
            groups = dataset.groups[rows]
            folds = StratifiedGroupKFold(round(1 / TEST_SHARE), shuffle=True, random_state=seed)
            kind = folds if classes else GroupShuffleSplit(1, test_size=TEST_SHARE, random_state=seed)
            train, test = next(iter(kind.split(rows, y, groups)))
        else:
            train, test = split_rows(y, seed, stratified=classes)
        if not len(train) or not len(test) or (classes and len(np.unique(y[train])) < 2):
            raise ValueError("the training part would be empty or of one class")
    except ValueError as error:
        part = "validation" if dataset.validation else "test"
        reason = " ".join(str(error).split()).rstrip(".")
        raise StiefelError(
            f"{dataset.name} cannot be split into a training and a {part} part ({reason}); add rows or groups."
        ) from None
    return rows[train], rows[test]


def split_rows(y: np.ndarray, seed: int, *, stratified: bool) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the training and test parts."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_SHARE, random_state=int(seed), stratify=y if stratified else None
    )
    return train, test


def _float32(x: np.ndarray) -> np.ndarray:
    """In float32, with what a training part has made astronomically large brought within its range."""
    return np.clip(x, -1e30, 1e30).astype(np.float32)


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, without the missing; (the value, 1) for a constant one, or (0, 1).

    Constant is decided by comparing values: rounding of the mean can leave a deviation of 1e-17, and
    dividing by that would turn nothing into ±1.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a column that is missing in all of the part
        least, most, mean, deviation = (of(x, axis=0) for of in (np.nanmin, np.nanmax, np.nanmean, np.nanstd))
    varies = least < most
    return np.where(varies, mean, np.nan_to_num(least)), np.where(varies, deviation, 1.0)
