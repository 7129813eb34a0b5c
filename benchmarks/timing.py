"""How times are taken and kept: every contender in turn, in hot loops, round after round; the median round counts."""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import stiefel_init
from stiefel_init.lab.report.tables import Table

RECORDS = Path(__file__).parent / "records"
Record = dict[str, Any]
Ways = dict[str, Callable[[], Any]]
Listed = tuple[list[str], list[list[str]]]
"""A header and rows."""


def in_turns(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    synchronize: Callable[[], Any] = lambda: None,
    rounds: int = 7,
    seconds: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
    pick: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Seconds per call of each contender. A round runs each for about `seconds`, one after the other."""
    loops = {}
    for name, run in contenders.items():
        run()
        synchronize()
        start = clock()
        run()
        synchronize()
        loops[name] = max(1, int(seconds / max(clock() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = clock()
            for _ in range(loops[name]):
                run()
                synchronize()
            times[name].append((clock() - start) / loops[name])
    return {name: pick(values) for name, values in times.items()}


def waiting(device: str) -> Callable[[], Any]:
    """What waits until a device has done its work."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def in_milliseconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: 1e3 * value for name, value in seconds.items()}


def arguments(about: str | None) -> argparse.ArgumentParser:
    """The command line of everything that measures: where, and whether to keep it."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    return parser


# Records.


def machine(device: str) -> Record:
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else cpu_name(), "threads": torch.get_num_threads(),
        "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
        "stiefel_init": stiefel_init.__version__,
    }  # fmt: skip


def cpu_name() -> str:
    """The processor's name, where the system tells it."""
    try:
        told = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        told = None
    return told[1].strip() if told else platform.processor() or platform.machine()


def read(name: str) -> Record | None:
    path = RECORDS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def kept(name: str) -> Record:
    record = read(name)
    assert record is not None, f"benchmarks/records/{name}.json is missing; restore it"
    return record


def on_devices(name: str) -> Iterator[Record]:
    """The records of a benchmark, the CPU's first."""
    for device in ("cpu", "cuda"):
        if (record := read(f"{name}-{device}")) is not None:
            yield record


def write(name: str, record: Mapping[str, Any], rows: str = "") -> Path:
    """Keep `record` as benchmarks/records/NAME.json, in a form that diffs: of the list `rows` a line for each."""
    path, lines = RECORDS / f"{name}.json", record.get(rows)
    text = json.dumps({key: value for key, value in record.items() if key != rows}, indent=1, ensure_ascii=False)
    if lines is not None:
        told = ",\n".join(f"  {json.dumps(line, ensure_ascii=False)}" for line in lines)
        text = f'{text[:-2]},\n "{rows}": [\n{told}\n ]\n}}'
    path.write_text(text + "\n", encoding="utf-8")
    return path


# Pages.


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [*Table("", header, rows).markdown(), ""]


def tables(name: str, shown: Callable[[Record], list[str]]) -> list[str]:
    """The tables of all records of a benchmark, as a part of a page."""
    return [line for record in on_devices(name) for line in shown(record)][:-1]


def once(name: str) -> list[str]:
    """A part of a page that was measured once."""
    return shown(kept(name))[:-1]


def shown(record: Record) -> list[str]:
    """What was measured once and is not measured again: lines and tables, as the record has them."""
    parts = (markdown(**part) if isinstance(part, dict) else [part] for part in record["shown"])
    return [line for part in parts for line in part]


def picked(name: str, columns: Sequence[str], rows: Container[str]) -> list[str]:
    """Of the tables that were measured once these columns, of the first one of each record these rows."""
    lines = []
    for record in on_devices(name):
        table = next(part for part in record["shown"] if isinstance(part, dict))
        places = [table["header"].index(column) for column in columns]
        chosen = [[row[place] for place in places] for row in table["rows"] if row[0] in rows]
        lines += [f"{where(record)}:", "", *markdown(columns, chosen)]
    return lines[:-1]


def every(name: str, listed: Callable[[Record], Listed]) -> Listed:
    """All rows of all records of a benchmark, for a file: the device first, columns that one lacks empty."""
    found = [(where(record), *listed(record)) for record in on_devices(name)]
    columns = list(dict.fromkeys(column for _, header, _ in found for column in header))
    rows = [
        [device, *(dict(zip(header, row)).get(column, "") for column in columns)]
        for device, header, rows in found
        for row in rows
    ]
    return ["device", *columns], rows


def where(record: Record) -> str:
    device, threads = record["machine"]["device"], record["machine"].get("threads")
    return device if "H200" in device else f"{device}, {threads} thread{'s' if threads != 1 else ''}"


def short(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
