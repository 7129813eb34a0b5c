"""From the bytes of files, or OpenML's tables, to arrays: the codings, their hashes, and what is not in its format."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from data_room import ADULT_TEST, ADULT_TRAIN

from stiefel_init.lab.data import formats
from stiefel_init.lab.data.catalog import CATALOG, digest


def test_adult_categories_are_numbered_in_sorted_order_over_both_files() -> None:
    arrays = formats.adult({"adult.data": ADULT_TRAIN.encode(), "adult.test": ADULT_TEST.encode()})
    assert arrays["x_train"][0].tolist() == [39, 1, 77516, 0, 13, 1, 0, 0, 0, 0, 2174, 0, 40, 1]
    assert arrays["x_train"][1].tolist() == [50, 0, 83311, 0, 13, 0, 0, 1, 0, 0, 0, 0, 13, 0]
    assert arrays["x_test"][:, 13].tolist() == [2, 1]
    assert arrays["y_train"].tolist() == arrays["y_test"].tolist() == [0, 1]
    header = "age,workclass,fnlwgt,education,education-num,a,b,c,d,e,f,g,h,i,income\n"
    plain = [header + text.replace(", ", ",").replace("K.", "K") for text in (ADULT_TRAIN, ADULT_TEST)]
    csv = formats.adult({"train.csv": plain[0].encode(), "test.csv": plain[1].encode()})
    assert all(np.array_equal(arrays[name], csv[name]) for name in arrays)


@pytest.mark.parametrize(
    ("read", "lines", "shape"),
    [
        (formats.pima, ["6,148,72,35,0,33.6,0.627,50,1", "1,85,66,29,0,26.6,0.351,31,0"], (2, 8)),
        (formats.pima, ["a,b,c,d,e,f,g,h,outcome", *[f"6,148,72,35,0,33.6,0.627,50,{y}" for y in (1, 0)]], (2, 8)),
        (formats.ionosphere, [",".join(["1", "0", *["0.5"] * 32, label]) for label in "gb"], (2, 34)),
        (formats.ionosphere, [",".join(["1", "0", *["0.5"] * 32, label]) for label in "12"], (2, 34)),
    ],
)
def test_tables_of_numbers(read: Callable[..., formats.Arrays], lines: list[str], shape: tuple[int, int]) -> None:
    arrays = read({"file": "".join(f"{line}\n" for line in lines).encode()})
    assert (arrays["x"].shape, arrays["y"].tolist()) == (shape, [1, 0])
    assert arrays["x"][0].tolist() == [float(cell) for cell in lines[-2].split(",")[:-1]]


def test_openml_tables_give_the_arrays_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "ADULT_TEST_ROWS", 2)
    monkeypatch.setattr(formats, "IMAGE_TRAIN_ROWS", 2)
    rows = [line.rstrip(".").split(", ") for line in (ADULT_TEST + ADULT_TRAIN).splitlines() if "," in line]
    numbers = [[float(v) if j in formats.ADULT_NUMERIC else v for j, v in enumerate(row[:14])] for row in rows]
    table = np.array([[np.nan if value == "?" else value for value in row] for row in numbers], object)
    adult = formats.openml_adult(table, [row[14] for row in rows])
    expected = formats.adult({"adult.data": ADULT_TRAIN.encode(), "adult.test": ADULT_TEST.encode()})
    assert all(np.array_equal(adult[name], expected[name]) for name in expected)

    images = formats.openml_images(np.arange(6, dtype=np.uint8).reshape(3, 2), ["5", "0", "'4'"])
    assert (images["x_test"].tolist(), images["y_train"].tolist()) == ([[4, 5]], [5, 0])
    assert images["y_test"].tolist() == [4]
    for name, labels in (("pima", ["tested_positive", "tested_negative"]), ("ionosphere", ["g", "b"])):
        source = CATALOG[name].openml
        assert source is not None
        assert source.arrange(np.ones((2, 8)), labels)["y"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("read", "content", "words"),
    [
        (formats.pima, b"", None),
        (formats.pima, b"1,2,3\n", "line 1 has 3 fields where 9 belong"),
        (formats.pima, b"1,2,3,4,5,6,7,x,1\n", "'x'"),
        (formats.pima, b"1,2,3,4,5,6,7,8,1\n1,2,3,4,5,6,7,8,5\n", "class '5'"),
        (formats.pima, b"\xff\xfe", "not a text file"),
        (formats.adult, b"1, a, 2, b\n", "line 1 has 4 fields where 15 belong"),
        (formats.adult, ADULT_TRAIN.replace(">50K", "50K").encode(), "not one of Adult's"),
        (formats.adult, ADULT_TRAIN.replace("39,", "3x,").encode(), "not one of Adult's"),
        (formats.csv_images, b"label,a\n1,300\n", "not a table of bytes"),
    ],
)
def test_files_that_do_not_have_their_format(
    read: Callable[[formats.Files], formats.Arrays], content: bytes, words: str | None
) -> None:
    if words is None:
        assert len(read({"file": content})["y"]) == 0
        return
    with pytest.raises(formats.UnreadableError, match=words) as error:
        read({"file": content})
    assert error.value.file == "file"


def test_the_hash_sees_dtype_shape_and_content_and_no_layout() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    others: list[np.ndarray] = [array.astype(np.int32), array.reshape(3, 2), array + 1]
    assert digest(array) == digest(np.asfortranarray(array)) == digest(array.astype(">i8"))
    assert len({digest(array), *map(digest, others)}) == 4
