"""Training and test parts: the paper's sizes, standardized with the training part; by class, group, time and seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import assert_refused
from sklearn.model_selection import train_test_split

from stiefel_init.lab.data import Dataset, from_arrays, load, sources, split, standardized
from stiefel_init.lab.data.catalog import digest

RNG = np.random.default_rng(0)
X = np.arange(200.0)[:, None]


@pytest.mark.parametrize(
    ("name", "rows", "majority", "train", "test"),
    [
        ("cancer", 114, 63.16, "91512c97", "a2af47fe"),
        ("wine", 36, 38.89, None, None),
        ("diabetes", 89, None, "0ac2baab", "8c847b94"),
        ("digits", 360, None, "27dfdcf4", "61d427d7"),
    ],
)
def test_splits_have_the_papers_sizes_and_stay_the_same_over_versions_of_scikit_learn(
    name: str, rows: int, majority: float | None, train: str | None, test: str | None
) -> None:
    for seed in range(3):
        parts = split(load(name), seed)
        assert len(parts.x_test) == len(parts.y_test) == rows
        if majority is not None:
            assert round(100 * np.bincount(parts.y_test).max() / rows, 2) == majority
        if seed == 0 and train is not None:
            assert (digest(parts.y_train)[:8], digest(parts.y_test)[:8]) == (train, test)


@pytest.mark.parametrize(("name", "alpha"), [("cancer", 0), ("wine", -2), ("diabetes", 2.0), ("wine", 50)])
def test_features_are_standardized_with_the_training_part_then_shifted(name: str, alpha: float) -> None:
    dataset = load(name)
    parts = split(dataset, 5, alpha=alpha)
    assert {part.dtype for part in (parts.x_train, parts.x_test)} == {np.dtype(np.float32)}
    # Rounding to float32 moves an entry near alpha by half an ulp of it; a mean moves by no more.
    tolerance = 2e-7 * (abs(alpha) + 10)
    x = parts.x_train.astype(np.float64)
    np.testing.assert_allclose(x.mean(axis=0), alpha, atol=tolerance)
    np.testing.assert_allclose(x.std(axis=0), 1, atol=tolerance)
    strata = dataset.y if dataset.task == "classification" else None
    train, test = train_test_split(dataset.x, test_size=0.2, random_state=5, stratify=strata)
    expected = (test - train.mean(axis=0)) / train.std(axis=0) + alpha
    np.testing.assert_allclose(parts.x_test, expected, atol=tolerance)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 / 3])
def test_a_constant_column_becomes_alpha(value: float) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    x[:, 1] = value
    parts = split(from_arrays(x, [0, 1] * 25), alpha=2)
    assert {*parts.x_train[:, 1], *parts.x_test[:, 1]} == {2}


def test_the_seed_decides_the_split_unless_it_is_fixed() -> None:
    digits, wine = load("digits"), load("wine")
    parts, other = split(digits, 0), split(digits, 7)
    assert all(np.array_equal(a, b) for a, b in zip(parts, other))
    assert (parts.x_train.shape, parts.x_test.shape, parts.x_train.dtype.name) == ((1437, 64), (360, 64), "uint8")
    assert sorted(map(bytes, digits.x)) == sorted(map(bytes, sources.embedded("digits")["x"]))
    assert np.array_equal(split(wine, 0).x_test, split(wine, 0).x_test)
    assert not np.array_equal(split(wine, 0).x_test, split(wine, 1).x_test)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("digits", {"alpha": 2.0}, "alpha=2.0 shifts standardized features, and digits has pixels"),
        ("wine", {"alpha": float("nan")}, "alpha=nan"),
        ("wine", {"alpha": "two"}, "alpha='two'"),
        ("wine", {"seed": -1}, "seed=-1"),
        ("wine", {"seed": 1.5}, "seed=1.5"),
    ],
)
def test_splits_that_cannot_be(name: str, options: dict[str, Any], words: str) -> None:
    assert_refused(lambda: split(load(name), **options), [words])


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
    assert_refused(
        lambda: split(replace(dataset, times=np.zeros(200))), ["cannot be split into a training and a test part"]
    )


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


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
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


def test_what_only_the_test_part_has_stays_finite() -> None:
    """A column that is missing in the training part is the shift alone; an outlier has an end."""
    late = np.arange(50) >= 40
    x = np.stack([np.arange(50.0), np.where(late, 7.0, np.nan), np.where(late, 1e300, np.arange(50) % 7)], 1)
    cut = split(replace(from_arrays(x, np.arange(50) / 3), times=np.arange(50.0)), alpha=2.0)
    assert (cut.x_train[:, 1] == 2).all()
    assert np.isfinite(cut.x_test).all()
