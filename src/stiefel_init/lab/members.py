"""The study of members, as tables and tests: which member of the set trains best, and how deep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .cells import ACTIVATIONS
from .claims import greater_p
from .compare import score
from .experiments import MEMBERS
from .records import Record

UNIFORM = "uniform"
NAMES = {
    ("stiefel", None): UNIFORM, ("lee", None): "lee", ("he", None): "he", ("orthogonal", None): "orthogonal",
    ("orthogonal", "1.4142135623730951"): "orthogonal, gain √2",
}  # fmt: skip
CANDIDATES = ("permutation", "identity", "rotation 0.03", "rotation 0.1")
Table = tuple[str, list[str], list[list[str]]]


def kind(record: Record) -> str:
    """What was compared: a member of the set by name, or another scheme."""
    return NAMES.get((record["scheme"], record["variant"]), str(record["variant"]))


def times(record: Record) -> float:
    """The learning rate in units of 0.001/√depth."""
    return round(record["rate"] * 1e3 * math.sqrt(record["depth"]), 3)


def tables(records: Sequence[Record]) -> list[Table]:
    """(title, header, rows) of what the records answer, one set of them for each data set."""
    found: list[Table] = []
    plain = [r for r in records if r["alpha"] is None]
    for dataset in dict.fromkeys(r["dataset"] for r in plain):
        own = [r for r in plain if r["dataset"] == dataset]
        full = [r for r in own if r["shots"] is None and r["activation"] == "relu"]
        fixed = [r for r in full if r["scheme"] == "lee" and times(r) == round(math.sqrt(r["depth"]), 3)]
        usual = [r for r in full if times(r) == 1]
        epochs = usual[0]["epochs"]
        found.append(
            _table(f"{dataset}, {epochs} epochs at 0.001/√depth; by depth", usual, lambda r: r["depth"], extra=fixed)
        )
        grid = [r for r in full if r["depth"] == 100 and r not in fixed]
        if len({times(r) for r in grid}) > 1:
            found.append(_table(f"{dataset}, depth 100; by rate, in units of 0.001/√depth", grid, times))
        few = [r for r in own if r["shots"] is not None]
        if few:
            found.append(_table(f"{dataset}, depth 100; by images of each class", few, lambda r: r["shots"]))
        shaped = [r for r in own if r["shots"] is None and r["depth"] == 100 and times(r) == 1]
        if len({r["activation"] for r in shaped}) > 1:
            found.append(_table(f"{dataset}, depth 100; by activation", shaped, lambda r: r["activation"]))
    tabular = [r for r in records if r["alpha"] is not None]
    if tabular:
        found.append(
            _table("tabular data, depth 100; by set and α", tabular, lambda r: f"{r['dataset']}, α {r['alpha']:g}")
        )
    return found


def _table(
    title: str, records: Sequence[Record], column: Callable[[Record], object], extra: Sequence[Record] = ()
) -> Table:
    columns = list(dict.fromkeys(column(r) for r in records))
    if all(isinstance(c, int | float) for c in columns):
        columns.sort(key=float)  # type: ignore[arg-type]
    elif set(columns) <= set(ACTIVATIONS):
        columns.sort(key=ACTIVATIONS.index)
    ranks = {one: rank for rank, one in enumerate(MEMBERS)}
    in_order = sorted(records, key=lambda r: ranks.get((r["scheme"], r["variant"]), len(ranks)))
    labelled = [(kind(r), r) for r in in_order] + [("lee at 0.001", r) for r in extra]
    rows = []
    for name in dict.fromkeys(label for label, _ in labelled):
        cells = [name]
        for c in columns:
            scores = [score(r) for label, r in labelled if label == name and column(r) == c]
            cells.append(f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else
                         f"{scores[0]:.1f}" if scores else "—")  # fmt: skip
        rows.append(cells)
    return title, ["", *map(str, columns)], rows


def duels(records: Sequence[Record]) -> Table:
    """Each member against the uniform one at 0.001/√depth: difference of means, and p of Welch's tests both ways."""
    rows = []
    usual = [r for r in records if r["alpha"] is None and r["activation"] == "relu" and times(r) == 1]
    settings = sorted({(r["dataset"], r["depth"], r["shots"] or 0) for r in usual if r["depth"] >= 100 or r["shots"]})
    for dataset, depth, shots in settings:
        found = {
            name: np.array(
                [
                    score(r) for r in usual
                    if kind(r) == name and (r["dataset"], r["depth"], r["shots"] or 0) == (dataset, depth, shots)
                ]
            )
            for name in (UNIFORM, *CANDIDATES)
        }  # fmt: skip
        if any(len(values) < 2 for values in found.values()):
            continue
        where = f"{dataset}, depth {depth}" + (f", {shots}-shot" if shots else "")
        for name in CANDIDATES:
            a, b = found[name], found[UNIFORM]
            rows.append(
                [where, name, f"{a.mean() - b.mean():+.2f}", f"{greater_p(a, b):.3f}", f"{greater_p(b, a):.3f}"]
            )
    return "against the uniform member", ["setting", "member", "difference", "p, better", "p, worse"], rows
