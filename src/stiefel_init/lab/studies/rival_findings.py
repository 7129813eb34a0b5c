"""What the records of the study of rivals say: scores, working rates, steps, and verdicts against ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..report.tables import Table
from ..train.cell import Cell
from ..train.record import Record
from ..train.task import Tasks
from . import rival_cells as cells
from .rival_cells import NAMES, OURS, name_of
from .tuned import WORKS, Setting, working


class Found(NamedTuple):
    """The records of the study, full or quick, and how fast its networks learned."""

    tuned: Mapping[tuple[Setting, str], Mapping[float, float]]
    scores: Mapping[tuple[Setting, str], np.ndarray]
    """Of the compared networks, turned so that more is better."""
    speed: Sequence[Mapping[str, Any]]
    quick: bool

    @property
    def settings(self) -> list[Setting]:
        """Those with records, in the order of the study."""
        known = {setting for setting, _ in self.scores}
        return [setting for setting in cells.settings(self.quick) if setting in known]

    def of(self, setting: Setting) -> dict[str, np.ndarray]:
        """The scores of all starts in a setting."""
        return {name: self.scores[setting, name] for name in NAMES if (setting, name) in self.scores}

    def working(self, setting: Setting, name: str) -> float | None:
        """The highest rate that works over the lowest one; None if none does."""
        return working(self.tuned, (setting, name))

    def learned(self, setting: Setting, name: str, what: str) -> float | None:
        """The mean of a column of the speed table."""
        few = setting.shots or 0
        wanted = {"dataset": setting.dataset, "depth": setting.depth, "shots": few, "start": name}
        rows = [row for row in self.speed if all(row[key] == value for key, value in wanted.items())]
        values = [float(row[what]) for row in rows if row[what] not in ("", None)]
        return float(np.mean(values)) if values else None


def found_in(records: Mapping[Cell, Record], speed: Sequence[Mapping[str, Any]], seeds: int) -> Found | None:
    """What the records have of the study, full or quick: the one with more settings, since the two may share some."""
    forms = [_form(records, speed, seeds, quick) for quick in (False, True)]
    found = max(forms, key=lambda form: len(form.scores))  # of equal ones, the full study
    return found if found.scores else None


def _form(records: Mapping[Cell, Record], speed: Sequence[Mapping[str, Any]], seeds: int, quick: bool) -> Found:
    search = cells.search(quick)
    return Found(search.by_rate(records), search.samples(seeds, records), speed, quick)


def speed(records: Mapping[Cell, Record], tasks: Tasks, seeds: int, quick: bool) -> list[dict[str, object]]:
    """Of each compared network: the steps to 90 % of its final accuracy, and its seconds."""
    rows: list[dict[str, object]] = []
    for cell in cells.search(quick).compared(seeds, records):
        if (record := records.get(cell)) is None:
            continue
        epochs, task = epochs_to(record), tasks(cell)
        steps = None if epochs is None else epochs * math.ceil(task.size / min(cell.batch or task.size, task.size))
        where = {"dataset": cell.dataset, "depth": cell.depth, "shots": cell.shots or 0, "start": name_of(cell)}
        took = {"steps": "" if steps is None else steps, "seconds": round(record.seconds, 3)}
        rows.append({**where, "seed": cell.seed, **took})
    return rows


def epochs_to(record: Record, share: float = 0.9) -> int | None:
    """The first epoch after which the test accuracy was 90 % of the last one; None where it was taken only once."""
    if record.metric.name != "accuracy" or len(record.tested) < 2 or not math.isfinite(record.score):
        return None
    return next(epoch for epoch, score in zip(record.tested, record.test_score) if score >= share * record.score)


def best_of_ours(found: Found, setting: Setting) -> tuple[str, np.ndarray] | None:
    """Our start with the highest mean in a setting."""
    scores = found.of(setting)
    ours = {rival.name: scores[rival.name] for rival in OURS if rival.name in scores}
    return max(ours.items(), key=lambda item: float(item[1].mean())) if ours else None


def verdict(a: np.ndarray, b: np.ndarray, comparisons: int) -> str:
    """Whether a rival's scores are above ours, `b`: Welch's tests at 0.05 shared by all comparisons."""
    from ..paper.statistics import greater_p

    if min(len(a), len(b)) < 2:
        return "open"
    if not (np.isfinite(a).all() and np.isfinite(b).all()):  # networks that diverged
        return "wins" if np.isfinite(a).all() else "loses" if np.isfinite(b).all() else "open"
    level = 0.05 / comparisons
    return "wins" if greater_p(a, b) < level else "loses" if greater_p(b, a) < level else "not shown"


Duel = tuple[Setting, str, str, float, str]
"""Setting, rival, our best start there, difference of means, verdict."""


def duels(found: Found) -> list[Duel]:
    """Every rival in every setting."""
    pairs = [
        (setting, name, *ours, values)
        for setting in found.settings
        if (ours := best_of_ours(found, setting)) is not None
        for name, values in found.of(setting).items()
        if name not in {rival.name for rival in OURS}
    ]
    count = 2 * max(len(pairs), 1)
    return [
        (setting, name, our_name, float(values.mean() - ours.mean()), verdict(values, ours, count))
        for setting, name, our_name, ours, values in pairs
    ]


def verdicts(found: Found) -> Table:
    """Each rival against the best of ours: a column for each setting."""
    results = duels(found)
    names = [name for name in NAMES if any(duel[1] == name for duel in results)]
    by_pair = {(duel[0], duel[1]): f"{duel[4]} ({duel[3]:+.1f})" for duel in results}
    rows = [[name, *(by_pair.get((setting, name), "—") for setting in found.settings)] for name in names]
    return Table("verdicts against the best of ours", ["", *map(str, found.settings)], rows)


def score(found: Found, setting: Setting, name: str) -> str:
    """Mean and standard deviation of a start in a setting."""
    values = found.of(setting).get(name)
    if values is None:
        return "—"
    values = np.abs(values)
    return f"{values.mean():.1f}" + (f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else "")


def _working(found: Found, setting: Setting, name: str) -> str:
    width = found.working(setting, name)
    return "none" if width is None else f"× {width:g}"


def _steps(found: Found, setting: Setting, name: str) -> str:
    """Only of starts that end near the best: one that learns nothing is soon where it ends."""
    means = {other: float(values.mean()) for other, values in found.of(setting).items()}
    value = found.learned(setting, name, "steps")
    return "—" if value is None or means[name] < WORKS * max(means.values()) else f"{value:.0f}"


def _seconds(found: Found, setting: Setting, name: str) -> str:
    value = found.learned(setting, name, "seconds")
    return "—" if value is None else f"{value:.2f}"


_MEASURES = (
    ("test accuracy (%), or error of regressions, at the best rate", score),
    ("rates that work: the highest over the lowest", _working),
    ("steps to 90 % of the final accuracy, of starts that reach 90 % of the best", _steps),
    ("seconds for a network", _seconds),
)


def _by_setting(found: Found, title: str, value: Any) -> Table:
    """A row for each start, a column for each setting."""
    names = [name for name in NAMES if any(key[1] == name for key in found.scores)]
    rows = [[name, *(value(found, setting, name) for setting in found.settings)] for name in names]
    return Table(title, ["", *map(str, found.settings)], rows)


def tables(found: Found) -> list[Table]:
    """Verdicts, then scores, working rates, steps and seconds by setting."""
    return [verdicts(found), *(_by_setting(found, *what) for what in _MEASURES)]
