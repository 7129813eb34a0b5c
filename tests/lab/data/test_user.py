"""A user's own arrays and tables: read as they are meant, or refused in one sentence before anything is trained."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import assert_refused

from stiefel_init import StiefelError
from stiefel_init.lab import data

# Arrays.


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


FINE = np.arange(40.0).reshape(20, 2)
HOLES = np.where(FINE == 3, np.nan, np.where(FINE == 4, np.inf, FINE))
HALF = [0, 1] * 10


@pytest.mark.parametrize(
    ("x", "y", "task", "words"),
    [
        (np.ones((0, 2)), [], None, "has no rows"),
        (np.ones((20, 0)), HALF, None, "no column besides the target"),
        (np.ones((20, 2)), HALF, None, "the same features in every row"),
        (np.ones((20, 2, 2)), HALF, None, "reshape(len(x), -1)"),
        (FINE, [0, 1], None, "features of shape (20, 2) and targets of shape (2,)"),
        (FINE, 3, None, "targets of shape ()"),
        (FINE, [[1], [2, 3]] * 10, None, "the targets are not an array"),
        (FINE.astype(str) + "x", HALF, None, "features are not numbers"),
        (FINE * 1j, HALF, None, "complex"),
        (HOLES, HALF, None, "infinite features in column 0 (1);"),
        (np.full((20, 25), np.inf), HALF, None, "column 19 (20) and 5 more columns"),
        (np.where(FINE % 2, np.nan, FINE), HALF, None, "column 1 has no values"),
        (FINE, np.arange(25).repeat(2)[:20] + np.arange(20), "classification", "single row"),
        (FINE, [2.5] * 20, None, "the same target, 2.5, in every row"),
        (np.arange(42.0)[:, None], np.arange(21).repeat(2), None, "21 different whole numbers as targets"),
        (FINE, [np.nan, 1] * 10, None, "10 missing or infinite targets"),
        (FINE, [None, "a"] * 10, None, "10 missing or infinite targets"),
        (FINE, pd.array([1, None] * 10, dtype="Int64"), None, "10 missing or infinite targets"),
        (FINE, [1] * 20, None, "only the class 1"),
        (FINE, ["a"] * 19 + ["b"], None, "classes with a single row, 'b'"),
        (FINE[:8], [0, 1, 2, 3] * 2, None, "8 rows for 4 classes"),
        (FINE[:4], [0.5, 1.5, 2.5, 3.5], None, "4 rows"),
        (FINE, ["a", "b"] * 10, "regression", "such as 'a'"),
        (FINE, HALF, "ranking", "task='ranking'"),
    ],
)
def test_arrays_that_cannot_be_used(x: Any, y: Any, task: Any, words: str) -> None:
    assert_refused(lambda: data.from_arrays(x, y, task=task), [words])


# Files.

TEXT = "size,colour,kind\n" + "1.5,red,b\n-2,blue,a\n" * 5


def table(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_users_csv_file(tmp_path: Path) -> None:
    path = table(tmp_path, "size,colour,ok,kind\n" + '1.5,"red, dark",True,b\n-2,blue,False,a\n' * 5)
    dataset = data.from_file(path, "kind")
    assert (dataset.name, dataset.task, dataset.classes) == ("table", "classification", 2)
    assert dataset.x[:2].tolist() == [[1.5, 1, 1], [-2, 0, 0]]
    assert dataset.y[:2].tolist() == [1, 0]
    assert data.from_file(path, "size").task == "regression"
    assert data.from_file(path, "ok").classes == 2
    assert [part.shape for part in data.split(dataset)] == [(8, 3), (8,), (2, 3), (2,)]


def zipped(text: bytes, names: tuple[str, ...] = ("table.csv",)) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, text)
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zipped])
def test_compressed_files(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = table(tmp_path, pack(TEXT.encode()))
    assert data.from_file(path, "kind").x[:2].tolist() == [[1.5, 1], [-2, 0]]
    path.write_bytes(pack(TEXT.encode())[:-30])
    assert_refused(lambda: data.from_file(path, "kind"), ["cannot be unpacked"])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(separator: str, tmp_path: Path) -> None:
    path = table(tmp_path, "\ufeff" + TEXT.replace(",", separator))
    assert data.from_file(path, "kind").x[:2].tolist() == [[1.5, 1], [-2, 0]]


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    when = pd.date_range("2026-01-01", periods=20)
    frame = pd.DataFrame(
        {"a": pd.array([1, None] * 10, dtype="Int64"), "b": ["u", "v", "w", None] * 5, "when": when, "y": HALF}
    )
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    with pytest.raises(StiefelError, match="column when holds dates or times; leave it out with --drop when"):
        data.from_file(path, "y")
    dataset = data.from_file(path, "y", time="when")
    assert dataset.features == 5
    assert np.isnan(dataset.x[:, 0]).sum() == 10
    assert len(data.split(dataset).x_test) == 4
    path.write_bytes(path.read_bytes()[:200])
    assert_refused(lambda: data.from_file(path, "y"), ["not a readable Parquet file"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "table.csv is empty"),
        ("a,y\n", "header and no rows"),
        ("a,z\n" + "1,0\n2,1\n" * 5, "target='y' is not known; choose one of 'a', 'z'"),
        ("a,y\n" + "1,\n2,1\n" * 5, "5 missing or infinite targets"),
        ("a,y\n" + "inf,0\n2,1\n" * 5, "infinite features in a (5)"),
        ("a,y\n" + "1,0,5\n2,1,6\n" * 5, "3 values in line 2, where its header has 2; correct that line"),
        ("a,b,y\n" + "1,2,0\n3,4,1\n" * 5 + "1,2\n", "2 values in line 12, where its header has 3"),
        ('a,y,b\n"1\n",0,2\n\n3\n' + "3,1,4\n" * 5, "1 value in line 5, where its header has 3"),
        ("a,a,y\n1,2,0\n", "more than one column 'a'"),
        ("1,2,3\n4,5,6\n", "begins with 1, 2, 3, not with names; add a header"),
        ("a,y\n" + "1,0\n2,1\n" * 5 + '3,"0\n4,1\n', "a quotation mark is not closed"),
        (b"\x00\x01\x02\xff" * 50, "not a readable table"),
        (b"a,y\n\xff\xfe\x00,1\n", "table.csv is not a readable table"),
        (zipped(TEXT.encode(), ("one.csv", "two.csv")), "holds 2 files"),
        (",".join(f"c{j}" for j in range(500)) + "\n" + ",".join(["1"] * 500), "'c19', '…'."),
    ],
    ids=lambda value: "" if isinstance(value, bytes) or len(value) > 60 else None,
)
def test_files_that_are_no_table_or_cannot_be_used(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert_refused(lambda: data.from_file(table(tmp_path, content), "y"), [words])


# Columns.


def rows(*cells: str, separator: str = ",") -> str:
    """A table of one column `a` with these cells, repeated, and a target `y`."""
    count = max(10, 2 * len(cells)) * len(cells)
    return f"a{separator}y\n" + "".join(f"{cells[i % len(cells)]}{separator}{i % 2}\n" for i in range(count))


def readings(dataset: data.Dataset) -> dict[str, tuple[str, str]]:
    return {reading.column: (reading.read_as, reading.note) for reading in dataset.columns}


@pytest.mark.parametrize("gap", ["?", "", "NA", "n/a", "NaN", "null", "-"])
def test_a_missing_number_is_filled_with_the_mean_of_the_training_part_and_told(gap: str, tmp_path: Path) -> None:
    dataset = data.from_file(table(tmp_path, rows("1", "2", gap, "9")), "y")
    assert readings(dataset)["a"] == ("number", "10 missing, filled with the training mean")
    assert np.isnan(dataset.x[:4, 0]).tolist() == [False, False, True, False]
    parts = data.split(dataset, alpha=2.0)
    assert np.unique(np.round(parts.x_train, 4)).size == 4
    assert np.isclose(parts.x_train, 2.0).sum() + np.isclose(parts.x_test, 2.0).sum() == 10


@pytest.mark.parametrize(
    ("cells", "separator", "expected", "note"),
    [
        (('"1,000"', "20", '"3,000,000.5"'), ",", [1000, 20, 3000000.5], "commas group thousands"),
        (("1,5", "20", "-3,25"), ";", [1.5, 20, -3.25], "decimal comma"),
        (("1.000,5", "20", "3"), ";", [1000.5, 20, 3], "decimal comma"),
        (("1.5", "2e3", "-.25"), "\t", [1.5, 2000, -0.25], ""),
        ((" 7 ", "8", "9"), "|", [7, 8, 9], ""),
    ],
)
def test_numbers_in_every_usual_form(
    cells: tuple[str, ...], separator: str, expected: list[float], note: str, tmp_path: Path
) -> None:
    dataset = data.from_file(table(tmp_path, rows(*cells, separator=separator)), "y")
    assert dataset.x[:3, 0].tolist() == expected
    assert readings(dataset)["a"] == ("number", note)


def test_a_mark_that_the_file_does_not_tell_is_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path, rows("1,000", "2,500", separator=";"))
    words = "1,000 in a may be a thousand or have three decimals; say --decimal"
    assert_refused(lambda: data.from_file(path, "y"), [words])
    assert data.from_file(path, "y", decimal=",").x[:2, 0].tolist() == [1, 2.5]
    assert data.from_file(path, "y", decimal=".").x[:2, 0].tolist() == [1000, 2500]
    mixed = table(tmp_path, "a;b;y\n" + "1,5;1.5;0\n2,5;2.5;1\n" * 5)
    assert_refused(lambda: data.from_file(mixed, "y"), ["mixed (1.5 in b, 1,5 in a)"])


def test_categories_become_a_feature_each_and_two_become_one(tmp_path: Path) -> None:
    text = "town,member,y\n" + "Ulm,yes,0\nBern,no,1\n?,no,0\nRom,yes,1\n" * 5
    dataset = data.from_file(table(tmp_path, text), "y")
    assert dataset.x[:4].tolist() == [[0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 1]]
    assert readings(dataset)["town"] == ("category", "4: (missing), Bern, Rom, Ulm; 5 missing, a category of their own")
    codes = table(tmp_path, rows("1", "2", "3"))
    assert data.from_file(codes, "y").features == 1
    assert data.from_file(codes, "y", category=["a"]).x[:3].tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (("2026-01-31", "2026-02-01"), "column a holds dates or times, such as '2026-01-31'"),
        (("31.1.2026", "1.2.2026 12:00"), "column a holds dates or times"),
        (("12:30", "13:45"), "--time a"),
        (("1", "2", "3", "4", "lots"), "column a holds numbers, but also 'lots'"),
        (("inf", "2", "3"), "infinite features in a (10)"),
        (("", "?"), "column a has no values; leave it out with --drop a"),
        (tuple(f"some words {i}" for i in range(60)), "column a has 60 different texts, such as 'some words 0'"),
    ],
)
def test_columns_that_are_no_features_are_refused_by_name(cells: tuple[str, ...], words: str, tmp_path: Path) -> None:
    lines = rows(*cells).splitlines()[1:]
    path = table(tmp_path, "a,y,b\n" + "".join(f"{line},{i}\n" for i, line in enumerate(lines)))
    assert_refused(lambda: data.from_file(path, "y"), [words])
    dataset = data.from_file(path, "y", drop=["a"])
    assert (dataset.features, readings(dataset)["a"]) == (1, ("left out", "as asked"))


def test_numbers_that_look_like_codes_are_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "shops.csv"
    rows = [f"{10100 + 7 * i},{i:03},{i / 4},{'ab'[i % 2]}\n" for i in range(1, 40)]
    path.write_text("postcode,till,sales,kind\n" + "".join(rows))
    for kept, words in (((), "column postcode"), (("postcode",), "column till may be a code and no quantity")):
        with pytest.raises(StiefelError, match=words):
            data.from_file(path, "kind", number=kept)
    assert data.from_file(path, "kind", number=("postcode", "till")).features == 3
    assert data.from_file(path, "kind", number=("till",), drop=("postcode",)).features == 2
    assert data.from_file(path, "kind", category=("postcode", "till")).features == 2 * 39 + 1
    with pytest.raises(StiefelError, match="number='shop'"):
        data.from_file(path, "kind", number=("shop",))


def test_row_numbers_that_pandas_wrote_are_no_feature(tmp_path: Path) -> None:
    text = ",a,y\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(20))
    dataset = data.from_file(table(tmp_path, text), "y")
    assert dataset.features == 1
    assert readings(dataset)["column 1"] == ("left out", "row numbers without a name")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop": ["c"]}, "drop='c' is not known"),
        ({"group": "y"}, "group='y' is the target"),
        ({"drop": ["y"]}, "drop='y' is the target"),
        ({"group": "a", "time": "a"}, "two ways to split"),
        ({"decimal": "'"}, 'decimal="\'" is not known'),
        ({"task": "ranking"}, "task='ranking' is not known"),
        ({"time": "b"}, "column b does not order the rows"),
    ],
)
def test_options_that_do_not_fit_the_file(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = table(tmp_path, "a,b,y\n" + "1,u,0\n2,v,1\n" * 10)
    assert_refused(lambda: data.from_file(path, "y", **options), [words])
