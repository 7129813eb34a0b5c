"""Can a network go on learning? Tasks one after another, each method at its best rate and strength."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import stats

from stiefel_init.lab.files import prepare
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.record import environment

from ..experiment import Experiment, Options, titled
from ..results import Results, note_environment, write_table
from .continual import KINDS, MEASURED, OURS, STEPS, Cell, Images, train

TASKS, TUNED, SEEDS, TRIED = 200, 50, 5, (100, 101)
"""Tasks, those that rates and strengths are chosen on, the seeds that are reported, and those that are chosen on."""
MOST = 64
"""Networks at once, so that they stay in the caches."""
STRENGTHS: dict[str, tuple[float, ...]] = {
    "nothing": (0.0,), "L2": (0.01, 0.03, 0.1), "shrink and perturb": (0.2, 0.5, 0.8), "start anew": (1.0,),
    "ReDo": (0.01, 0.05, 0.1), "continual backprop": (1e-4, 1e-3, 1e-2), "FIRE": (0.25, 0.5, 1.0),
    "Parseval": (1e-4, 1e-3, 1e-2), "restore": (0.25, 0.5, 1.0), "restore, own size": (0.25, 0.5, 1.0),
    "on the set": (0.0,),
}  # fmt: skip
RATES = (1e-3, 3e-3, 6e-3, 1e-2)
"""The last one only for methods without a strength: the others try three of each."""


def tried() -> list[Cell]:
    """What rates and strengths are chosen from."""
    rates = {method: RATES if len(strengths) == 1 else RATES[:-1] for method, strengths in STRENGTHS.items()}
    return [Cell(m, r, s, seed) for m in STRENGTHS for r, s, seed in product(rates[m], STRENGTHS[m], TRIED)]


def score(kind: str) -> str:
    """The column that rates and strengths are chosen by."""
    return "end" if kind == "warm start" else "online"


def chosen(rows: Sequence[Mapping[str, Any]], kind: str) -> dict[str, tuple[float, float]]:
    """The best rate and strength of each method, of the seeds that they are chosen on."""
    found: dict[str, dict[tuple[float, float], list[float]]] = {}
    for row in rows:
        if row["kind"] == kind and row["seed"] in TRIED:
            of = found.setdefault(row["method"], {}).setdefault((float(row["rate"]), float(row["strength"])), [])
            of.append(row[score(kind)])
    return {method: max(of, key=lambda key: float(np.mean(of[key]))) for method, of in found.items()}


def cost(cells: Sequence[Cell], images: Images) -> float:
    """Milliseconds of a processor for a step of one network, with what is done between tasks, beside others alike."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        train("permuted MNIST", cells, 2, images)
        taken.append(time.process_time() - start)
    return 1e3 * min(taken) / (2 * STEPS * len(cells))


class Plasticity(Experiment):
    """Tasks one after another: what helps a network to go on learning?"""

    name = "plasticity"
    title = "What was measured"
    page = "plasticity"
    files = ("plasticity",)

    def run(self, options: Options) -> None:
        """Train what is not in the table yet, and show it."""
        label, start = self.label(options.quick), time.perf_counter()
        out = prepare(options.out)
        tasks, tuned, seeds = (10, 4, 2) if options.quick else (TASKS, TUNED, options.seeds or SEEDS)
        rows = Results(out).table(label)
        for kind, (_, name) in KINDS.items():
            images = Images.of(name, options.data)
            for final in False, True:
                best = chosen(rows, kind) if final else {}
                cells = [Cell(m, *best[m], seed) for m in best for seed in range(seeds)] if final else tried()
                count = 2 if kind == "warm start" else tasks if final else tuned
                known = {_identity(row) for row in rows if row["tasks"] >= count}
                left = sorted(cell for cell in cells if (kind, *cell) not in known)
                rows = [row for row in rows if _identity(row) not in {(kind, *cell) for cell in left}]
                for at in range(0, len(left), MOST):
                    rows += train(kind, left[at : at + MOST], count, images)
                    write_table(rows, out / f"{label}.csv")
                    print(f"{kind}: {len(rows)} networks", flush=True)
            if kind == "permuted MNIST" and left:
                for method in best:
                    taken = cost([cell for cell in cells if cell.method == method], images)
                    for row in rows:
                        if row["kind"] == kind and row["method"] == method and row["seed"] < seeds:
                            row["ms"] = round(taken, 3)
                write_table(rows, out / f"{label}.csv")
        seconds = time.perf_counter() - start
        note_environment(out, label, environment(torch.device("cpu"), "stacked"), seconds, len(rows))
        self.present(rows, options)

    def evidence(self, results: Results) -> list[dict[str, Any]] | None:
        return results.table(self.name) or None

    def tables(self, evidence: Sequence[Mapping[str, Any]]) -> list[Table]:
        return [table for kind in KINDS if (table := _table(evidence, kind)).rows]

    def section(self, evidence: Sequence[Mapping[str, Any]]) -> list[str]:
        lines = [f"## {self.title}", "", "*: at an end of the strengths that were tried.", ""]
        for kind in KINDS:
            table = _table(evidence, kind)
            known = [row[0] for row in table.rows]
            if kind == "warm start" and known:
                column = table.header.index("test accuracy")
                best, worst = (f"{row[column]} ({row[0]})" for row in (table.rows[0], table.rows[-1]))
                lines += wrapped(f"**{kind.capitalize()}**: test accuracies from {worst} to {best}.")
                continue
            judged = () if {*known} <= {*OURS} else OURS[::2]
            told = [_goal(evidence, kind, method) for method in judged if method in known]
            left = [method for method in STRENGTHS if method not in known]
            told += [f"Not on record: {', '.join(left)}."] * bool(left)
            lines += [*titled([table] if table.rows else []), *(line for each in told for line in wrapped(f"- {each}"))]
            lines += [""] * bool(told)
        return lines


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["kind"], *(row[field] for field in Cell._fields))


