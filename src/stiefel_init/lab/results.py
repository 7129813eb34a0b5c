"""Published results: what the docs stand on, as small CSV files that diff, and as the records they came from."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import StiefelError
from . import records as keep
from .alignment import Study
from .cells import Cell
from .records import Record

COLUMNS = (
    "experiment", "dataset", "scheme", "variant", "depth", "activation", "shots", "alpha", "precision", "epochs",
    "rate", "seed",
)  # fmt: skip
OUTCOME = ("score", "diverged")
_NUMBERS = {
    "depth": int, "shots": int, "alpha": float, "epochs": int, "rate": float, "seed": int, "score": float,
    "diverged": int,
}  # fmt: skip


def folder() -> Path:
    """Where the results lie: beside this module in an installed package, at the root of a source tree."""
    for place in (Path(__file__).parent / "results", Path(__file__).parents[3] / "results"):
        if place.is_dir():
            return place
    raise StiefelError("The published results are not installed here; give a directory of records with --results.")


def publish(records: Sequence[Record], directory: Path) -> list[Path]:
    """Write the records as EXPERIMENT.csv, one line per network, and what they were run with as environment.json."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    environments = {}
    for experiment in sorted({r["experiment"] for r in records}):
        rows = [r for r in records if r["experiment"] == experiment]
        rows.sort(key=lambda r: tuple(str(r[name] if r[name] is not None else "").rjust(12) for name in COLUMNS))
        path = directory / f"{experiment}.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*COLUMNS, *OUTCOME])
            for r in rows:
                writer.writerow([_text(r[name]) for name in (*COLUMNS, *OUTCOME)])
        written.append(path)
        machines = Counter(json.dumps(r["environment"], sort_keys=True) for r in rows)
        environments[experiment] = {
            "networks": len(rows),
            "seconds": round(sum(r["seconds"] for r in rows), 1),
            "epochs": sorted({r["epochs"] for r in rows}),
            "environments": [json.loads(machine) | {"networks": count} for machine, count in machines.items()],
        }
    path = directory / "environment.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(dict(sorted((known | environments).items())), indent=1) + "\n", encoding="utf-8")
    return [*written, path]


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)


def load(directory: Path | None = None) -> list[Record]:
    """Records of a directory: published CSV files, or the JSON Lines of a run."""
    place = directory or folder()
    if not place.is_dir():
        raise StiefelError(f"--results {place} is not a directory; give one that holds records.")
    found = keep.read(place, lambda text: print(text, file=sys.stderr), touch=False)
    for path in sorted(place.glob("*.csv")):
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            names = next(csv.reader(file), [])
        if not names or set(COLUMNS) <= set(names):
            found += _rows(path, _parse)
    if not found:
        raise StiefelError(f"{place} holds no records; run an experiment with --out {place} first.")
    return found


def _rows(path: Path, convert: Callable[[dict[str, str]], Any]) -> list[Any]:
    """The lines of a CSV file, each converted; one that is not whole is named."""
    found = []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        for row in reader:
            try:
                if None in row or None in row.values():
                    raise ValueError("a line that is too short or too long")
                found.append(convert(row))
            except (ValueError, KeyError) as error:
                raise StiefelError(
                    f"{path}, line {reader.line_num}, is damaged ({error}); restore the file."
                ) from error
    if not found:
        raise StiefelError(f"{path} holds no lines; restore the file or remove it.")
    return found


_DEFAULTS = {f.name: f.default for f in fields(Cell) if f.default is not MISSING}


def _parse(row: dict[str, str]) -> Record:
    values: dict[str, Any] = dict(_DEFAULTS)
    for name, text in row.items():
        kind = _NUMBERS.get(name, str)
        values[name] = kind(text) if text else None
    return values


def write_study(study: Study, path: Path, plane: np.ndarray | None) -> None:
    """Figure 1's study as CSV: one line per matrix, with its place in the plane if there is one."""
    rows = []
    for i in range(len(study.alignment)):
        scores = {
            f"accuracy_{mode}": "" if np.isnan(values[i]) else f"{values[i]:.4f}"
            for mode, values in study.accuracy.items()
        }
        place = ("", "") if plane is None else (f"{plane[i, 0]:.3f}", f"{plane[i, 1]:.3f}")
        rows.append(
            {"member": int(study.aligned[i]), "alignment": f"{study.alignment[i]:.4f}"}
            | scores
            | dict(zip("xy", place))
        )
    write_rows(rows, path)


def read_study(path: Path) -> tuple[Study, np.ndarray | None]:
    """What `write_study` wrote; the vectors themselves are not kept."""
    rows = _rows(path, lambda row: {name: float(text or "nan") for name, text in row.items()})
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    accuracy = {
        name.removeprefix("accuracy_"): values for name, values in column.items() if name.startswith("accuracy_")
    }
    plane = None if np.isnan(column["x"][0]) else np.array([column["x"], column["y"]]).T
    return Study(column["member"] == 1, column["alignment"], np.empty((0, 0)), accuracy), plane


def write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A table of numbers and names as CSV."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    keep.write_whole(path, text.getvalue().encode())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote."""
    return _rows(path, lambda row: {name: _number(text) for name, text in row.items()})


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
