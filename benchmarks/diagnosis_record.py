"""The record of `benchmarks/diagnosis.py`, as small as it can be read: a line of values for each network.

`columns` names the values. What the rules measured is a list in the order of `rules`; null where one does not apply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _timing import RECORDS

RECORD = RECORDS / "diagnosis-cpu.json"
Row = dict[str, Any]


def read() -> dict[str, Any]:
    """The record, its rows as dicts."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    columns, rules = record.pop("columns"), record.pop("rules")
    record["rows"] = [dict(zip(columns, values, strict=True)) for values in record["rows"]]
    for row in record["rows"]:
        row["measured"] = {kind: value for kind, value in zip(rules, row["measured"]) if value is not None}
    return record


def write(record: Mapping[str, Any]) -> Path:
    """Keep the record."""
    rows = record["rows"]
    rules = list(dict.fromkeys(kind for row in rows for kind in row["measured"]))
    head = {key: value for key, value in record.items() if key != "rows"}
    head |= {"columns": list(rows[0]), "rules": rules}
    lines = [_line([*(_values(row, rules) if name == "measured" else value for name, value in row.items())])
             for row in rows]  # fmt: skip
    start = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("}").rstrip()
    body = ",\n".join(lines)
    RECORD.write_text(f'{start},\n "rows": [\n{body}\n]}}\n', encoding="utf-8")
    return RECORD


def _values(row: Row, rules: list[str]) -> list[float | None]:
    values = [row["measured"].get(kind) for kind in rules]
    while values and values[-1] is None:
        values.pop()
    return [int(value) if value is not None and value == int(value) and value < 1e15 else value for value in values]


def _line(values: list[Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
