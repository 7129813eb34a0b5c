"""What the records of the study of training on the set say: scores, working rates, calibration, noise, and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..tables.protocol import IMAGES
from ..tables.statistics import greater_p
from . import on_set_cells as cells
from .on_set_cells import (
    ENDS,
    EVERY,
    FREE,
    FREE_COSINE,
    FREE_ENDS,
    GAIN,
    ON_SET,
    ON_SET_COSINE,
    RELEASED,
    STIEFEL,
    Key,
    Way,
)
from .tuned import WORKS, Setting, quality, working

MARGIN = 0.5
"""Points of accuracy by which a way may be worse and still count as not worse."""
AGAINST = {
    ON_SET: FREE,
    ON_SET_COSINE: FREE_COSINE,
    RELEASED: FREE_COSINE,
    GAIN: FREE_COSINE,
    ENDS: FREE_ENDS,
    STIEFEL: FREE,
}
"""What each way is compared with: the same start trained freely, by the same schedule."""


class Measure(NamedTuple):
    """Something measured of a trained network."""

    title: str
    value: Callable[[Record], float | None]
    """Of a record; more is better."""
    digits: int = 1


ACCURACY = Measure("test accuracy (%) at the best rate", quality)
MEASURES = (
    Measure("log loss on the test part", lambda record: _less(record.log_loss), 3),
    Measure("expected calibration error (%)", lambda record: _less(record.calibration)),
    Measure("test accuracy (%) under noise of standard deviation 0.3 in the inputs", lambda record: record.noisy),
)


def _less(value: float | None) -> float | None:
    return None if value is None else -value


class Found(NamedTuple):
    """The records of the study, full or quick."""

    tuned: Mapping[Key, Mapping[float, float]]
    samples: Mapping[str, Mapping[Key, np.ndarray]]
    """Of each measure, by its title: the compared networks, turned so that more is better."""
    best: Mapping[Key, float]
    """The rates that were chosen."""
    quick: bool

    @property
    def scores(self) -> Mapping[Key, np.ndarray]:
        """Accuracies of the compared networks."""
        return self.samples[ACCURACY.title]

    @property
    def settings(self) -> list[Setting]:
        """Those with compared networks."""
        known = {setting for setting, _ in self.scores}
        return [setting for setting in cells.settings(self.quick) if setting in known]

    def working(self, key: Key) -> float | None:
        """The highest rate that works, over the lowest."""
        return working(self.tuned, key)


def found_in(records: Mapping[Cell, Record], seeds: int) -> Found | None:
    """What the records have of the study, full or, if they have nothing of that, quick."""
    for quick in (False, True):
        searches = cells.searches(quick)
        samples = {
            measure.title: _joined(search.samples(seeds, records, measure.value) for search in searches)
            for measure in (ACCURACY, *MEASURES)
        }
        if samples[ACCURACY.title]:
            tuned = _joined(search.by_rate(records) for search in searches)
            return Found(tuned, samples, _joined(search.best(records) for search in searches), quick)
    return None


def _joined(parts):  # type: ignore[no-untyped-def]
    return {key: value for part in parts for key, value in part.items()}


class Duel(NamedTuple):
    """Two ways in a setting, compared in one measure."""

    setting: Setting
    way: Way
    other: Way
    gain: float
    """Difference of means; more is better."""
    p: float
    """That the means do not differ: Welch's two-sided test, times the number of comparisons."""
    verdict: str


def duels(found: Found, measure: Measure, against: Mapping[str, str], margin: float | None = None) -> list[Duel]:
    """Every way against another one of the same start, in every setting that has both."""
    samples = found.samples[measure.title]
    pairs = [
        (setting, way, other, values, samples[setting, other])
        for (setting, way), values in samples.items()
        if way.how in against and (setting, other := _other(samples, setting, way, against)) in samples
    ]
    return [
        Duel(setting, way, other, float(a.mean() - b.mean()), *_judged(a, b, len(pairs), margin))
        for setting, way, other, a, b in pairs
    ]


def _other(samples: Mapping[Key, np.ndarray], setting: Setting, way: Way, against: Mapping[str, str]) -> Way:
    """Free training by the same schedule, or, where that was not run, by the constant one."""
    other = Way(way.start, against[way.how])
    return other if (setting, other) in samples or other.how != FREE_COSINE else Way(way.start, FREE)


def _judged(a: np.ndarray, b: np.ndarray, comparisons: int, margin: float | None) -> tuple[float, str]:
    if min(len(a), len(b)) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 1.0, "open"
    p = corrected(a, b, comparisons)
    if p < 0.05:
        return p, "better" if a.mean() > b.mean() else "worse"
    if margin is not None and comparisons * greater_p(a + margin, b) < 0.05:
        return p, "not worse"
    return p, "not shown"


def corrected(a: np.ndarray, b: np.ndarray, comparisons: int) -> float:
    """p of Welch's two-sided test, times the number of comparisons."""
    return min(1.0, 2 * comparisons * min(greater_p(a, b), greater_p(b, a)))


class Target(NamedTuple):
    """Something the method was meant to reach."""

    what: str
    found: str
    reached: str


