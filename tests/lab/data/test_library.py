"""Sets by name: what scikit-learn carries, what a user registers, and the listing.

With STIEFEL_INIT_DATA set, the published files themselves are loaded too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from conftest import assert_refused
from data_room import write_idx

from stiefel_init.lab import data
from stiefel_init.lab.data import catalog, formats, library

REAL = os.environ.get("STIEFEL_INIT_DATA")
pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture(autouse=True)
def _only_the_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set is registered but by the test itself."""
    monkeypatch.setattr(library, "_REGISTERED", {})


@pytest.mark.parametrize(
    ("name", "shape", "classes", "dtype"),
    [
        ("cancer", (569, 30), 2, np.float64),
        ("wine", (178, 13), 3, np.float64),
        ("diabetes", (442, 10), None, np.float64),
        ("digits", (1797, 64), 10, np.uint8),
    ],
)
def test_embedded_sets(name: str, shape: tuple[int, int], classes: int | None, dtype: Any, offline: list[str]) -> None:
    dataset = data.load(name)
    assert (dataset.name, dataset.x.shape, dataset.x.dtype, dataset.classes) == (name, shape, dtype, classes)
    assert dataset.y.dtype == (np.int64 if classes else np.float64)
    assert (dataset.features, dataset.outputs) == (shape[1], classes or 1)
    assert dataset.task == ("classification" if classes else "regression")
    assert not offline
    listed = next(line for line in data.describe() if line.name == name)
    assert listed == data.Listing(name, dataset.task, *shape, classes, "scikit-learn")
    assert data.get(name) == data.where(name) == "scikit-learn"


def test_raw_values_not_scaled_ones() -> None:
    assert data.load("diabetes").x[0].tolist() == [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87]
    assert data.load("diabetes").y[:3].tolist() == [151, 75, 141]
    assert data.load("digits").x.max() == data.load("digits").scale == 16


def test_the_rounding_in_some_copies_of_diabetes_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
    monkeypatch.setattr(sklearn.datasets, "load_diabetes", lambda **options: (np.nextafter(x, 0), y))
    assert data.load("diabetes").x[0, 2] == 32.1


def test_a_changed_copy_in_scikit_learn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = sklearn.datasets.load_wine(return_X_y=True)
    x[3, 4] += 1
    monkeypatch.setattr(sklearn.datasets, "load_wine", lambda return_X_y: (x, y))
    assert_refused(lambda: data.load("wine"), ["x of shape (178, 13) has sha256"])


@pytest.mark.parametrize("call", [data.load, data.get, data.where])
def test_unknown_names_are_told_the_known_ones(call: Callable[[str], Any], parity: data.Dataset) -> None:
    assert_refused(lambda: call("cifar"), ["dataset='cifar'", *map(repr, data.names())])
    assert data.names() == (*data.NAMES, "parity")
    assert " ".join(data.NAMES) == "mnist fashion-mnist adult cancer pima ionosphere wine diabetes digits"


def test_the_listing_says_where_files_are(tiny: formats.Arrays, tmp_path: Path) -> None:
    write_idx(tmp_path, tiny)
    (tmp_path / "pima.csv").write_text("")
    lines = {line.name: line for line in data.describe(directory=tmp_path)}
    assert tuple(lines) == data.NAMES
    assert lines["mnist"].where == str(tmp_path / "mnist")
    assert lines["pima"].where == str(tmp_path / "pima.csv")
    assert lines["adult"] == data.Listing("adult", "classification", 48842, 14, 2, None)


# Sets that a user registers.


@pytest.fixture
def parity() -> data.Dataset:
    """A set of a user's own, registered as `parity`."""
    mine = data.from_arrays(np.arange(60.0).reshape(20, 3), [0, 1] * 10)
    data.register("parity", lambda: mine)
    return mine


def test_a_registered_set_is_known_by_its_name_and_listed(parity: data.Dataset, offline: list[str]) -> None:
    loaded = data.load("parity")
    assert (loaded.name, loaded.task, loaded.classes) == ("parity", "classification", 2)
    assert loaded.x is parity.x
    assert data.describe()[-1] == data.Listing("parity", "classification", 20, 3, 2, "registered")
    assert data.where("parity") == data.get("parity") == "registered"
    assert not offline


@pytest.mark.parametrize("name", ["", "../x", "a/b", "two words", ".hidden", "mnist", 7])
def test_names_that_no_set_can_have(name: Any) -> None:
    assert_refused(lambda: data.register(name, lambda: data.load("wine")), [f"name={name!r}"])


def test_what_a_registered_set_raises_is_told_in_one_sentence() -> None:
    def broken() -> data.Dataset:
        raise FileNotFoundError("no such table\nsecond line")

    data.register("broken", broken)
    assert_refused(lambda: data.load("broken"), ["dataset='broken' raised FileNotFoundError (no such table)"])
    data.register("none", lambda: None)  # type: ignore[arg-type, return-value]
    assert_refused(lambda: data.load("none"), ["dataset='none' is of type NoneType"])


# The published files.


@pytest.mark.skipif(not REAL, reason="set STIEFEL_INIT_DATA to the directory with the published files")
@pytest.mark.parametrize(
    ("name", "test_rows", "majority"),
    [
        ("mnist", 10_000, 11.35),
        ("fashion-mnist", 10_000, 10.0),
        ("adult", 9769, 76.07),
        ("pima", 154, 64.94),
        ("ionosphere", 71, 64.79),
    ],
)
def test_the_published_files(name: str, test_rows: int, majority: float) -> None:
    dataset = data.load(name, directory=REAL)
    entry = catalog.CATALOG[name]
    assert dataset.x.shape == (entry.rows, entry.features)
    assert set(dataset.y.tolist()) == set(range(entry.classes or 0))
    parts = data.split(dataset, 1)
    assert len(parts.x_test) == test_rows
    assert round(100 * np.bincount(parts.y_test).max() / test_rows, 2) == majority
    assert np.isfinite(parts.x_train.astype(np.float32)).all()
    data.get(name, directory=REAL)
    again = data.load(name)
    assert np.array_equal(again.x, dataset.x)
    assert np.array_equal(again.y, dataset.y)
    if name == "ionosphere":  # its second column is zero
        assert not parts.x_train[:, 1].any()
        assert not parts.x_test[:, 1].any()
