"""A user's own arrays and tables: taken as they are, or refused in one sentence before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import one_sentence

from stiefel_init import StiefelError
from stiefel_init.lab import data


@pytest.mark.parametrize(
    ("y", "task", "expected", "classes"),
    [
        (["no", "yes"] * 10, None, "classification", 2),
        ([True, False] * 10, None, "classification", 2),
        ([3, 7, 7, 3] * 5, None, "classification", 2),
        ([1.0, 2.0, 4.0, 4.0] * 5, None, "classification", 3),
        ([0.5, 1.0] * 10, None, "regression", None),
        (range(20), "regression", "regression", None),
        (np.arange(101).repeat(6), None, "regression", None),
        (np.arange(20).repeat(6), None, "classification", 20),
        (np.arange(21).repeat(6), "classification", "classification", 21),
        (np.array([1.5, 2.5] * 10, object), None, "regression", None),
        (np.array([["a"], ["b"]] * 10), None, "classification", 2),
    ],
)
def test_the_task_of_a_users_arrays(y: Any, task: Any, expected: str, classes: int | None) -> None:
    x = np.random.default_rng(0).normal(size=(len(y), 3))
    dataset = data.from_arrays(x, y, name="mine", task=task)
    assert (dataset.name, dataset.task, dataset.classes, dataset.train_rows) == ("mine", expected, classes, None)
    assert dataset.y.dtype == (np.int64 if classes else np.float64)
    parts = data.split(dataset, 3)
    assert len(parts.x_test) == -(-len(y) // 5)
    if classes:
        assert set(parts.y_train.tolist()) | set(parts.y_test.tolist()) == set(range(classes))


def test_a_users_arrays_are_not_touched() -> None:
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) / 3
    dataset = data.from_arrays(x, y)
    dataset.x[:], dataset.y[:] = 0, 0
    assert (x[1].tolist(), y[3]) == ([2, 3], 1)


FINE = np.arange(40.0).reshape(20, 2)
HOLES = np.where(FINE == 3, np.nan, np.where(FINE == 4, np.inf, FINE))


@pytest.mark.parametrize(
    ("x", "y", "options", "words"),
    [
        (np.ones((0, 2)), [], {}, "has no rows"),
        (np.ones((20, 0)), [0, 1] * 10, {}, "no column besides the target"),
        (np.ones((20, 2)), [0, 1] * 10, {}, "the same features in every row"),
        (np.ones(20), [0, 1] * 10, {}, "shape (20,)"),
        (np.ones((20, 2, 2)), [0, 1] * 10, {}, "reshape(len(x), -1)"),
        (FINE, [0, 1], {}, "features of shape (20, 2) and targets of shape (2,)"),
        (FINE, 3, {}, "targets of shape ()"),
        (FINE, [[1], [2, 3]] * 10, {}, "the targets are not an array"),
        (FINE.astype(str) + "x", [0, 1] * 10, {}, "features are not numbers"),
        (FINE * 1j, [0, 1] * 10, {}, "complex"),
        ([[1], [2, 3]], [0, 1], {}, "features are not numbers"),
        (HOLES, [0, 1] * 10, {}, "infinite features in column 0 (1)"),
        (np.where(FINE % 2, np.nan, FINE), [0, 1] * 10, {}, "column 1 has no values"),
        (FINE, np.arange(25).repeat(2)[:20] + np.arange(20), {"task": "classification"}, "single row"),
        (FINE, [2.5] * 20, {}, "the same target, 2.5, in every row"),
        (np.arange(42.0)[:, None], np.arange(21).repeat(2), {}, "21 different whole numbers as targets"),
        (FINE, [np.nan, 1] * 10, {}, "10 missing or infinite targets"),
        (FINE, [None, "a"] * 10, {}, "10 missing or infinite targets"),
        (FINE, ["a"] * 20, {}, "only the class a"),
        (FINE, [1] * 20, {}, "only the class 1"),
        (FINE, ["a"] * 19 + ["b"], {}, "classes with a single row, 'b'"),
        (FINE[:8], [0, 1, 2, 3] * 2, {}, "8 rows for 4 classes"),
        (FINE[:4], [0.5, 1.5, 2.5, 3.5], {}, "4 rows"),
        (FINE, ["a", "b"] * 10, {"task": "regression"}, "such as 'a'"),
        (FINE, [0, 1] * 10, {"task": "ranking"}, "task='ranking'"),
    ],
)
def test_arrays_that_cannot_be_used(x: Any, y: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(StiefelError) as error:
        data.from_arrays(x, y, **options)
    assert words in one_sentence(error)


def test_pandas_missing_values_in_targets() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(StiefelError) as error:
        data.from_arrays(FINE, pandas.array([1, None] * 10, dtype="Int64"))
    assert "10 missing" in one_sentence(error)


def csv(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_a_users_csv_file(tmp_path: Path) -> None:
    text = "size,colour,ok,kind\n" + '1.5,"red, dark",True,b\n-2,blue,False,a\n' * 5
    dataset = data.from_file(csv(tmp_path, text), "kind")
    assert (dataset.name, dataset.task, dataset.classes) == ("table", "classification", 2)
    assert dataset.x[:2].tolist() == [[1.5, 1, 1], [-2, 0, 0]]
    assert dataset.y[:2].tolist() == [1, 0]
    assert data.from_file(tmp_path / "table.csv", "size").task == "regression"
    assert data.from_file(tmp_path / "table.csv", "ok").classes == 2
    assert [part.shape for part in data.split(dataset)] == [(8, 3), (8,), (2, 3), (2,)]


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("", "y", "table.csv is empty"),
        ("a,y\n", "y", "header and no rows"),
        ("a,y\n" + "1,0\n2,1\n" * 5, "z", "target='z' is not known; choose one of 'a', 'y'"),
        ("y\n" + "0\n1\n" * 5, "y", "no column besides the target"),
        ("a,y\n" + "1,\n2,1\n" * 5, "y", "5 missing or infinite targets"),
        ("a,y\n" + "inf,0\n2,1\n" * 5, "y", "infinite features in a (5)"),
        ("a,y\n" + "1,0\n2,0\n" * 5, "y", "only the class 0"),
        ("a,y\n" + "1,u\n2,u\n" * 5 + "3,v\n", "y", "classes with a single row, 'v'"),
        ("a,y\n" + "1,0,5\n2,1,6\n" * 5, "y", "3 values in line 2, where its header has 2; correct that line"),
        ("a,y\n1,0\n2,1,6\n", "y", "3 values in line 3, where its header has 2"),
        ("a,b,y\n" + "1,2,0\n3,4,1\n" * 5 + "1,2\n", "y", "2 values in line 12, where its header has 3"),
        ('a,y,b\n"1\n",0,2\n\n3\n' + "3,1,4\n" * 5, "y", "1 value in line 5, where its header has 3"),
    ],
)
def test_csv_files_that_cannot_be_used(tmp_path: Path, text: str, target: str, words: str) -> None:
    with pytest.raises(StiefelError) as error:
        data.from_file(csv(tmp_path, text), target)
    assert words in one_sentence(error)


def test_csv_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"a,y\n\xff\xfe\x00,1\n")
    for path, words in (
        (tmp_path / "nowhere.csv", "nowhere.csv cannot be read (No such file or directory)"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "binary.csv", "binary.csv is not a readable table"),
    ):
        with pytest.raises(StiefelError) as error:
            data.from_file(path, "y")
        assert words in one_sentence(error)


def test_many_columns_are_not_all_listed(tmp_path: Path) -> None:
    names = [f"c{j}" for j in range(500)]
    text = "\n".join([",".join(names), *(",".join(["1"] * 500) for _ in range(3))])
    with pytest.raises(StiefelError) as error:
        data.from_file(csv(tmp_path, text), "y")
    assert "'c19', '…'" in one_sentence(error)
    assert "c20" not in one_sentence(error)
