"""Tables from files: text with any usual separator, compressed or not, and Parquet; cells of text are not yet read."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zipfile
import zlib
from pathlib import Path
from typing import Any

from ...core.errors import StiefelError, install
from ..plugins import first_line
from ..progress import counted
from .columns import number

SEPARATORS = (",", ";", "\t", "|")
UNPACK = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ\x00": lzma.decompress}
DAMAGED = (OSError, EOFError, RuntimeError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""What unpacking a damaged file raises."""
_SHEET = "a spreadsheet"
_NO_TABLES = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _SHEET), ".json": "JSON", ".jsonl": "JSON", ".npz": "a file of arrays",
    ".npy": "a file of arrays", ".pkl": "a pickle", ".feather": "a Feather file", ".arff": "an ARFF file",
}  # fmt: skip
_LOOK = 20  # lines that tell the separator


def read_table(path: Path) -> tuple[Any, str]:
    """The table in a file, as a pandas frame, and its separator; empty for Parquet.

    In text files every cell is a str, as it stands; the columns of Parquet have types of their own.

    Raises:
        StiefelError: for a file that cannot be read, or that is no table.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StiefelError(f"{path} cannot be read ({error.strerror or error}); give the path of a table.") from None
    raw = _unpacked(path, raw)
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq") and not raw.startswith(b"PAR1"):
        raise StiefelError(f"{path} is not a Parquet file, whatever its name says; write it again.")
    if suffix in _NO_TABLES:
        raise StiefelError(f"{path} is {_NO_TABLES[suffix]}, which is not read; save the table as CSV or Parquet.")
    frame, separator = (_parquet(path, raw), "") if raw.startswith(b"PAR1") else _text(path, raw)
    if not len(frame):
        raise StiefelError(f"{path} has a header and no rows; give a table with rows.")
    return frame, separator


def _unpacked(path: Path, raw: bytes) -> bytes:
    """The content, unpacked if it is compressed, whatever the file is called."""
    try:
        if path.suffix.lower() in _NO_TABLES:  # spreadsheets are archives too
            return raw
        for magic, unpack in UNPACK.items():
            if raw.startswith(magic):
                return unpack(raw)
        if raw.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
                if len(names) != 1:
                    raise StiefelError(f"{path} holds {len(names)} files; give an archive of one table.")
                return archive.read(names[0])
    except StiefelError:
        raise
    except DAMAGED as error:
        raise StiefelError(f"{path} cannot be unpacked ({error}); compress the table again.") from None
    return raw


def _parquet(path: Path, raw: bytes) -> Any:
    import pandas

    try:
        frame = pandas.read_parquet(io.BytesIO(raw)).reset_index(drop=True)
    except ImportError:
        raise StiefelError(f"{path} is a Parquet file, which needs pyarrow; run {install('parquet')}.") from None
    except Exception as error:  # pyarrow has its own kinds
        raise StiefelError(f"{path} is not a readable Parquet file ({first_line(error)}); write it again.") from None
    frame.columns = [str(name) for name in frame.columns]
    _refuse_names(path, list(frame.columns))
    return frame


def _text(path: Path, raw: bytes) -> tuple[Any, str]:
    import pandas

    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, str(error)) from None
    lines = [line for line in text[:1_000_000].splitlines()[: _LOOK + 1] if line.strip()]
    if not lines:
        raise StiefelError(f"{path} is empty; give a table with a header and rows.")
    separator, cells = _separator(lines), list[list[str]]()
    rows = csv.reader(io.StringIO(text), delimiter=separator)
    try:
        names = [name.strip() for name in next(rows)]
        _refuse_names(path, names)
        for row in filter(None, rows):
            if len(row) != len(names):
                raise StiefelError(
                    f"{path} has {counted(len(row), 'value')} in line {rows.line_num}, where its header has "
                    f"{len(names)}; correct that line."
                )
            cells.append(row)
        if text.count('"') % 2 and cells and "\n" in "".join(cells[-1]):  # the rest of the file, taken for a cell
            raise csv.Error("a quotation mark is not closed")
    except csv.Error as error:
        raise _unreadable(path, str(error)) from None
    columns = [name or f"column {place}" for place, name in enumerate(names, 1)]
    return pandas.DataFrame(cells, columns=columns, dtype=object), separator


def _unreadable(path: Path, reason: str) -> StiefelError:
    return StiefelError(
        f"{path} is not a readable table ({' '.join(reason.split()).rstrip('.')}); save it as UTF-8, one separator."
    )


def _separator(lines: list[str]) -> str:
    """The separator that cuts the first lines into the same number of cells, the most of them."""

    def cells(separator: str) -> int:
        counts = {len(row) for row in csv.reader(lines[:_LOOK], delimiter=separator)}
        return counts.pop() if len(counts) == 1 else 1

    best = max(SEPARATORS, key=cells)
    return best if cells(best) > 1 else max(SEPARATORS, key=lines[0].count)


def _refuse_names(path: Path, names: list[str]) -> None:
    """Stop at a header that is none: numbers, or the same name twice."""
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise StiefelError(f"{path} has more than one column {twice[0]!r}; rename them.")
    if all(number(name) is not None for name in names):
        raise StiefelError(f"{path} begins with {', '.join(names[:3])}, not with names; add a header.")
