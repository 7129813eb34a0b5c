"""Whose last layer learns most from a few images of each class: ours and IDInit's, behind the same hidden layers.

    python -m paper.studies.heads [--data DIRECTORY] [--seeds 10] [--write]

The study of baselines found IDInit ahead on a few digits. Its hidden layers there are the identity, a member of our
set; its last layer is not: every unit feeds one class with weight 1. So each body is trained with its own last layer
and with IDInit's, in the study's way: full batches, 100 steps of Adam, each at its best of seven rates, which two
networks with seeds of their own choose. Without --data, digits alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import timing

from stiefel_init import StiefelError
from stiefel_init.lab import run
from stiefel_init.lab.data import load
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.significance import different, holm
from stiefel_init.lab.train.cell import Cell
from stiefel_init.schemes import Position, Scheme, get

RECORD = "few-shot-heads-cpu"
BODIES = ("recipe", "permutation", "identity")
DEPTHS, SHOTS = (10, 100), (1, 8)
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
TUNING, FIRST = (1000, 1001), 4000


@dataclass(frozen=True)
class WithHead(Scheme):
    """An initialization with IDInit's last layer.

    >>> str(WithHead("recipe"))
    'with-head recipe'
    """

    name = "with-head"
    body: str = "identity"

    def at(self, position: Position) -> Scheme:
        return get("idinit") if position.last else get(self.body).at(position)

    def draw(self, source: Any) -> Any:
        return get(self.body).draw(source)


Key = tuple[str, int, int, str, bool]
"""Data, shots, depth, body, and whether the last layer is IDInit's."""


def cell(key: Key, times: float, seed: int) -> Cell:
    """One network."""
    dataset, shots, depth, body, swapped = key
    scheme = WithHead(body) if swapped else get(body)
    rate = times * 1e-3 / math.sqrt(depth)
    return Cell(dataset, scheme, depth, rate=rate, seed=seed, shots=shots, batch=None, epochs=100)


def scores(cells: Mapping[Any, Cell], datasets: Mapping[str, Any]) -> dict[Any, float]:
    """Train all."""
    return {key: record.score for key, record in zip(cells, run(list(cells.values()), device="cpu", datasets=datasets))}


def measure(names: list[str], seeds: int, directory: Path | None) -> list[dict[str, Any]]:
    """The rows of the record."""
    datasets = {name: load(name, directory=directory) for name in names}
    keys: list[Key] = list(product(names, SHOTS, DEPTHS, BODIES, (False, True)))
    tried = scores({(key, t, s): cell(key, t, s) for key, t, s in product(keys, RATES, TUNING)}, datasets)
    best = {key: max(RATES, key=lambda t: (sum(tried[key, t, s] for s in TUNING), -t)) for key in keys}
    asked = {(key, s): cell(key, best[key], s) for key, s in product(keys, range(FIRST, FIRST + seeds))}
    found = scores(asked, datasets)
    fields = "dataset", "shots", "depth", "body", "idinit_head"
    return [
        dict(zip(fields, key)) | {"times": best[key], "scores": [found[key, FIRST + s] for s in range(seeds)]}
        for key in keys
    ]


def _mean(record: Mapping[str, Any], key: tuple[str, int, str], swapped: bool) -> np.ndarray:
    """The scores of data and a body with one of the last layers, averaged over depths seed by seed."""
    rows = [row for row in record["rows"] if (row["dataset"], row["shots"], row["body"]) == key]
    return np.mean([row["scores"] for row in rows if row["idinit_head"] == swapped], axis=0)


def part(record: Mapping[str, Any] | None = None) -> list[str]:
    """The part of docs/baselines.md on last layers."""
    record = record or timing.kept(RECORD)
    keys = dict.fromkeys((row["dataset"], row["shots"], row["body"]) for row in record["rows"])
    gains = [(key, _mean(record, key, False), _mean(record, key, True)) for key in keys]
    p = holm([different(swapped - ours) for _, ours, swapped in gains])
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for ((dataset, shots, body), ours, swapped), each in zip(gains, p):
        gain = statistics.mean(swapped - ours)
        mark = "**" if each < 0.05 else ""
        told = f"{statistics.mean(ours):.1f} → {statistics.mean(swapped):.1f} ({mark}{gain:+.1f}{mark})"
        rows.setdefault((dataset, shots), {})[body] = told
    bodies = list(dict.fromkeys(body for of in rows.values() for body in of))
    lines = [[f"{data}, {few} per class", *(of.get(body, "") for body in bodies)] for (data, few), of in rows.items()]
    seeds, depths = len(record["rows"][0]["scores"]), " and ".join(str(depth) for depth in DEPTHS)
    return [
        "IDInit's hidden layers are the identity, which is a member of our set; on digits, whose 64 pixels fit 64",
        "units, its first layer is too. Its last layer is not ours: every unit feeds one class, with weight 1. Here it",
        "stands behind our hidden layers, in the place of our own: accuracy in per cent, mean of",
        f"{depths} layers, {seeds} seeds, each at its best of {len(RATES)} rates; bold: shown, by Student's test of",
        "the differences, Holm.", "",
        *Table("", ["", *bodies], lines).markdown(), "",
        "Where nothing is bold, our own last layer is as good as can be told. In your own network:",
        '`initialize_(model, "identity")`, then `initialize_(model[-1], "idinit")` for its last layer.',
        f"`python -m paper.studies.heads --data DIRECTORY --write`, {record['machine']['device']}.",
    ]  # fmt: skip


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--data", type=Path, help="directory of MNIST and Fashion-MNIST")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    names = ["digits", *(["mnist", "fashion-mnist"] if options.data else [])]
    try:
        record = {"machine": timing.machine("cpu"), "rows": measure(names, options.seeds, options.data)}
    except StiefelError as error:
        parser.error(str(error))
    print("\n".join(part(record)))
    if options.write:
        timing.write(RECORD, record)


if __name__ == "__main__":
    main()
