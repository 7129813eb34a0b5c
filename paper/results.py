"""Published results: records as small, diffable CSV files that keep the identity of every network."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from stiefel_init import schemes
from stiefel_init.core.errors import StiefelError, unknown
from stiefel_init.lab.files import write_whole
from stiefel_init.lab.train import record as record_files
from stiefel_init.lab.train.cell import ADDED, Cell
from stiefel_init.lab.train.problem import METRICS
from stiefel_init.lab.train.record import MEASURES, Environment, Record

ENVIRONMENT = "environment.json"
IDENTITY = tuple(field.name for field in fields(Cell) if field.name not in ADDED)
COLUMNS = (*IDENTITY, "metric", "score", "diverged")
_NUMBERS: dict[str, Callable[[str], Any]] = {
    "depth": int, "seed": int, "epochs": int, "batch": int, "shots": int, "protocol": int, "diverged": int,
    "rate": float, "alpha": float, "score": float, "decay": float, "dropout": float, "ends": float,
    **dict.fromkeys(("clip", "smoothing", "warmup"), float), "groups": "True".__eq__,
    **dict.fromkeys(MEASURES, float),
    "width": lambda text: tuple(map(int, text.split())) if " " in text else int(text),
}  # fmt: skip


def folder() -> Path:
    """The published results: at the root of a source tree, or in the package that has nothing else."""
    place = Path(__file__).parents[1] / "results"
    if (place / ENVIRONMENT).is_file():
        return place
    package = importlib.util.find_spec("stiefel_init_records")
    if package is not None and package.submodule_search_locations:
        return Path(package.submodule_search_locations[0])
    raise StiefelError(
        "The published records are not installed here; pip install 'stiefel-init[records]', or give a directory of "
        "records with --results."
    )


class Results:
    """A directory of results: published CSV files, or the JSON Lines of a run, or both."""

    def __init__(self, directory: Path | None = None) -> None:
        self.place = directory or folder()
        if not self.place.is_dir():
            raise StiefelError(f"{self.place} is not a directory; give one that holds records.")

    @cached_property
    def records(self) -> dict[Cell, Record]:
        """All records, each network once, by their cells."""
        records = recorded(self.place, _warn, touch=False, tables=self._tables)
        if not records and not any(path.is_file() for path in self.place.glob("*.csv")):
            raise StiefelError(f"{self.place} holds no records; run an experiment with --out {self.place} first.")
        return records

    @cached_property
    def _tables(self) -> dict[str, dict[Cell, Record]]:
        return _read_tables(self.place, _warn)

    def records_of(self, name: str) -> dict[Cell, Record]:
        """All records; of a network that several experiments trained, what is in this one's table."""
        return self.records | self._tables.get(name, {})

    def table(self, name: str, of: Callable[[str], Any] | None = None) -> list[dict[str, Any]]:
        """The rows of NAME.csv, numbers as numbers unless `of` reads a cell; none if there is no such file."""
        path, read = self.place / f"{name}.csv", of or _number
        return _rows(path, lambda row: {key: read(text) for key, text in row.items()}) if path.exists() else []

    @cached_property
    def environments(self) -> dict[str, Any]:
        """What each experiment was run with."""
        path = self.place / ENVIRONMENT
        if not path.exists():
            return {}
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
                raise ValueError("some experiment lacks its networks, seconds or environments")
        except (OSError, ValueError, RecursionError) as error:
            raise StiefelError(f"{path} is damaged ({error}); restore it.") from error
        return entries


def _warn(text: str) -> None:
    print(text, file=sys.stderr)


def recorded(
    directory: Path,
    tell: Callable[[str], None],
    *,
    touch: bool = True,
    tables: Mapping[str, Mapping[Cell, Record]] | None = None,
) -> dict[Cell, Record]:
    """What a directory has of networks, each once: published tables, and records, which tell more.

    `tell` receives a sentence for each file that is left out; damaged records are set aside unless `touch` is false.
    """
    if not directory.is_dir():
        return {}
    networks: dict[Cell, Record] = {}
    for table in (_read_tables(directory, tell) if tables is None else tables).values():
        networks |= table
    return networks | record_files.read(directory, tell, touch=touch)


