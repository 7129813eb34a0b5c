"""The user's tables: text with any usual separator, compressed or not, and Parquet; and what their columns are.

A column holds numbers, categories, or neither, which is refused by name.
"""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Sequence
from numbers import Number
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ...core.errors import StiefelError, install
from ..plugins import first_line
from ..progress import counted

SEPARATORS = (",", ";", "\t", "|")
UNPACK = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ\x00": lzma.decompress}
DAMAGED = (OSError, EOFError, RuntimeError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""What unpacking a damaged file raises."""
_NO_TABLES = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "a spreadsheet"), **dict.fromkeys((".json", ".jsonl"), "JSON"),
    **dict.fromkeys((".npz", ".npy"), "a file of arrays"), ".pkl": "a pickle", ".feather": "a Feather file",
    ".arff": "an ARFF file",
}  # fmt: skip
_LOOK = 20  # lines that tell the separator
Decimal = Literal[".", ","]
MARKS: tuple[Decimal, ...] = (".", ",")
MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "."})
"""Cells that say there is no value, in lower case."""
MOST_CATEGORIES = 50  # different texts of a column; more are free text or an identifier, unless the user says otherwise
LEAST_APART = 10  # of so many rows or more, texts that are all different are no categories, however few
_POINT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)
_GROUPED_POINT = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_CODE = re.compile(r"zip|plz|postal|post_?code|phone|code$|(^|[^a-z])id$", re.IGNORECASE)
"""Names of columns whose whole numbers are seldom quantities."""
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4})([T ].*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
)


def read_table(path: Path) -> tuple[Any, str]:
    """The table in a file, as a pandas frame, and its separator; empty for Parquet.

    In text files every cell is a str, as it stands; the columns of Parquet have types of their own.
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


# Columns.


class Reading(NamedTuple):
    """How a column was read."""

    column: str
    read_as: str
    note: str = ""


def decimal_mark(frame: Any, separator: str, given: Decimal | None) -> Decimal:
    """The decimal mark of a table's numbers; `1,000` alone does not tell it, and then the user must."""
    if given is not None:
        return given
    evidence, doubtful = dict[str, str](), ""
    for name in frame.columns:
        if getattr(frame[name].dtype, "kind", "O") != "O":
            continue
        cells = (cell.strip() for cell in frame[name] if isinstance(cell, str))
        texts = [text for text in dict.fromkeys(cells) if text.lower() not in MISSING]
        values = {text: {mark: number(text, mark) for mark in MARKS} for text in texts}
        numeric = {text: read for text, read in values.items() if any(value is not None for value in read.values())}
        if len(numeric) < len(texts) / 2:
            continue
        for text, read in numeric.items():
            marks = [mark for mark in MARKS if read[mark] is not None]
            if len(marks) == 1:
                evidence.setdefault(marks[0], f"{text} in {name}")
            elif read["."] != read[","]:
                doubtful = doubtful or f"{text} in {name}"
    if len(evidence) == 2:
        raise StiefelError(
            f"decimal points and decimal commas are mixed ({evidence['.']}, {evidence[',']}); write one of them, or "
            "say which with --decimal."
        )
    if not evidence and doubtful and separator != ",":
        raise StiefelError(
            f"{doubtful} may be a thousand or have three decimals; say --decimal . or --decimal , for which mark."
        )
    return "," if "," in evidence else "."


def number(text: str, decimal: Decimal = ".") -> float | None:
    """The number that a text is, with thousands grouped or not; None if it is none.

    >>> number("1,000"), number("1.000,5", ","), number("a")
    (1000.0, 1000.5, None)
    """
    if decimal == ",":
        text = text.translate({ord("."): ",", ord(","): "."})
    if _GROUPED_POINT.fullmatch(text):
        text = text.replace(",", "")
    return float(text) if _POINT.fullmatch(text) else None


def features(
    name: str, values: Any, decimal: Decimal, *, category: bool = False, quantity: bool = False
) -> tuple[np.ndarray, Reading]:
    """A column, a pandas series, as features, NaN where a number is missing, and how it was read.

    Numbers are taken as they are, categories as one column each. The user may say that it is a `category`, or that its
    numbers are a `quantity`, even if they look like codes. Any other column is refused by name.
    """
    numbers, gaps, texts = _read(name, values, decimal, as_text=category)
    if gaps.all():
        raise StiefelError(f"column {name} has no values; leave it out with --drop {name}.")
    missing = int(gaps.sum())
    if numbers is not None and not category:
        if np.isinf(numbers).any():
            raise StiefelError(
                f"infinite features in {name} ({np.isinf(numbers).sum()}); correct them, or --drop {name}."
            )
        zeros = next((text for text in texts if re.fullmatch(r"0\d*[1-9]\d*", text)), "")
        if not quantity and (zeros or (_CODE.search(name) and not (numbers[~gaps] % 1).any())):
            raise StiefelError(
                f"column {name} may be a code and no quantity, such as {zeros or texts[int(np.argmin(gaps))]}; say "
                f"--category {name}, --drop {name}, or --number {name} if it is a quantity."
            )
        commas = any("," in text for text in texts)
        notes = (
            "constant" if numbers[~gaps].min() == numbers[~gaps].max() else "",
            ("decimal comma" if decimal == "," else "commas group thousands") if commas else "",
            f"{missing} missing, filled with the training mean" if missing else "",
        )
        return numbers[:, None], Reading(name, "number", "; ".join(filter(None, notes)))
    return _categories(name, texts, gaps, category)


def _categories(name: str, texts: Sequence[str], gaps: np.ndarray, category: bool) -> tuple[np.ndarray, Reading]:
    names = np.where(gaps, "(missing)", np.array(texts, object)).astype(str)
    levels, codes = np.unique(names, return_inverse=True)
    apart = len(levels) == len(names) >= LEAST_APART and not category
    if len(levels) > (1000 if category else MOST_CATEGORIES) or apart:
        advice = "" if category else f", or take it as categories with --category {name}"
        raise StiefelError(
            f"column {name} has {len(levels):,} different texts, such as {shown(texts[int(np.argmin(gaps))])}: free "
            f"text or an identifier; leave it out with --drop {name}{advice}."
        )
    missing = int(gaps.sum())
    note = f"{len(levels)}: {', '.join(levels[:6])}{', …' if len(levels) > 6 else ''}"
    if missing:
        note += f"; {missing} missing, a category of their own"
    one_hot = codes[:, None].astype(float) if len(levels) <= 2 else (codes[:, None] == np.arange(len(levels))) * 1.0
    return one_hot, Reading(name, "category", note)


def classes_or_numbers(name: str, values: Any, decimal: Decimal, *, classes: bool) -> np.ndarray:
    """The target column: numbers if all are, else texts; None or NaN where one is missing."""
    numbers, gaps, texts = _read(name, values, decimal, as_text=classes)
    if numbers is not None:
        return numbers
    return np.array([None if gap else text for text, gap in zip(texts, gaps)], object)


def labels(name: str, values: Any) -> np.ndarray:
    """A column whose equal values belong together, as whole numbers."""
    texts = [str(value).strip() for value in values]
    if any(text.lower() in MISSING or text in ("NaT", "<NA>") for text in texts):
        raise StiefelError(f"column {name} has missing values; every row needs its group.")
    return np.unique(np.array(texts), return_inverse=True)[1]


def times(name: str, values: Any, decimal: Decimal) -> np.ndarray:
    """A column that orders the rows: numbers or dates, as numbers that grow with time."""
    import pandas

    if pandas.api.types.is_datetime64_any_dtype(values):
        dates = values
    else:
        texts = values.astype(str).str.strip()
        numbers = [number(text, decimal) for text in texts]
        if None not in numbers:
            return np.array(numbers, float)
        dates = pandas.to_datetime(texts, errors="coerce", format="ISO8601", utc=True)
    if dates.isna().any():
        raise StiefelError(f"column {name} does not order the rows; give numbers, or dates as 2026-01-31 in every row.")
    return dates.astype("int64").to_numpy().astype(float)


def shown(text: object) -> str:
    """A value as a message quotes it: not longer than a line."""
    line = " ".join(str(text).split())
    return repr(line if len(line) <= 30 else f"{line[:29]}…")


def _read(
    name: str, values: Any, decimal: Decimal, *, as_text: bool
) -> tuple[np.ndarray | None, np.ndarray, list[str]]:
    """(the numbers, if it has no others; where values are missing; the texts).

    Dates, and numbers with something else among them, are refused, unless the user wants them `as_text`.
    """
    kind = getattr(values.dtype, "kind", "O")
    if kind in "biuf":
        gaps = values.isna().to_numpy(dtype=bool)
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers, gaps, [f"{value:g}" for value in numbers]
    present = ~values.isna().to_numpy(dtype=bool)
    cells = values.to_numpy(dtype=object)
    kinds = {type(cell) for cell, here in zip(cells, present) if here}
    if kind in "mM" or any(issubclass(each, datetime.date | datetime.time | datetime.timedelta) for each in kinds):
        raise _dates(name)
    if strange := [each.__name__ for each in kinds if not issubclass(each, str | bytes | Number | np.generic)]:
        raise StiefelError(f"column {name} holds values of type {strange[0]}; leave it out with --drop {name}.")
    texts = [str(cell).strip() if here else "" for cell, here in zip(cells, present)]
    parsed = {text: number(text, decimal) for text in dict.fromkeys(texts)}
    known = {text: value for text, value in parsed.items() if text.lower() not in MISSING}
    gaps = np.array([text not in known for text in texts])
    other = [text for text, value in known.items() if value is None]
    if known and not other:
        return np.array([np.nan if gap else parsed[text] for text, gap in zip(texts, gaps)], float), gaps, texts
    if as_text:
        return None, gaps, texts
    if other and sum(bool(_DATE.fullmatch(text)) for text in other) > 0.8 * len(known):
        raise _dates(name, other[0])
    if len(other) < len(known) / 2:
        raise StiefelError(
            f"column {name} holds numbers, but also {', '.join(map(shown, other[:3]))}; correct or empty those cells, "
            f"or take the column as categories with --category {name}."
        )
    return None, gaps, texts


def _dates(name: str, example: str = "") -> StiefelError:
    such = f", such as {shown(example)}" if example else ""
    return StiefelError(
        f"column {name} holds dates or times{such}; leave it out with --drop {name}, or order the rows by it with "
        f"--time {name}."
    )
