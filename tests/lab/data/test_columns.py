"""How the columns of a user's table are read: numbers, categories, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import one_sentence

from stiefel_init import StiefelError
from stiefel_init.lab import data


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


def rows(*cells: str, last: str = "0,1", separator: str = ",") -> str:
    """A table of one column `a` with these cells, repeated, and a target `y`."""
    targets = last.split(",")
    count = max(10, 2 * len(cells))
    lines = [f"{cells[i % len(cells)]}{separator}{targets[i % len(targets)]}" for i in range(count * len(cells))]
    return f"a{separator}y\n" + "\n".join(lines) + "\n"


def readings(dataset: data.Dataset) -> dict[str, tuple[str, str]]:
    return {reading.column: (reading.read_as, reading.note) for reading in dataset.columns}


@pytest.mark.parametrize("gap", ["?", "", "NA", "n/a", "NaN", "null", "-"])
def test_a_missing_number_is_filled_with_the_mean_of_the_training_part_and_told(gap: str, tmp_path: Path) -> None:
    dataset = data.from_file(table(tmp_path, rows("1", "2", gap, "9")), "y")
    read_as, note = readings(dataset)["a"]
    assert (read_as, note) == ("number", "10 missing, filled with the training mean")
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
    with pytest.raises(StiefelError, match="1,000 in a may be a thousand or have three decimals; say --decimal"):
        data.from_file(path, "y")
    assert data.from_file(path, "y", decimal=",").x[:2, 0].tolist() == [1, 2.5]
    assert data.from_file(path, "y", decimal=".").x[:2, 0].tolist() == [1000, 2500]
    mixed = table(tmp_path, "a;b;y\n" + "1,5;1.5;0\n2,5;2.5;1\n" * 5)
    with pytest.raises(StiefelError, match=r"mixed \(1.5 in b, 1,5 in a\)"):
        data.from_file(mixed, "y")


def test_categories_become_a_feature_each_and_two_become_one(tmp_path: Path) -> None:
    text = "town,member,y\n" + "Ulm,yes,0\nBern,no,1\n?,no,0\nRom,yes,1\n" * 5
    dataset = data.from_file(table(tmp_path, text), "y")
    assert dataset.x[:4].tolist() == [[0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 1]]
    assert readings(dataset)["town"] == ("category", "4: (missing), Bern, Rom, Ulm; 5 missing, a category of their own")


def test_a_column_of_codes_is_a_category_if_the_user_says_so(tmp_path: Path) -> None:
    path = table(tmp_path, rows("1", "2", "3"))
    assert data.from_file(path, "y").features == 1
    assert data.from_file(path, "y", category=["a"]).x[:3].tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (("2026-01-31", "2026-02-01"), "column a holds dates or times, such as '2026-01-31'"),
        (("31.1.2026", "1.2.2026 12:00"), "column a holds dates or times"),
        (("12:30", "13:45"), "--time a"),
        (("1", "2", "3", "4", "lots"), "column a holds numbers, but also 'lots'"),
        (("inf", "2", "3"), "infinite features in a (10)"),
        (("1e400", "2", "3"), "infinite features in a (10)"),
        (("", "?"), "column a has no values; leave it out with --drop a"),
        (tuple(f"some words {i}" for i in range(60)), "column a has 60 different texts, such as 'some words 0'"),
    ],
)
def test_columns_that_are_no_features_are_refused_by_name(cells: tuple[str, ...], words: str, tmp_path: Path) -> None:
    path = table(tmp_path, rows(*cells).replace("a,", "a,b,", 1).replace("\n", ",5\n").replace("y,5\n", "y\n", 1))
    path.write_text("a,y,b\n" + "".join(f"{line},{i}\n" for i, line in enumerate(rows(*cells).splitlines()[1:])))
    with pytest.raises(StiefelError) as error:
        data.from_file(path, "y")
    assert words in one_sentence(error)
    dataset = data.from_file(path, "y", drop=["a"])
    assert (dataset.features, readings(dataset)["a"]) == (1, ("left out", "as asked"))


def test_row_numbers_that_pandas_wrote_are_no_feature(tmp_path: Path) -> None:
    text = ",a,y\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(20))
    dataset = data.from_file(table(tmp_path, text), "y")
    assert dataset.features == 1
    assert readings(dataset)["column 1"] == ("left out", "row numbers without a name")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop": ["c"]}, "drop='c' is not known"),
        ({"category": ["c"]}, "category='c' is not known"),
        ({"group": "c"}, "group='c' is not known"),
        ({"time": "c"}, "time='c' is not known"),
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
    with pytest.raises(StiefelError) as error:
        data.from_file(path, "y", **options)
    assert words in one_sentence(error)


def test_more_than_twenty_whole_numbers_may_be_classes_or_a_quantity(tmp_path: Path) -> None:
    path = table(tmp_path, "a,y\n" + "".join(f"{i},{i % 26}\n" for i in range(260)))
    with pytest.raises(StiefelError, match=r"26 different whole numbers as targets.*say --task classification"):
        data.from_file(path, "y")
    assert data.from_file(path, "y", task="classification").classes == 26
    assert data.from_file(path, "y", task="regression").classes is None