def _read_tables(directory: Path, tell: Callable[[str], None]) -> dict[str, dict[Cell, Record]]:
    return {path.stem: _networks(path, tell) for path in sorted(directory.glob("*.csv")) if path.is_file()}


def publish(
    source: Results, experiments: Mapping[str, Sequence[Record]], tables: Iterable[str], out: Path
) -> list[Path]:
    """Publish a run: each experiment's records as NAME.csv, one line per network, its `tables`, and environment.json.

    A network that several experiments share goes to the first; if its outcomes differ, to each. A published experiment
    of which the run has nothing but by-products of others stays as it is, as do other files in `out`.
    """
    written = []
    environments = Results(out).environments
    untouched = {name for name in _by_products(experiments) if (out / f"{name}.csv").exists()}
    taken: dict[Cell, Record] = {}
    for name, records in experiments.items():
        if name in untouched:
            taken |= _networks(out / f"{name}.csv", lambda _: None)
            continue
        kept = {cell: (one.score, one.diverged) for cell, one in taken.items()}
        fresh = sorted((one for one in records if kept.get(one.cell) != (one.score, one.diverged)), key=_order)
        taken |= {record.cell: record for record in fresh}
        if fresh:
            added = [name for name in ADDED if any(name in record.cell.identity() for record in fresh)]
            added += [name for name in MEASURES if any(getattr(record, name) is not None for record in fresh)]
            written.append(write_table([_row(record, added) for record in fresh], out / f"{name}.csv"))
            environments[name] = _entry(fresh, source.environments.get(name) or environments.get(name))
    for name in tables:
        if source.table(name):  # which also says what is wrong with it
            written.append(write_whole(out / f"{name}.csv", (source.place / f"{name}.csv").read_bytes()))
            environments |= {key: entry for key, entry in source.environments.items() if key == name}
    return [*written, _write_environments(out, environments)]


def _networks(path: Path, tell: Callable[[str], None]) -> dict[Cell, Record]:
    """The records of a table; none if there is no such file, or if it has other columns or unknown schemes."""
    header, named = _columns(path) if path.is_file() else (["no table"], [])
    if header and not set(COLUMNS) <= set(header):
        return {}
    for scheme in named:
        name = next(iter(scheme.split()), "")
        if re.fullmatch(r"[A-Za-z][\w-]*", name) and name not in schemes.names():
            tell(f"Skipped {path}, which holds unknown networks: {unknown('scheme', scheme, schemes.names())}")
            return {}
    return {record.cell: record for record in _rows(path, _record)}


def note_environment(
    directory: Path, name: str, environment: Environment, seconds: float, networks: int, *, add: bool = False
) -> None:
    """Note in environment.json how a table that is not made of records was run, or `add` to what is noted there."""
    known = Results(directory).environments
    before = known.get(name, {}) if add else {}
    made = {json.dumps({**each, "networks": 0}, sort_keys=True): each for each in before.get("environments", [])}
    same = json.dumps({**environment, "networks": 0}, sort_keys=True)
    count = networks + made.get(same, {"networks": 0})["networks"]
    entry = {
        "networks": before.get("networks", 0) + networks,
        "seconds": round(before.get("seconds", 0) + seconds, 1),
        "environments": [*(made | {same: {**environment, "networks": count}}).values()],
    }
    _write_environments(directory, known | {name: entry})


def _write_environments(directory: Path, environments: Mapping[str, Any]) -> Path:
    return write_whole(directory / ENVIRONMENT, json.dumps(dict(sorted(environments.items())), indent=1) + "\n")