def _table(rows: Sequence[Mapping[str, Any]], kind: str) -> Table:
    """The methods of a kind of tasks, best first."""
    finals = {method: found for method in STRENGTHS if (found := _final(rows, kind, method))}
    once = kind == "warm start"
    names = ["test accuracy"] if once else ["online", "first tenth", "last tenth", "last - first", "forgotten"]
    timed = any(found[0]["ms"] for found in finals.values())
    lines = []
    for method, found in sorted(finals.items(), key=lambda item: -_column(item[1], score(kind)).mean()):
        tried_of, used = STRENGTHS[method], found[0]["strength"]
        edge = "*" * (used in (tried_of[0], tried_of[-1]) and used < 1)
        strength = f"{used:g}{edge}" if len(tried_of) > 1 else ""
        online, first, last, end, lost = (_column(found, name) for name in MEASURED)
        shown = [_spread(end)] if once else [_spread(online), *(f"{each.mean():.1f}" for each in (first, last))]
        shown += [] if once else [_spread(last - first, "+"), f"{lost.mean():.1f}"]
        shown += [f"{found[0]['ms']:.2f}"] if timed else []
        lines.append([method, f"{found[0]['rate']:g}", strength, *shown])
    count = min((row["tasks"] for found in finals.values() for row in found), default=0)
    return Table(f"{kind}, {count} tasks", ["", "rate", "strength", *names, *["ms"] * timed], lines)


def _final(rows: Sequence[Mapping[str, Any]], kind: str, method: str) -> list[Mapping[str, Any]]:
    """The reported rows, by seed."""
    found = [row for row in rows if row["kind"] == kind and row["method"] == method and row["seed"] not in TRIED]
    return sorted(found, key=lambda row: row["seed"])


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], float)


def half(values: np.ndarray) -> float:
    """Half of Student's 95 % interval of the mean."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))


def _spread(values: np.ndarray, sign: str = "") -> str:
    return f"{values.mean():{sign}.1f} ± {half(values):.1f}" if len(values) > 1 else f"{values.mean():{sign}.1f}"


def _goal(rows: Sequence[Mapping[str, Any]], kind: str, method: str) -> str:
    """Whether a method of ours goes on learning, and as well as the best rival, seed by seed."""
    ours = _final(rows, kind, method)
    others = (name for name in STRENGTHS if name not in OURS)
    rivals = {name: _column(found, "online") for name in others if (found := _final(rows, kind, name))}
    rival = max(rivals, key=lambda name: rivals[name].mean())
    change = _column(ours, "last") - _column(ours, "first")
    apart = _column(ours, "online") - rivals[rival]
    lost = "loses" if change.mean() < -half(change) else "shows no loss of"
    than = "below" if apart.mean() < -half(apart) else "above" if apart.mean() > half(apart) else "level with"
    return (
        f"**{method}** {lost} accuracy from the first tenth of the tasks to the last ({_spread(change, '+')} points); "
        f"its online accuracy is {than} that of the best rival, {rival} ({_spread(apart, '+')})."
    )
