"""What the records of the study of rivals say: scores, working rates, steps, and verdicts against ours."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stiefel_init.lab.study.significance import different, holm, welch
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Record

from . import rival_cells as cells
from .rival_cells import FAST, MINE, NAMES, name_of
from .tuned import Setting, working

LEVEL = 0.05
"""Of all verdicts of a table together."""


class Group(NamedTuple):
    """The settings that differ in depth alone."""

    dataset: str
    shots: int | None

    def __str__(self) -> str:
        return self.dataset if self.shots is None else f"{self.dataset}, {self.shots} per class"


class Found(NamedTuple):
    """The records of the study, full or quick, and how fast its networks learned."""

    tuned: Mapping[tuple[Setting, str], Mapping[float, float]]
    scores: Mapping[tuple[Setting, str], np.ndarray]
    """Of the compared networks, turned so that more is better."""
    speed: Mapping[tuple[Setting, str], Mapping[str, float]]
    """Mean steps to 90 % of the final accuracy, and mean seconds."""
    quick: bool

    @property
    def settings(self) -> list[Setting]:
        """Those with records, by data set, shots and depth."""
        known = {setting for setting, _ in self.scores}
        return [setting for setting in cells.settings(self.quick) if setting in known]

    @property
    def groups(self) -> list[Group]:
        """The data of the settings, in their order."""
        return list(dict.fromkeys(Group(setting.dataset, setting.shots) for setting in self.settings))

    @property
    def depths(self) -> list[int]:
        """Of all settings."""
        return sorted({setting.depth for setting in self.settings})

    def of(self, setting: Setting) -> dict[str, np.ndarray]:
        """The scores of all starts in a setting."""
        return {name: self.scores[setting, name] for name in NAMES if (setting, name) in self.scores}

    def working(self, setting: Setting, name: str) -> float | None:
        """The highest rate that works over the lowest one; None if none does."""
        return working(self.tuned, (setting, name))

    def learned(self, setting: Setting, name: str, what: str) -> float | None:
        """A column of the speed table, the mean of a start's networks."""
        return self.speed.get((setting, name), {}).get(what)


def found_in(records: Mapping[Cell, Record], speed: Sequence[Mapping[str, Any]], seeds: int) -> Found | None:
    """What the records have of the study, full or quick: the one with more settings, since the two may share some."""
    forms = [_form(records, speed, seeds, quick) for quick in (False, True)]
    found = max(forms, key=lambda form: len(form.scores))  # of equal ones, the full study
    return found if found.scores else None


def _form(records: Mapping[Cell, Record], speed: Sequence[Mapping[str, Any]], seeds: int, quick: bool) -> Found:
    tuned: dict[tuple[Setting, str], Mapping[float, float]] = {}
    scores: dict[tuple[Setting, str], np.ndarray] = {}
    for search in cells.searches(quick):
        tuned |= search.by_rate(records)
        scores |= search.samples(seeds, records)
    return Found(tuned, scores, _means(speed), quick)


def _means(speed: Sequence[Mapping[str, Any]]) -> dict[tuple[Setting, str], dict[str, float]]:
    values: dict[tuple[Setting, str], dict[str, list[float]]] = {}
    for row in speed:
        key = Setting(row["dataset"], int(row["depth"]), int(row["shots"]) or None), str(row["start"])
        for what in ("steps", "seconds"):
            if row[what] not in ("", None):
                values.setdefault(key, {}).setdefault(what, []).append(float(row[what]))
    return {key: {what: float(np.mean(each)) for what, each in of.items()} for key, of in values.items()}


def speed(records: Mapping[Cell, Record], tasks: Problems, seeds: int, quick: bool) -> list[dict[str, object]]:
    """Of each compared network: the steps to 90 % of its final accuracy, and its seconds."""
    rows: list[dict[str, object]] = []
    for cell in (cell for search in cells.searches(quick) for cell in search.compared(seeds, records)):
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


def is_fast(name: str) -> bool:
    """Whether the ends of the networks of that name learn fast."""
    return name.endswith(FAST)


