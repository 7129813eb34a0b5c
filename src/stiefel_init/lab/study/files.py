"""Beside the page of a user's study: results.csv, one row a network, and summary.json; and the list of studies."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...core.errors import StiefelError
from ..data import Dataset
from ..files import prepare, write_whole
from ..report.tables import Table, score_text
from ..train.cell import ADDED, Cell
from ..train.problem import METRICS
from ..train.record import Record
from .own import Outcome
from .rates import base_name, times
from .significance import compared

RESULTS, SUMMARY, PAGE = "results.csv", "summary.json", "index.html"


def write(outcome: Outcome, out: Path) -> tuple[Path, dict[str, Any]]:
    """Write results.csv and summary.json into the study's folder; returns the folder and the summary."""
    folder = prepare(out / outcome.study.name)
    content = summarized(outcome)
    write_whole(folder / RESULTS, _csv(outcome))
    write_whole(folder / SUMMARY, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return folder, content


def _csv(outcome: Outcome) -> str:
    text = io.StringIO(newline="")
    rows = [_row(record, "validation") for record in outcome.choice.records]
    rows += [_row(record, "test") for record in outcome.records]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(record: Record, part: str) -> dict[str, Any]:
    identity = record.cell.identity()
    train = record.train_score[-1] if record.train_score else None
    return {
        "dataset": base_name(identity.pop("dataset")),
        "part": part,
        **{name: identity[name] for name in ("scheme", "depth", "width", "activation", "seed")},
        "learning_rate": record.cell.rate,
        "times_default_rate": times(record.cell),
        **{name: identity[name] for name in ("epochs", "batch", "optimizer", "shots", "alpha", "precision")},
        **{name: getattr(record.cell, name) for name in ADDED},
        "metric": record.metric.name,
        "score": _finite(record.score),
        "train_score": _finite(train),
        "balanced_accuracy": record.balanced,
        "diverged_at_epoch": record.diverged,
        "seconds": record.seconds,
    }


def summarized(outcome: Outcome) -> dict[str, Any]:
    """The study in numbers: data, protocol, each scheme in each setting, and the search for rates."""
    study, metric = outcome.study, outcome.records[0].metric
    first = study.settings[0]
    return {
        "study": study.name,
        "made_by": f"stiefel-init {__version__}",
        "data": described(base_name(first.dataset), study.dataset),
        "metric": {"name": metric.name, "label": metric_label(outcome), "less_is_better": metric.less_is_better},
        "protocol": {
            **{name: getattr(first, name) for name in ("width", "epochs", "batch", "optimizer", "shots", "alpha")},
            "precision": first.precision,
            **{name: getattr(first, name) for name in ADDED},
            "seeds": study.seeds,
            "learning_rate": {
                "unit": "0.001/sqrt(depth)",
                "values": list(study.rates.values),
                "chosen": "on a validation part" if study.rates.searched else "given",
                "seeds_that_chose": sorted({record.cell.seed for record in outcome.choice.records}),
            },
        },
        "results": [_entry(outcome, setting) for setting in study.settings],
        "rates": [
            {
                **_named(setting),
                "times_default_rate": value,
                "validation_score": _finite(outcome.choice.mean(setting, value)),
            }
            for setting in study.settings
            for value in (outcome.choice.tried(setting) if outcome.choice.records else [])
        ],
    }


def _named(setting: Cell) -> dict[str, Any]:
    return {"activation": setting.activation, "depth": setting.depth, "scheme": str(setting.scheme)}


def _entry(outcome: Outcome, setting: Cell) -> dict[str, Any]:
    """A scheme in a setting, compared with the best scheme there."""
    rivals = [s for s in outcome.study.settings if (s.activation, s.depth) == (setting.activation, setting.depth)]
    samples = [np.array([record.score for record in of(outcome, rival)]) for rival in rivals]
    row = compared(samples, outcome.records[0].metric)[rivals.index(setting)]
    records = of(outcome, setting)
    balanced = [record.balanced for record in records if record.balanced is not None]
    best = outcome.choice.best[setting]
    return {
        **_named(setting),
        "times_default_rate": best,
        "learning_rate": records[0].cell.rate,
        "rate_at_edge": bool(outcome.choice.records) and outcome.choice.at_edge(setting),
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


def of(outcome: Outcome, setting: Cell) -> list[Record]:
    """The networks of a setting, at its rate."""
    place = list(outcome.study.settings).index(setting) * outcome.study.seeds
    return list(outcome.records[place : place + outcome.study.seeds])


def metric_label(outcome: Outcome) -> str:
    """What the scores are, with the unit of a regression's target."""
    label, target = outcome.records[0].metric.label, outcome.study.dataset.target
    return f"{label}, in units of {target}" if target and outcome.records[0].metric.less_is_better else label


def described(name: str, dataset: Dataset) -> dict[str, Any]:
    """A data set in words and numbers, with how each column was read."""
    counts = None if dataset.classes is None else np.bincount(dataset.y, minlength=dataset.classes).tolist()
    return {
        "name": name.partition("@")[0],
        "identity": name,
        "task": dataset.task,
        "target": dataset.target or None,
        "rows": len(dataset.y),
        "features": dataset.features,
        "rows_of_each_class": counts,
        "split": how_split(dataset),
        "targets_standardized": dataset.standardize and dataset.task == "regression",
        "columns": [reading._asdict() for reading in dataset.columns],
    }


def how_split(dataset: Dataset) -> str:
    """How the test part is made, in words."""
    if dataset.train_rows is not None:
        return f"fixed: {dataset.train_rows:,} rows train, {len(dataset.y) - dataset.train_rows:,} test"
    if dataset.times is not None:
        return "by time: the last fifth tests"
    kind = "by group" if dataset.groups is not None else "stratified by class" if dataset.classes else "random"
    each = "the same test part for every seed" if dataset.test_seed is not None else "another test part for every seed"
    return f"{kind}: a fifth tests, {each}"


def imbalanced(dataset: Dataset) -> bool:
    """Whether the largest class has more than one and a half times the rows of the smallest."""
    counts = np.bincount(dataset.y) if dataset.classes else np.ones(1)
    return bool(counts.max() > 1.5 * counts.min())


def columns_table(dataset: Dataset) -> Table:
    """How each column of a file was read."""
    title = f"{len(dataset.y):,} rows, {dataset.features} features; how each column was read"
    return Table(title, ["column", "read as", "note"], [list(reading) for reading in dataset.columns])


def comparison(content: dict[str, Any]) -> Table:
    """The schemes of each setting: rate, mean, interval, p against the best; from a summary."""
    metric = METRICS[content["metric"]["name"]]
    searched = bool(content["rates"])
    several = len({entry["activation"] for entry in content["results"]}) > 1
    even = any(e["balanced_accuracy"] is not None for e in content["results"]) and _uneven(content)
    header = ["setting" if several else "depth", "scheme", *(["lr ×"] if searched else []), "networks", "mean"]
    header += ["95 % interval", "p against best"]
    header += ["balanced accuracy (%)"] if even else []
    header += ["diverged"]
    rows = []
    for entry in content["results"]:
        place = f"{entry['activation']}, depth {entry['depth']}" if several else str(entry["depth"])
        p = entry["p_against_best"]
        row = [place, entry["scheme"]]
        row += [f"{entry['times_default_rate']:g}" + ("*" if entry["rate_at_edge"] else "")] if searched else []
        row += [str(entry["networks"]), score_text(entry["mean"], metric)]
        row += [
            "—"
            if entry["low"] is None
            else f"{score_text(entry['low'], metric)} to {score_text(entry['high'], metric)}"
        ]
        row += ["best" if entry["best"] else "—" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"]
        row += [score_text(entry["balanced_accuracy"], METRICS["accuracy"])] if even else []
        rows.append([*row, str(entry["diverged"])])
    return Table(content["metric"]["label"], header, rows)


def _uneven(content: dict[str, Any]) -> bool:
    counts = content["data"]["rows_of_each_class"] or [1]
    return max(counts) > 1.5 * min(counts)


def listing(out: Path) -> Table:
    """The studies of a directory.

    Raises:
        StiefelError: if it is no directory, or holds none.
    """
    if not out.is_dir():
        raise StiefelError(f"{out} is not a directory; give one that `stiefel-init train --out` wrote.")
    rows = []
    for path in sorted(out.glob(f"*/{SUMMARY}")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            metric = METRICS[content["metric"]["name"]]
            best = [entry for entry in content["results"] if entry["best"]]
            several = len({entry["activation"] for entry in content["results"]}) > 1
            leaders = [
                f"{e['scheme']} {score_text(e['mean'], metric)} ({e['activation'] + ', ' if several else ''}depth "
                f"{e['depth']})"
                for e in best
            ]
            schemes = dict.fromkeys(entry["scheme"] for entry in content["results"])
            networks = sum(entry["networks"] for entry in content["results"])
            rows.append(
                [path.parent.name, content["data"]["name"], ", ".join(schemes), str(networks), metric.name,
                 "; ".join(leaders[:3]) + ("; …" if len(leaders) > 3 else ""), str(path.parent / PAGE)]
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StiefelError(
                f"{path} is damaged ({type(error).__name__}); rerun its study to write it again."
            ) from None
    if not rows:
        raise StiefelError(f"{out} holds no studies; run `stiefel-init train --out {out}` first.")
    return Table(f"studies in {out}", ["study", "data", "schemes", "networks", "metric", "best", "page"], rows)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
