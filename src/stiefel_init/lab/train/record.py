"""Records: the outcome of each cell, as JSON Lines that survive a kill, a copy and a diff.

A finished stack is one file, one line per cell: `pandas.read_json(path, lines=True)` reads it. It is written under a
temporary name, synced and renamed, so a file is complete or absent. Every line has its number, the number of lines and
a checksum, so a truncated or altered file is detected and set aside.
"""

from __future__ import annotations

import json
import math
import platform
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ... import __version__
from ...core.errors import StiefelError
from ..files import set_aside, write_whole
from .cell import Cell, digest
from .problem import METRICS, Metric
from .source import commit, source_hash

Environment = Mapping[str, Any]
MEASURES = ("log_loss", "calibration", "noisy", "best", "memory")  # what is known of some networks besides their score


@dataclass
class Outcome:
    """What training a cell has led to so far; `Record` explains the fields."""

    score: float = math.nan
    train_loss: list[float] = field(default_factory=list)
    train_score: list[float] = field(default_factory=list)
    tested: list[int] = field(default_factory=list)
    test_score: list[float] = field(default_factory=list)
    diverged: int | None = None
    balanced: float | None = None
    log_loss: float | None = None
    calibration: float | None = None
    noisy: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The outcome of one cell. Scores are accuracies in percent; for regression, root mean squared errors.

    >>> from stiefel_init.lab import run
    >>> (record,) = run([Cell("digits", depth=1, epochs=1)], device="cpu")
    >>> record.tested, record.metric.label
    ((1,), 'test accuracy (%)')
    """

    cell: Cell
    metric: Metric
    score: float
    """The test score after the last epoch; the worst possible one if the network diverged."""
    diverged: int | None = None
    """The first epoch whose training loss was not finite."""
    balanced: float | None = None
    """The mean over classes of the share predicted correctly, in percent; None for regression and in old records."""
    log_loss: float | None = None
    """Mean test loss of a classification; None in old records too, and if the network diverged; so below."""
    calibration: float | None = None
    """Expected calibration error in percent: how far confidence is from accuracy."""
    noisy: float | None = None
    """Test accuracy in percent with noise in the inputs, on some of the rows."""
    best: float | None = None
    """The best test score there was, where several were taken."""
    memory: float | None = None
    """Of a module on a GPU, its share of the bytes that its stack took at most."""
    train_loss: tuple[float, ...] = ()
    """Mean training loss of each epoch; for few shots, only of the last step."""
    train_score: tuple[float, ...] = ()
    tested: tuple[int, ...] = ()
    """The epochs after which the test score was taken: all of a short run, every fifth of a hundred."""
    test_score: tuple[float, ...] = ()
    seconds: float = 0.0
    """Its share of the stack's time."""
    environment: Environment = field(default_factory=dict)
    """Where it was trained, and with what."""

    @classmethod
    def of(cls, cell: Cell, metric: Metric, outcome: Outcome, seconds: float, where: Environment) -> Record:
        """The record of an outcome, with numbers rounded as in its file; `seconds` are its share of the stack's."""
        values = _rounded(asdict(outcome) | {"seconds": seconds})
        scores = [score for score in outcome.test_score if math.isfinite(score)]
        if len(outcome.test_score) > 1 and scores:
            values["best"] = _rounded((min if metric.less_is_better else max)(scores))
        return cls._from(cell, metric, values | {"environment": dict(where)})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        return cls._from(Cell.from_dict(values), METRICS[values["metric"]], values)

    @classmethod
    def _from(cls, cell: Cell, metric: Metric, values: Mapping[str, Any]) -> Record:
        score = values.get("score")
        known: dict[str, Any] = {name: values.get(name) for name in ("diverged", "balanced", *MEASURES)}
        for name in ("train_loss", "train_score", "tested", "test_score"):
            known[name] = tuple(math.nan if entry is None else entry for entry in values.get(name, ()))
        known |= {"seconds": values.get("seconds") or 0.0, "environment": values.get("environment", {})}
        return cls(cell, metric, metric.worst if score is None else float(score), **known)

    def scored(self) -> Record:
        """The same without its `MEASURES`: for tables of studies that ask for the score alone."""
        nothing: dict[str, Any] = dict.fromkeys(MEASURES)
        return replace(self, **nothing)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values: the fields of the cell, then the others; non-finite numbers are None."""
        values = {name: getattr(self, name) for name in self.__slots__ if name not in ("cell", "metric")}
        return {**self.cell.identity(), "metric": self.metric.name, **_rounded(values)}


def _rounded(value: Any) -> Any:
    """Numbers to seven significant digits; non-finite ones as None, for JSON."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def environment(device: torch.device, engine: str) -> dict[str, Any]:
    """Where a record comes from: the machine, the versions, and the package's source."""
    return {
        "engine": engine,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})",
        "stiefel_init": __version__,
        "commit": commit(),
        "source": source_hash(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def write(directory: Path, records: Sequence[Record]) -> Path:
    """Write the records of one stack, all or nothing, and return the file."""
    lines = []
    for index, record in enumerate(records):
        body = {**record.to_dict(), "line": [index + 1, len(records)]}
        lines.append(json.dumps({**body, "check": _checksum(body)}) + "\n")
    return write_whole(directory / f"networks-{digest(record.cell for record in records)}.jsonl", "".join(lines))


def read(directory: Path, warn: Callable[[str], None], *, touch: bool = True) -> dict[Cell, Record]:
    """All records of a directory, by their cells; damaged files and unknown networks are left out, with a warning.

    A damaged file is set aside as NAME.damaged, unless `touch` is False.
    """
    records: dict[Cell, Record] = {}
    for path in sorted(directory.glob("*.jsonl")):
        try:
            lines = _sound_lines(path)
        except StiefelError as error:
            aside = f"It {set_aside(path)}; its cells will be trained again." if touch else "It is skipped."
            warn(f"{error} {aside}")
            continue
        try:
            records |= {record.cell: record for record in map(Record.from_dict, lines)}
        except (StiefelError, KeyError, TypeError, ValueError) as error:
            warn(f"Skipped {path}, which holds unknown networks: {error}")
    return records


def _sound_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of one file, every one verified."""
    records = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StiefelError(f"The record file {path} cannot be read ({error}).") from error
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            check, place = values.pop("check"), values["line"]
            sound = check == _checksum(values) and place == [number, len(lines)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            sound = False
        if not sound:
            raise StiefelError(f"The record file {path} is damaged at line {number} of {len(lines)}.")
        records.append(values)
    if not records:
        raise StiefelError(f"The record file {path} is empty.")
    return records


def _checksum(values: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"
