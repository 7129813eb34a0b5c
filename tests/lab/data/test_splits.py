"""Splits of a user's data: by class, group and time; a validation part; and numbers at the ends of float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stiefel_init import StiefelError
from stiefel_init.lab.data import Dataset, from_arrays, load, split, standardized

RNG = np.random.default_rng(0)
X = np.arange(200.0)[:, None]


def rows(part: np.ndarray, whole: np.ndarray) -> set[int]:
    """Which rows of X a standardized part holds: X is its own row number, so ranks tell."""
    return set(np.searchsorted(np.sort(whole[:, 0]), part[:, 0]).tolist())


def parts(dataset: Dataset, seed: int = 0) -> tuple[set[int], set[int]]:
    cut = split(dataset, seed)
    whole = np.concatenate([cut.x_train, cut.x_test])
    assert len(np.unique(whole)) == len(whole)
    return rows(cut.x_train, whole), rows(cut.x_test, whole)


@pytest.mark.parametrize("y", [np.arange(200) % 2, X[:, 0] / 3])
def test_groups_stay_on_one_side(y: np.ndarray) -> None:
    groups = np.arange(200) // 4
    dataset = replace(from_arrays(X, y), groups=groups)
    for seed in range(3):
        train, test = parts(dataset, seed)
        assert not {groups[i] for i in train} & {groups[i] for i in test}
        assert 30 <= len(test) <= 50
    assert parts(dataset, 0)[1] != parts(dataset, 1)[1]


def test_by_time_the_last_fifth_tests_whatever_the_seed() -> None:
    times = np.roll(np.arange(200.0), 77)
    dataset = replace(from_arrays(X, X[:, 0] / 3), times=times)
    train, test = parts(dataset)
    assert len(test) == 40
    assert max(times[list(train)]) < min(times[list(test)])
    assert parts(dataset, 5) == (train, test)
    tied = replace(dataset, times=np.minimum(times, 150.0))
    assert len(parts(tied)[1]) == 50, "rows of one time stay together"
    with pytest.raises(StiefelError, match="cannot be split into a training and a test part"):
        split(replace(dataset, times=np.zeros(200)))


def test_a_validation_part_is_taken_from_the_training_part() -> None:
    dataset = replace(from_arrays(X, X[:, 0] / 3), test_seed=0)
    _, test = parts(dataset, 3)
    assert parts(dataset, 4)[1] == test, "one test part for every seed"
    choosing = replace(dataset, validation=True)
    found = [split(choosing, seed) for seed in (1000, 1001)]
    for cut in found:
        assert (len(cut.y_train), len(cut.y_test)) == (128, 32)
        assert not {round(3 * y) for y in (*cut.y_train, *cut.y_test)} & test
    assert set(found[0].y_test) != set(found[1].y_test)
    digits = load("digits")
    assert digits.train_rows == 1437
    cut = split(replace(digits, validation=True), 7)
    assert len(cut.y_train) + len(cut.y_test) == 1437
    assert cut.x_train.dtype == np.uint8


@pytest.mark.parametrize("scale", [1e-320, 1e-160, 1.0, 1e160, 1e307])
def test_features_and_targets_of_any_size_are_standardized_without_a_warning(scale: float) -> None:
    x = RNG.integers(1, 9, (50, 2)) * scale
    dataset = from_arrays(x, x[:, 0], task="regression")
    cut, unit = standardized(split(dataset))
    for part in cut:
        assert part.dtype == np.float32
        assert np.isfinite(part).all()
    assert cut.x_train.mean(0) == pytest.approx([0, 0], abs=1e-6)
    assert cut.x_train.std(0) == pytest.approx([1, 1], rel=1e-5)
    assert unit == pytest.approx(np.std(split(dataset).y_train / scale) * scale, rel=1e-3)


def test_an_outlier_in_the_test_part_stays_finite() -> None:
    x = np.concatenate([RNG.normal(size=(40, 1)), np.full((10, 1), 1e300)])
    cut = split(replace(from_arrays(x, x[:, 0] * 0 + np.arange(50) / 3), times=np.arange(50.0)))
    assert np.isfinite(cut.x_test).all()


def test_a_column_that_is_missing_in_the_training_part_is_the_shift_alone() -> None:
    x = np.stack([np.arange(50.0), np.where(np.arange(50) < 40, np.nan, 7.0)], 1)
    cut = split(replace(from_arrays(x, np.arange(50) / 3), times=np.arange(50.0)), alpha=2.0)
    assert (cut.x_train[:, 1] == 2).all()
    assert np.isfinite(cut.x_test).all()
