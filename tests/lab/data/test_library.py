"""Sets by name: what scikit-learn carries, what a user registers, and the listing.

With STIEFEL_INIT_DATA set, the published files themselves are loaded too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from conftest import assert_refused
from data_room import write_idx

from stiefel_init.lab import data
from stiefel_init.lab.data import formats, library

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture(autouse=True)
def _only_the_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set is registered but by the test itself."""
    monkeypatch.setattr(library, "_REGISTERED", {})


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("cancer", (569, 30), 2), ("wine", (178, 13), 3), ("diabetes", (442, 10), None), ("digits", (1797, 64), 10)],
)
def test_embedded_sets(name: str, shape: tuple[int, int], classes: int | None, offline: list[str]) -> None:
    dataset = data.load(name)
    assert (dataset.name, dataset.x.shape, dataset.classes, dataset.outputs) == (name, shape, classes, classes or 1)
    assert dataset.x.dtype == (np.uint8 if name == "digits" else np.float64)
    assert dataset.y.dtype == (np.int64 if classes else np.float64)
    listed = next(line for line in data.describe() if line.name == name)
    task = "classification" if classes else "regression"
    assert listed == data.Listing(name, dataset.task, *shape, classes, "scikit-learn")
    assert (dataset.task, data.get(name), data.where(name)) == (task, "scikit-learn", "scikit-learn")
    assert not offline


def test_raw_values_not_scaled_ones_without_the_rounding_of_some_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
    monkeypatch.setattr(sklearn.datasets, "load_diabetes", lambda **options: (np.nextafter(x, 0), y))
    assert data.load("diabetes").x[0].tolist() == [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87]
    assert data.load("diabetes").y[:3].tolist() == [151, 75, 141]
    assert data.load("digits").x.max() == data.load("digits").scale == 16


def test_a_changed_copy_in_scikit_learn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = sklearn.datasets.load_wine(return_X_y=True)
    x[3, 4] += 1
    monkeypatch.setattr(sklearn.datasets, "load_wine", lambda return_X_y: (x, y))
    assert_refused(lambda: data.load("wine"), ["x of shape (178, 13) has sha256"])


@pytest.mark.parametrize("call", [data.load, data.get, data.where])
def test_unknown_names_are_told_the_known_ones(call: Callable[[str], Any], parity: data.Dataset) -> None:
    assert_refused(lambda: call("cifar"), ["dataset='cifar'", *map(repr, data.names())])
    assert data.names() == (*data.NAMES, "parity")
    assert " ".join(data.NAMES) == (
        "mnist fashion-mnist adult cancer pima ionosphere wine diabetes digits cifar10 cifar10-jpeg"
    )


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
