"""Records: what became of each cell, as JSON Lines that survive a kill, a copy and a diff.

A finished stack is one file, one line per cell: `pandas.read_json(path, lines=True)` reads it. It is written
under a temporary name, synced and renamed, so a file is whole or not there. Every line says which line of how
many it is and carries a checksum, so a file that was cut or altered is noticed, named and set aside.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import platform
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from .._errors import StiefelError
from .cells import Cell, digest
from .engine import Outcome

Record = dict[str, Any]


def environment(device: torch.device, engine: str) -> Record:
    """Where a record comes from."""
    return {
        "engine": engine,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})",
        "stiefel_init": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


@functools.cache
def _commit() -> str | None:
    """The commit of the source tree this package runs from, if it runs from one."""
    here = Path(__file__).parent
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return done.stdout.strip()
    return None


def record_of(cell: Cell, outcome: Outcome, seconds: float, where: Mapping[str, Any]) -> Record:
    """The record of one cell; `seconds` is its share of the stack's time."""
    result = {name: _rounded(value) for name, value in asdict(outcome).items()}
    identity = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(cell).items()}
    return {**identity, **result, "seconds": _rounded(seconds), "environment": dict(where)}


def _rounded(value: Any) -> Any:
    """Numbers to seven significant digits; what is not finite as null, which JSON can say."""
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def write(directory: Path, records: Sequence[Record]) -> Path:
    """Write the records of one stack, all or nothing, and return the file."""
    cells = [Cell.from_dict(record) for record in records]
    path = directory / f"{cells[0].experiment}-{digest(cells)}.jsonl"
    lines = []
    for index, record in enumerate(records):
        body = {**record, "line": [index + 1, len(records)]}
        lines.append(json.dumps({**body, "check": _checksum(body)}) + "\n")
    write_whole(path, "".join(lines).encode())
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, sync it and rename it: it is there as a whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise StiefelError(
            f"{path} could not be written ({error.strerror}); "
            "free some space or choose another --out, and run again: finished stacks are kept."
        ) from error
    finally:  # Ctrl-C too leaves nothing half-written
        with contextlib.suppress(OSError):
            temporary.unlink()


def read(directory: Path, warn: Callable[[str], None], *, touch: bool = True) -> list[Record]:
    """All records of a directory. A damaged file is named through `warn`, set aside as NAME.damaged, and left out.

    With `touch=False` it is only named and left out.
    """
    records: dict[str, Record] = {}
    for path in sorted(directory.glob("*.jsonl")):
        try:
            found = read_file(path)
        except StiefelError as error:
            warn(f"{error} {_set_aside(path) if touch else 'It is left out.'}")
            continue
        for record in found:
            records[Cell.from_dict(record).key] = record
    return list(records.values())


def _set_aside(path: Path) -> str:
    aside = path.with_name(path.name + ".damaged")
    try:
        os.replace(path, aside)
    except OSError as error:  # another process may have been faster
        return f"It could not be set aside ({error.strerror}); its cells will be trained again."
    return f"It was set aside as {aside.name}; its cells will be trained again."


def read_file(path: Path) -> list[Record]:
    """The records of one file, every one verified."""
    records = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StiefelError(f"The record file {path} cannot be read ({error}).") from error
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            check, place = record.pop("check"), record["line"]
            sound = check == _checksum(record) and place == [number, len(lines)]
            del record["line"]
            Cell.from_dict(record)
        except (ValueError, TypeError, KeyError, AttributeError):
            sound = False
        if not sound:
            raise StiefelError(f"The record file {path} is damaged at line {number} of {len(lines)}.")
        records.append(record)
    if not records:
        raise StiefelError(f"The record file {path} is empty.")
    return records


def _checksum(record: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(record, sort_keys=True).encode()):08x}"


def finished(records: Iterable[Record]) -> set[str]:
    """The keys of the cells that have a record."""
    return {Cell.from_dict(record).key for record in records}


def refuse_file(directory: Path) -> None:
    """Say so where `directory` is a file."""
    if directory.exists() and not directory.is_dir():
        raise StiefelError(f"--out {directory} is a file; give a directory.")


def prepare(directory: Path) -> Path:
    """`directory`, made if it is not there and tried for writing."""
    refuse_file(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StiefelError(f"--out {directory} cannot be written to ({error.strerror}); give another.") from error
    return directory
