"""The table of models people use in docs/diagnose.md, from the records of `benchmarks/families.py`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from stiefel_init.lab.report.tables import Table

RECORDS = Path(__file__).parent / "records"
NAMES = {
    "study": "the networks of [whole networks](architectures.md)",
    "transformers": "small models of transformers, one of each architecture",
    "timm": "one model of each family of timm, as it is there",
}


def families(text: str) -> str:
    """The page with the table."""
    rows = []
    for path in sorted(RECORDS.glob("families-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        rows += [_row(source, entry) for source, entry in record["sources"].items()]
    header = ["models", "tried", "not tried, for time", "as they should be", "called sick", "`diagnose`, median", "on"]
    start = text.index("-->", text.index("<!-- families")) + 4
    return text[:start] + "\n".join(Table("", header, rows).markdown()) + "\n" + text[text.index("<!-- end", start) :]


def _row(source: str, entry: dict[str, Any]) -> list[str]:
    tried = [row for row in entry["models"].values() if "skipped" not in row]
    right = [row for row in tried if not row["wrong"]]
    machine = entry["machine"]
    version = f", {source} {entry['version']}" if entry.get("version") else ""
    return [
        NAMES[source],
        str(len(tried)),
        str(len(entry["models"]) - len(tried)),
        str(len(right)),
        str(sum(bool(row["findings"]) for row in right)),
        f"{statistics.median(row['diagnose s'] for row in right):.2g} s" if right else "—",
        f"{machine['device']}, {_threads(machine)}, PyTorch {machine['torch']}{version}",
    ]


def _threads(machine: dict[str, Any]) -> str:
    return f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
