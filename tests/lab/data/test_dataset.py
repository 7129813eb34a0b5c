"""Training and test parts: the paper's sizes, standardized with the training part, the same for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import one_sentence
from sklearn.model_selection import train_test_split

from stiefel_init import StiefelError
from stiefel_init.lab import data
from stiefel_init.lab.data import sources
from stiefel_init.lab.data.catalog import digest


@pytest.mark.parametrize(("name", "rows", "majority"), [("cancer", 114, 63.16), ("wine", 36, 38.89)])
@pytest.mark.parametrize("seed", range(3))
def test_splits_have_the_papers_sizes_and_majorities(name: str, rows: int, majority: float, seed: int) -> None:
    parts = data.split(data.load(name), seed)
    assert len(parts.x_test) == len(parts.y_test) == rows
    assert round(100 * np.bincount(parts.y_test).max() / rows, 2) == majority


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("cancer", "91512c97", "a2af47fe"),
        ("diabetes", "0ac2baab", "8c847b94"),
        ("digits", "27dfdcf4", "61d427d7"),
    ],
)
def test_splits_stay_the_same_over_versions_of_scikit_learn(name: str, train: str, test: str) -> None:
    parts = data.split(data.load(name), 0)
    assert (digest(parts.y_train)[:8], digest(parts.y_test)[:8]) == (train, test)


@pytest.mark.parametrize("name", ["cancer", "wine", "diabetes"])
@pytest.mark.parametrize("alpha", [0, -2, 2.0, 50])
def test_features_are_standardized_with_the_training_part_then_shifted(name: str, alpha: float) -> None:
    dataset = data.load(name)
    parts = data.split(dataset, 5, alpha=alpha)
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


def test_regression_targets_stay_raw() -> None:
    dataset = data.load("diabetes")
    parts = data.split(dataset, 1)
    assert (len(parts.y_train), len(parts.y_test)) == (353, 89)
    assert sorted([*parts.y_train.tolist(), *parts.y_test.tolist()]) == sorted(dataset.y.tolist())


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 / 3])
def test_a_constant_column_becomes_alpha(value: float) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    x[:, 1] = value
    parts = data.split(data.from_arrays(x, [0, 1] * 25), alpha=2)
    assert (parts.x_train[:, 1] == 2).all()
    assert (parts.x_test[:, 1] == 2).all()
    assert np.isfinite(parts.x_train).all()


def test_the_seed_decides_the_split() -> None:
    wine = data.load("wine")
    first, again, other = data.split(wine, 0), data.split(wine, 0), data.split(wine, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not np.array_equal(first.x_test, other.x_test)


def test_a_fixed_split_is_the_same_for_every_seed() -> None:
    digits = data.load("digits")
    parts, other = data.split(digits, 0), data.split(digits, 7)
    assert all(np.array_equal(a, b) for a, b in zip(parts, other))
    assert (parts.x_train.shape, parts.x_test.shape, parts.x_train.dtype.name) == ((1437, 64), (360, 64), "uint8")
    assert sorted(map(bytes, digits.x)) == sorted(map(bytes, sources.embedded("digits")["x"]))


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
    with pytest.raises(StiefelError) as error:
        data.split(data.load(name), **options)
    assert words in one_sentence(error)
