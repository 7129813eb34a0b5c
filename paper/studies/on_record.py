"""The table of initializations that `initialize_` and `diagnose` advise from, made from published records."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np

from stiefel_init.recipe.advice import Known, Plain

from ..results import Results
from ..tables.protocol import IMAGES
from .architectures import Architectures
from .architectures.initializations import OURS
from .baselines import EVERY, Baselines
from .members import Members
from .on_the_set import FREE, FREE_ENDS, OnTheSet

ENDS = {False: "one rate", True: "fast"}


def text(results: Results) -> str:
    """The table as CSV: studies with the most initializations first, then by data, depth and initialization."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Known._fields)
    studies = (_baselines, _members, _on_the_set, _architectures)
    for row in (row for study in studies for row in sorted(study(results), key=_order)):
        writer.writerow([*row[:6], f"{row.mean:.4f}", f"{row.deviation:.4f}", row.networks])
    return out.getvalue()


def _order(row: Known) -> tuple[int, int, str, str]:
    return IMAGES.index(row.data.partition(" ")[0]), row.layers, row.ends, row.start


def _row(
    study: str, data: str, layers: int, start: str, fast: bool, scores: np.ndarray, network: Plain = "MLP"
) -> Known:
    deviation = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return Known(study, network, data, layers, start, ENDS[fast], float(scores.mean()), deviation, len(scores))


def _baselines(results: Results) -> Iterator[Known]:
    """Initializations of ReLU networks, on all rows of the images."""
    found = Baselines().evidence(results)
    for (setting, name), scores in found.scores.items() if found is not None else ():
        each = EVERY[name]
        if setting.dataset in IMAGES and setting.shots is None and each.activation == "relu":
            values = np.maximum(scores, 0.0)
            yield _row("rivals", setting.dataset, setting.depth, str(each.scheme), each.fast, values)


def _members(results: Results) -> Iterator[Known]:
    found = Members().evidence(results)
    scores: dict[tuple[str, int, str], list[float]] = {}
    for record in found.at_best() if found is not None else ():
        cell = record.cell
        if cell.dataset in IMAGES:
            scores.setdefault((cell.dataset, cell.depth, str(cell.scheme)), []).append(record.score)
    for key, values in scores.items():
        yield _row("members", *key, False, np.array(values))


def _on_the_set(results: Results) -> Iterator[Known]:
    """Free training; fast ends come with a cosine schedule there, as in the study of baselines."""
    found = OnTheSet().evidence(results)
    for (setting, way), scores in found.scores.items() if found is not None else ():
        if setting.dataset in IMAGES and setting.shots is None and way.how in (FREE, FREE_ENDS):
            yield _row("on-the-set", setting.dataset, setting.depth, way.scheme, way.how == FREE_ENDS, scores)


def _architectures(results: Results) -> Iterator[Known]:
    """Plain convolutional networks; others of that study have no depth to go by."""
    found = Architectures().evidence(results)
    for name, outcomes in found.outcomes.items() if found is not None else ():
        if name.removeprefix("cnn").isdigit():
            for start, outcome in outcomes.items():
                if outcome.curves:
                    called = "recipe" if start == OURS else start
                    depth, scores = int(name.removeprefix("cnn")), np.array(outcome.scores)
                    yield _row("architectures", "fashion-mnist at 14×14", depth, called, False, scores, "CNN")
