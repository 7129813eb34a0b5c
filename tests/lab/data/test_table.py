"""Tables from files: separators, compression, Parquet, and files that are none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import one_sentence

from stiefel_init import StiefelError
from stiefel_init.lab import data

TEXT = "size,colour,kind\n" + "1.5,red,b\n-2,blue,a\n" * 5


def zipped(text: bytes, names: tuple[str, ...] = ("table.csv",)) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, text)
    return buffer.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": zipped,
}


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_files(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.csv.{kind}"
    path.write_bytes(PACKED[kind](TEXT.encode()))
    dataset = data.from_file(path, "kind")
    assert (dataset.name, dataset.x[:2].tolist()) == ("table", [[1.5, 1], [-2, 0]])
    path.write_bytes(PACKED[kind](TEXT.encode())[:-30])
    with pytest.raises(StiefelError) as error:
        data.from_file(path, "kind")
    assert "cannot be unpacked" in one_sentence(error)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text("\ufeff" + TEXT.replace(",", separator), encoding="utf-8")
    assert data.from_file(path, "kind").x[:2].tolist() == [[1.5, 1], [-2, 0]]


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    when = pd.date_range("2026-01-01", periods=20)
    frame = pd.DataFrame(
        {"a": pd.array([1, None] * 10, dtype="Int64"), "b": ["u", "v", "w", None] * 5, "when": when, "y": [0, 1] * 10}
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
    with pytest.raises(StiefelError, match="not a readable Parquet file"):
        data.from_file(path, "y")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,a,y\n1,2,0\n", "more than one column 'a'"),
        (b"1,2,3\n4,5,6\n", "begins with 1, 2, 3, not with names; add a header"),
        (b"\x00\x01\x02\xff" * 50, "not a readable table"),
        (zipped(TEXT.encode(), ("one.csv", "two.csv")), "holds 2 files"),
        (b"\n\n", "is empty"),
    ],
)
def test_files_that_are_no_table(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(StiefelError) as error:
        data.from_file(path, "y")
    assert words in one_sentence(error)
