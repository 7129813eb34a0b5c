"""Beside the page of a user's study: results.csv, one row a network, and summary.json; and the list of studies."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...core.errors import StiefelError
from ..data import Dataset
from ..files import prepare, write_whole
from ..report.tables import Table, score_text
from ..train.cell import ADDED, Cell
from ..train.problem import METRICS, Problems
from ..train.record import Record
from .plan import Outcome, base_name
from .significance import Compared, compared

RESULTS, SUMMARY, PAGE = "results.csv", "summary.json", "index.html"
_COMMON = ("epochs", "batch", "optimizer", "shots", "alpha", "precision", *ADDED)


def write(outcome: Outcome, folder: Path) -> dict[str, Any]:
    """Write results.csv and summary.json into the study's folder; returns the summary."""
    content = summarized(outcome)
    parts = {"validation": outcome.choice.records, "test": outcome.records}
    rows = [_row(record, part) for part, records in parts.items() for record in records]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(prepare(folder) / RESULTS, text.getvalue())
    write_whole(folder / SUMMARY, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return content


def _row(record: Record, part: str) -> dict[str, Any]:
    cell, identity = record.cell, record.cell.identity() | {name: getattr(record.cell, name) for name in ADDED}
    return {
        "dataset": base_name(cell.dataset),
        "part": part,
        **{name: identity[name] for name in ("scheme", "depth", "width", "activation", "seed")},
        "learning_rate": cell.rate,
        "times_default_rate": cell.lr_multiplier,
        **{name: identity[name] for name in _COMMON},
        "metric": record.metric.name,
        "score": _finite(record.score),
        "train_score": _finite(record.train_score[-1]) if record.train_score else None,
        "balanced_accuracy": record.balanced,
        "diverged_at_epoch": record.diverged,
        "seconds": record.seconds,
    }


def summarized(outcome: Outcome) -> dict[str, Any]:
    """The study in numbers: data, protocol, each scheme in each setting, and the search for rates."""
    study, metric, choice = outcome.study, outcome.metric, outcome.choice
    first, target = study.settings[0], study.dataset.target
    problems = Problems({first.dataset: study.dataset})
    label = f"{metric.label}, in units of {target}" if target and metric.less_is_better else metric.label
    results = []
    for place in dict.fromkeys((setting.activation, setting.depth) for setting in study.settings):
        here = [setting for setting in study.settings if (setting.activation, setting.depth) == place]
        samples = [np.array([record.score for record in outcome.of(setting)]) for setting in here]
        results += [_entry(outcome, *pair) for pair in zip(here, compared(samples, metric))]
    return {
        "study": study.name,
        "made_by": f"stiefel-init {__version__}",
        "data": _described(base_name(first.dataset), study.dataset),
        "metric": {"name": metric.name, "label": label, "less_is_better": metric.less_is_better},
        "baseline": float(np.mean([problems(first.with_seed(seed)).baseline for seed in range(study.seeds)])),
        "protocol": {
            **{name: getattr(first, name) for name in ("width", *_COMMON)},
            "seeds": study.seeds,
            "learning_rate": {
                "unit": first.rate_unit.replace("√depth", "sqrt(depth)"),
                "values": list(study.rates.values),
                "chosen": "on a validation part" if study.rates.searched else "given",
                "seeds_that_chose": sorted({record.cell.seed for record in choice.records}),
            },
        },
        "results": results,
        "rates": [
            {**_named(setting), "times_default_rate": rate, "validation_score": _finite(score)}
            for setting, row in choice.scores.items()
            for rate, score in row.items()
        ],
    }


def _named(setting: Cell) -> dict[str, Any]:
    return {"activation": setting.activation, "depth": setting.depth, "scheme": str(setting.scheme)}


def _entry(outcome: Outcome, setting: Cell, row: Compared) -> dict[str, Any]:
    records = outcome.of(setting)
    balanced = [record.balanced for record in records if record.balanced is not None]
    return {
        **_named(setting),
        "times_default_rate": outcome.choice.best[setting],
        "learning_rate": records[0].cell.rate,
        "rate_at_edge": outcome.choice.at_edge(setting),
        "networks": len(records),
        "diverged": sum(record.diverged is not None for record in records),
        "mean": _finite(row.mean),
        "std": row.std,
        "low": row.low,
        "high": row.high,
        "best": row.best,
        "p_against_best": row.p,
        "balanced_accuracy": float(np.mean(balanced)) if balanced else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _described(name: str, dataset: Dataset) -> dict[str, Any]:
    """A data set in words and numbers, with how each column was read."""
    return {
        "name": name.partition("@")[0],
        "identity": name,
        "task": dataset.task,
        "target": dataset.target or None,
        "rows": len(dataset.y),
        "features": dataset.features,
        "rows_of_each_class": np.bincount(dataset.y, minlength=dataset.classes).tolist() if dataset.classes else None,
        "split": _how_split(dataset),
        "targets_standardized": dataset.standardize and dataset.task == "regression",
        "columns": [reading._asdict() for reading in dataset.columns],
    }


def _how_split(dataset: Dataset) -> str:
    if dataset.train_rows is not None:
        return f"fixed: {dataset.train_rows:,} rows train, {len(dataset.y) - dataset.train_rows:,} test"
    if dataset.times is not None:
        return "by time: the last fifth tests"
    kind = "by group" if dataset.groups is not None else "stratified by class" if dataset.classes else "random"
    each = "the same test part for every seed" if dataset.test_seed is not None else "another test part for every seed"
    return f"{kind}: a fifth tests, {each}"


def columns_table(dataset: Dataset) -> Table:
    """How each column of a file was read."""
    title = f"{len(dataset.y):,} rows, {dataset.features} features; how each column was read"
    return Table(title, ["column", "read as", "note"], [list(reading) for reading in dataset.columns])


def several_activations(content: dict[str, Any]) -> bool:
    """Whether the settings of a study, given its summary, differ by activation too."""
    return len({entry["activation"] for entry in content["results"]}) > 1


def imbalanced(content: dict[str, Any]) -> bool:
    """Whether the largest class has more than one and a half times the rows of the smallest; from a summary."""
    counts = content["data"]["rows_of_each_class"] or [1]
    return max(counts) > 1.5 * min(counts)


def comparison(content: dict[str, Any]) -> Table:
    """The schemes of each setting: rate, mean, interval, p against the best; from a summary."""
    metric, results = METRICS[content["metric"]["name"]], content["results"]
    several = several_activations(content)
    balanced = imbalanced(content) and any(entry["balanced_accuracy"] is not None for entry in results)
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "setting" if several else "depth": lambda e: _place(e, several).removeprefix("depth "),
        "scheme": lambda e: e["scheme"],
        "lr ×": lambda e: f"{e['times_default_rate']:g}{' (edge of those tried)' if e['rate_at_edge'] else ''}",
        "networks": lambda e: str(e["networks"]),
        "mean": lambda e: score_text(e["mean"], metric),
        "95 % interval": lambda e: (
            "—" if e["low"] is None else f"{score_text(e['low'], metric)} to {score_text(e['high'], metric)}"
        ),
        "p against best": lambda e: "best" if e["best"] else _p_text(e["p_against_best"]),
        "balanced accuracy (%)": lambda e: score_text(e["balanced_accuracy"], METRICS["accuracy"]),
        "diverged": lambda e: str(e["diverged"]),
    }
    if not content["rates"]:
        del columns["lr ×"]
    if not balanced:
        del columns["balanced accuracy (%)"]
    rows = [[cell(entry) for cell in columns.values()] for entry in results]
    return Table(content["metric"]["label"], list(columns), rows)


def _place(entry: dict[str, Any], several: bool) -> str:
    return f"{entry['activation']}, depth {entry['depth']}" if several else f"depth {entry['depth']}"


def _p_text(p: float | None) -> str:
    return "—" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def listing(out: Path) -> Table:
    """The studies of a directory; refused if it is none, or holds none."""
    if not out.is_dir():
        raise StiefelError(f"{out} is not a directory; give one that `stiefel-init train --out` wrote.")
    rows = []
    for path in sorted(out.glob(f"*/{SUMMARY}")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            metric, results = METRICS[content["metric"]["name"]], content["results"]
            several = several_activations(content)
            best = [
                f"{e['scheme']} {score_text(e['mean'], metric)} ({_place(e, several)})" for e in results if e["best"]
            ]
            rows.append([
                path.parent.name, content["data"]["name"], ", ".join(dict.fromkeys(e["scheme"] for e in results)),
                str(sum(e["networks"] for e in results)), metric.name,
                "; ".join([*best[:3], *(["…"] if len(best) > 3 else [])]), str(path.parent / PAGE),
            ])  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StiefelError(
                f"{path} is damaged ({type(error).__name__}); rerun its study to write it again."
            ) from None
    if not rows:
        raise StiefelError(f"{out} holds no studies; run `stiefel-init train --out {out}` first.")
    return Table(f"studies in {out}", ["study", "data", "schemes", "networks", "metric", "best", "page"], rows)
