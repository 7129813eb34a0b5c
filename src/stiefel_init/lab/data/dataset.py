"""`Dataset`, the form every set takes, and `split`, which makes training and test data of it."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..._errors import StiefelError

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
    80/20 by `seed`, stratified by class in classification; its features become (x - μ)/σ + alpha in float32, with μ and
    σ of the training part, per column. A column that is constant there is only centred. Targets stay as they are: int64
    classes or float32 values.

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
    targets = y if dataset.task == "classification" else y.astype(np.float32)
    if dataset.train_rows is not None:
        if alpha:
            raise StiefelError(
                f"alpha={alpha} shifts standardized features, and {dataset.name} has pixels; leave alpha at 0."
            )
        k = dataset.train_rows
        return Split(x[:k], targets[:k], x[k:], targets[k:])
    train, test = split_rows(y, seed, stratified=dataset.task == "classification")
    mean, deviation = _moments(x[train])
    features = ((x - mean) / deviation + alpha).astype(np.float32)
    return Split(features[train], targets[train], features[test], targets[test])


def split_rows(y: np.ndarray, seed: int, *, stratified: bool) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the training and test parts."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_SHARE, random_state=int(seed), stratify=y if stratified else None
    )
    return train, test


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; (the value, 1) for a constant one.

    Constant is decided by comparing values: rounding of the mean can leave a deviation of 1e-17, and
    dividing by that would turn nothing into ±1.
    """
    constant = x.min(axis=0) == x.max(axis=0)
    return np.where(constant, x[0], x.mean(axis=0)), np.where(constant, 1.0, x.std(axis=0))