def best_of_ours(
    found: Found, setting: Setting, *, fast: bool = False, among: Container[str] = MINE
) -> tuple[str, np.ndarray] | None:
    """Our start that did best in a setting among the networks that chose the rates, and its scores.

    To choose it by the scores themselves would favour ours: the best of several is high by chance.
    """
    scores = found.of(setting)
    ours = [name for name in scores if name in among and is_fast(name) == fast]
    if not ours:
        return None
    best = max(ours, key=lambda name: max(found.tuned[setting, name].values()))
    return best, scores[best]


class Duel(NamedTuple):
    """A rival against ours in a setting, both trained in the same way."""

    setting: Setting
    rival: str
    ours: str
    gain: float
    """Of the rival: the difference of means."""
    verdict: str


Pair = tuple[Setting, str, str, np.ndarray, np.ndarray]
"""Where, the rival, the name of ours, its scores, the rival's."""


def _questions(found: Found, ours: str | None = None) -> list[list[Pair]]:
    """All rivals of a setting that were trained in one way, each beside our best start or the one of that name."""
    questions = []
    for setting in found.settings:
        scores = found.of(setting)
        for fast in (False, True):
            mine = best_of_ours(found, setting, fast=fast, among=MINE if ours is None else {ours + FAST * fast})
            if mine is not None:
                rivals = [rival for rival in scores if rival not in MINE and is_fast(rival) == fast]
                questions.append([(setting, rival, *mine, scores[rival]) for rival in rivals])
    return questions


def duels(found: Found, ours: str | None = None, *, apart: bool = False) -> list[Duel]:
    """Every rival in every setting against our best start there.

    Args:
        found: The records.
        ours: The name of one of our starts, to take it instead of the best.
        apart: Whether each setting is a question by itself, whose comparisons share the level among themselves;
            otherwise all settings share it.
    """
    questions = _questions(found, ours)
    results = []
    for pairs in questions if apart else [[pair for question in questions for pair in question]]:
        words = verdicts([(theirs, mine) for *_, mine, theirs in pairs])
        results += [
            Duel(setting, rival, name, float(theirs.mean() - mine.mean()), word)
            for (setting, rival, name, mine, theirs), word in zip(pairs, words)
        ]
    return results


def verdicts(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """Of each pair, whether the first scores are above the second: Welch's tests, by Holm at 0.05 for all pairs.

    Networks that diverged lose against any that did not; two such samples are open, as are single networks.
    """
    p = [welch(*pair) for pair in pairs]
    corrected = iter(holm([each for each in p if each is not None]))
    return [_word(*pair, None if each is None else next(corrected)) for pair, each in zip(pairs, p)]


def _word(a: np.ndarray, b: np.ndarray, p: float | None) -> str:
    if p is not None:
        return "not shown" if p >= LEVEL else "wins" if a.mean() > b.mean() else "loses"
    whole = [bool(np.isfinite(each).all()) for each in (a, b)]
    if min(len(a), len(b)) < 2 or whole[0] == whole[1]:
        return "open"
    return "wins" if whole[0] else "loses"


class Pooled(NamedTuple):
    """A rival against ours on some data, over all depths."""

    group: Group
    rival: str
    gain: float
    """Of the rival: the mean difference."""
    verdict: str


def over_depths(found: Found) -> list[Pooled]:
    """Every rival on all data: small differences that are the same at every depth show here.

    Networks of one seed have the same data. So the differences to our best start are taken seed by seed, averaged over
    depths, and held against zero by Student's test; Holm at 0.05 for all rivals and data.
    """
    pools: dict[tuple[Group, str], list[np.ndarray]] = {}
    for setting, rival, _, mine, theirs in (pair for question in _questions(found) for pair in question):
        count = min(len(theirs), len(mine))
        group = Group(setting.dataset, setting.shots)
        pools.setdefault((group, rival), []).append(theirs[:count] - mine[:count])
    means = {key: np.mean([each[: min(map(len, pool))] for each in pool], axis=0) for key, pool in pools.items()}
    means = {key: values for key, values in means.items() if len(values) > 1 and np.isfinite(values).all()}
    corrected = holm([different(values) for values in means.values()])
    return [
        Pooled(*key, float(values.mean()), "not shown" if p >= LEVEL else "wins" if values.mean() > 0 else "loses")
        for (key, values), p in zip(means.items(), corrected)
    ]