def _entry(records: Sequence[Record], before: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """How records were run; those read from a table do not say, but its entry `before` does."""
    fresh = [record for record in records if record.environment or before is None]
    nothing: Mapping[str, Any] = {"seconds": 0.0, "environments": []}
    kept = before if before is not None and len(fresh) < len(records) else nothing
    if not fresh:
        return kept
    seconds = round(kept["seconds"] + sum(record.seconds for record in fresh), 1)
    counts = Counter(json.dumps(dict(record.environment), sort_keys=True) for record in fresh)
    made = [json.loads(text) | {"networks": count} for text, count in counts.items()]
    return {**kept, "networks": len(records), "seconds": seconds, "environments": [*kept["environments"], *made]}


def _by_products(experiments: Mapping[str, Sequence[Record]]) -> set[str]:
    """Those of which the run has only networks that it has for others too, and of these a larger share."""
    run = {name: {record.cell for record in records if record.environment} for name, records in experiments.items()}
    share = {name: len(run[name]) / max(len(records), 1) for name, records in experiments.items()}
    return {
        name
        for name, mine in run.items()
        if mine and mine <= set().union(*(run[other] for other in run if share[other] > share[name]))
    }


def _is_entry(entry: Any) -> bool:
    match entry:
        case {"networks": int(), "seconds": int() | float(), "environments": [*made]}:
            told = (e for e in made if isinstance(e, dict) and {"device", "engine"} <= e.keys())
            return len([e for e in told if isinstance(e.get("networks"), int)]) == len(made)
    return False


def _order(record: Record) -> tuple[str, ...]:
    return tuple(str("" if value is None else value).rjust(12) for value in record.cell.identity().values())


def _row(record: Record, added: Sequence[str]) -> dict[str, str]:
    """A line of a table; of the fields of `ADDED` and of `MEASURES` it has those that some line needs."""
    values = {name: getattr(record if name in MEASURES else record.cell, name) for name in added}
    values |= record.cell.identity()
    score = record.score if math.isfinite(record.score) else None
    values |= {"metric": record.metric.name, "score": score, "diverged": record.diverged}
    texts = {name: " ".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in values.items()}
    return {name: "" if values[name] is None else texts[name] for name in (*COLUMNS, *added)}


@cache
def _setting(texts: tuple[str | None, ...]) -> Cell:
    """The network of a line, without its seed; many lines have the same."""
    values = {name: _value(text, name) for name, text in zip(_SETTING, texts) if text is not None}
    if values["dataset"] is None or values["rate"] is None:
        raise ValueError("a line without a data set or a rate")
    return Cell(**values)


def _record(row: dict[str, str]) -> Record:
    cell, metric = _setting(tuple(map(row.get, _SETTING))).with_seed(int(row["seed"])), METRICS[row["metric"]]
    score, diverged = (_value(row[name], name) for name in ("score", "diverged"))
    measures: dict[str, Any] = {name: _value(row[name], name) for name in MEASURES if name in row}
    return Record(cell, metric, metric.worst if score is None else score, diverged, **measures)


_SETTING = tuple(field.name for field in fields(Cell) if field.name != "seed")


def _value(text: str, name: str) -> Any:
    return _NUMBERS.get(name, str)(text) if text else None


def _columns(path: Path) -> tuple[list[str], list[str]]:
    """The header of a table, and the schemes that it names; of what is no table a header of one word."""
    with open(path, newline="", encoding="utf-8", errors="replace") as file, contextlib.suppress(csv.Error):
        reader = csv.reader(file)
        header, found = next(reader, []), list[str]()
        with contextlib.suppress(csv.Error):
            at = header.index("scheme") if "scheme" in header else len(header)
            found += dict.fromkeys(row[at] for row in reader if len(row) > at)
        return header, found
    return ["no table"], []


def _rows(path: Path, convert: Callable[[dict[str, str]], Any]) -> list[Any]:
    """The lines of a CSV file, each converted; a damaged one is named."""
    rows = []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError("a line that is too short or too long")
                rows.append(convert(row))
        except (ValueError, KeyError, csv.Error) as error:
            reason = str(error).rstrip(".")
            raise StiefelError(f"{path}, line {reader.line_num}, is damaged ({reason}); restore the file.") from error
    if not rows:
        raise StiefelError(f"{path} has no lines; restore the file or remove it.")
    return rows


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """A table of numbers and names as CSV; a column that only some rows have is empty in the others."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_whole(path, text.getvalue())


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