def targets(found: Found) -> list[Target]:
    """What was wanted, and what the records have of it."""
    rows = []
    deepest, hundred = Setting("mnist", cells.DEEPEST), Setting("mnist", 100)
    reached = {
        how: float(found.scores[deepest, Way("stiefel", how)].mean())
        for how in (ON_SET, ON_SET_COSINE, ENDS, FREE, FREE_COSINE, FREE_ENDS)
        if (deepest, Way("stiefel", how)) in found.scores
    }
    if on_set := {how: mean for how, mean in reached.items() if how in (ON_SET, ON_SET_COSINE, ENDS)}:
        best = max(on_set.values())
        text = ", ".join(f"{how} {mean:.1f} %" for how, mean in reached.items())
        rows.append(Target("uniform members, 1,000 layers, MNIST: 95 %", text, _yes(best >= 95)))
    for start in cells.STARTS:
        widths = {how: found.working((hundred, Way(start, how))) for how in (ON_SET, ON_SET_COSINE, ENDS, FREE)}
        if any(widths[how] is not None for how in (ON_SET, ON_SET_COSINE, ENDS)):
            text = ", ".join(f"{how} {'none' if width is None else f'× {width:g}'}" for how, width in widths.items())
            what = f"{cells.STARTS[start]}, 100 layers, MNIST: rates that work, × 64"
            rows.append(Target(what, text, _yes(max(width or 0 for width in list(widths.values())[:3]) >= 64)))
    for setting in (Setting(dataset, 100) for dataset in IMAGES):
        for start in cells.STARTS:
            if row := _at_best(found, setting, start):
                rows.append(row)
    return rows


def _at_best(found: Found, setting: Setting, start: str) -> Target | None:
    """The best schedule on the set beside the best free one."""
    here = {way.how: values for (where, way), values in found.scores.items() if (where, way.start) == (setting, start)}
    free = {how: values for how, values in here.items() if how in (FREE, FREE_COSINE, FREE_ENDS)}
    ours = {how: values for how, values in here.items() if how in (ON_SET, ON_SET_COSINE, RELEASED, GAIN, ENDS)}
    if not free or not ours:
        return None
    a, b = (max(group, key=lambda how: float(group[how].mean())) for group in (ours, free))
    gain = float(ours[a].mean() - free[b].mean())
    p, word = _judged(ours[a], free[b], 2 * len(cells.STARTS), MARGIN)
    text = f"{a} {ours[a].mean():.2f} %, {b} {free[b].mean():.2f} % ({word}, {gain:+.2f}, p = {p:.2g})"
    return Target(
        f"{cells.STARTS[start]}, {setting}: not worse than free training", text, _yes(word in ("better", "not worse"))
    )


def _yes(reached: bool) -> str:
    return "reached" if reached else "not reached"


def tables(found: Found) -> list[Table]:
    """Targets, scores, rates that work, verdicts, and the other measures."""
    ways = [way for way in EVERY if any(key[1] == way for key in found.scores)]
    columns = ["", *map(str, found.settings)]

    def table(title: str, value: Callable[[Key], str]) -> Table:
        rows = [[str(way), *(value((setting, way)) for setting in found.settings)] for way in ways]
        return Table(title, columns, [row for row in rows if any(text not in ("", "—") for text in row[1:])])

    def width(key: Key) -> str:
        if key not in found.tuned:
            return "—"
        return "none" if (ratio := found.working(key)) is None else f"× {ratio:g}"

    made = [Table("what was wanted", ["", "found", ""], [list(target) for target in targets(found)])]
    made += [
        table(ACCURACY.title, lambda key: _mean(found, ACCURACY, key)),
        table("the best rate, times 0.001/√depth", lambda key: f"{found.best[key]:g}" if key in found.best else "—"),
        table(f"rates that work ({WORKS:.0%} of the best score of the setting): the highest over the lowest", width),
        _verdicts(found, table, ACCURACY, AGAINST, MARGIN, "against the same start trained freely, accuracy"),
        _verdicts(
            found, table, ACCURACY, {ON_SET: STIEFEL}, MARGIN, "on the set against the Stiefel manifold, accuracy"
        ),
    ]
    for measure in MEASURES:
        made.append(table(measure.title, lambda key, measure=measure: _mean(found, measure, key)))  # type: ignore[misc]
        made.append(
            _verdicts(found, table, measure, AGAINST, None, f"against the same start trained freely, {measure.title}")
        )
    return [each for each in made if each.rows]


def _mean(found: Found, measure: Measure, key: Key) -> str:
    values = found.samples[measure.title].get(key)
    if values is None:
        return "—"
    digits = measure.digits
    return f"{abs(values.mean()):.{digits}f} ± {values.std(ddof=len(values) > 1):.{digits}f}"


def _verdicts(
    found: Found,
    table: Callable[[str, Callable[[Key], str]], Table],
    measure: Measure,
    against: Mapping[str, str],
    margin: float | None,
    title: str,
) -> Table:
    by_key = {(duel.setting, duel.way): duel for duel in duels(found, measure, against, margin)}

    def text(key: Key) -> str:
        if (duel := by_key.get(key)) is None:
            return ""
        return f"{duel.verdict} ({duel.gain:+.{measure.digits}f}, p = {duel.p:.2g})"

    return table(title, text)
