"""The study of training on the set: what the constraint buys, and what it costs, each way at its best learning rate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.family import OptimizerName, ScheduleName

from ..experiment import titled
from ..tables.images import at_places
from ..tables.protocol import IMAGES
from ..verdicts import Verdict, verdicts
from .kit import SCORE, WORKS, Grid, Key, Setting, Tuned, TunedStudy, grid_of, perceptron, quality, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FREE, FREE_COSINE, FREE_ENDS = "free", "free, cosine", "free, fast ends"
ON_SET, ON_SET_COSINE, RELEASED = "on the set", "on the set, cosine", "on the set, then free"
GAIN, ENDS, STIEFEL = "on the set, gains", "on the set, fast ends", "Stiefel manifold"


class How(NamedTuple):
    """A way to train, and the free one it is compared with."""

    optimizer: OptimizerName
    schedule: ScheduleName
    fast_ends: bool = False
    """Whether the first and the last layer learn √depth times as fast, so that their rate does not shrink with it."""
    against: str | None = None
    """The same initialization trained freely, by the same schedule."""


HOW = {
    FREE: How("adam", "constant"),
    FREE_COSINE: How("adam", "cosine"),
    FREE_ENDS: How("adam", "cosine", fast_ends=True),
    ON_SET: How("stiefel-adam", "constant", against=FREE),
    ON_SET_COSINE: How("stiefel-adam", "cosine", against=FREE_COSINE),
    RELEASED: How("stiefel-adam", "release", against=FREE_COSINE),
    GAIN: How("gain-adam", "cosine", against=FREE_COSINE),
    ENDS: How("stiefel-adam", "cosine", fast_ends=True, against=FREE_ENDS),
    STIEFEL: How("orthogonal-adam", "constant", against=FREE),
}
"""On the Stiefel manifold weights stay orthogonal, without the ones; with gains, each layer has a learned one."""
SHOWN = (FREE, FREE_ENDS, ON_SET, ENDS, STIEFEL)
"""On the page."""
DRAWN: dict[str, dict[str, Any]] = {
    FREE: {"color": "#6E7781"},
    ON_SET: {"color": "#0072B2"},
    STIEFEL: {"color": "#B35900"},
    FREE_ENDS: {"color": "#6E7781", "linestyle": "--"},
    ENDS: {"color": "#0072B2", "linestyle": "--"},
}
"""In the picture."""
AGAINST = {name: how.against for name, how in HOW.items() if how.against}
SCHEMES = {"stiefel": "uniform", "permutation": "permutation"}
"""The initializations, and what the pages call them."""
RATES, QUICK_RATES = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0), (1.0, 16.0, 256.0)
"""Times the paper's 0.001/√depth."""
EPOCHS, QUICK_EPOCHS, TABLE_EPOCHS = 15, 6, 60
"""On images, in the quick study, and on tables; a third of them to choose a rate."""
TABLE = "cancer"
DEPTHS = (100, 300, 1000)
DEEPEST = DEPTHS[-1]
SHOTS = 8


class Way(NamedTuple):
    """An initialization, and how it is trained."""

    scheme: str
    how: str

    def __str__(self) -> str:
        return f"{SCHEMES[self.scheme]}, {self.how}"


EVERY = tuple(Way(scheme, how) for scheme, how in product(SCHEMES, HOW))


def _ways(*hows: str) -> tuple[Way, ...]:
    return tuple(Way(scheme, how) for how, scheme in product(hows or HOW, SCHEMES))


def _images(depth: int, shots: int | None = None) -> tuple[Setting, ...]:
    return tuple(Setting(dataset, depth, shots) for dataset in IMAGES)


def _less(value: float | None) -> float | None:
    return None if value is None else -value


class OnTheSet(TunedStudy[Way]):
    """Plain networks trained freely, on the set and on the Stiefel manifold, each way at its best rate."""

    name = "on-the-set"
    title = "What does it buy?"
    page = "on-the-set"
    listed = True
    seeds = 10
    quick_seeds = 3
    order = ("digits", *IMAGES, TABLE)
    tuning_seeds, first_seed = (3000, 3001), 4000  # not the baselines', so that no network is in both studies
    measures: ClassVar = {
        SCORE: quality, "log loss": lambda record: _less(record.log_loss),
        "calibration": lambda record: _less(record.calibration), "accuracy under noise": lambda record: record.noisy,
    }  # fmt: skip
    stages: ClassVar = {
        False: (  # what costs most last
            (Grid(_images(DEEPEST), _ways(ON_SET_COSINE, FREE, ENDS, FREE_ENDS)),),
            (Grid((*_images(100), *_images(100, SHOTS)), _ways()),),
            (Grid(_images(300), _ways(FREE, FREE_COSINE, ON_SET, ON_SET_COSINE, STIEFEL)),),
            (Grid((Setting(TABLE, 100),), _ways()),),
            (Grid((Setting("mnist", DEEPEST),), _ways(ON_SET, STIEFEL)), Grid(_images(DEEPEST), _ways(FREE_COSINE))),
        ),
        True: ((Grid((Setting("digits", 30), Setting("digits", 100), Setting("digits", 30, SHOTS)), _ways()),),),
    }

    def rates(self, contender: Way, setting: Setting, quick: bool) -> tuple[float, ...]:
        return QUICK_RATES if quick else RATES

    def cell(self, contender: Way, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        table, how = setting.dataset == TABLE, HOW[contender.how]
        epochs = TABLE_EPOCHS if table else QUICK_EPOCHS if quick else EPOCHS
        return perceptron(
            setting, contender.scheme, times, epochs=epochs // 3 if tuning and not quick else epochs,
            batch=16 if table else 256, optimizer=how.optimizer, schedule=how.schedule,
            ends=math.sqrt(setting.depth) if how.fast_ends else 1.0,
        )  # fmt: skip

    def tables(self, evidence: Tuned[Way]) -> list[Table]:
        ways = {str(way): way for way in EVERY if any(way == other for _, other in evidence.scores)}
        columns = {str(setting): setting for setting in evidence.settings if setting.depth != 300}

        def table(title: str, text: Callable[[Key[Way]], str]) -> Table:
            return grid_of(title, ways, columns, lambda way, setting: text((setting, way)))

        judged = {measure: each for measure in self.measures if (each := duels(evidence, measure))}
        against = {way: way for way in ways if any(str(duel.way) == way for each in judged.values() for duel in each)}

        def counted(way: str, measure: str) -> str:
            words = Counter(duel.verdict.word for duel in judged[measure] if str(duel.way) == way)
            return f"{words['better']} : {words['worse']}, of {words.total()}"

        title = "better : worse than the same initialization trained freely, of all settings"
        return [
            table("test accuracy (%) at the best rate", lambda key: spread(evidence.scores.get(key))),
            table(f"rates that work ({WORKS:.0%} of the best), highest over lowest", lambda k: evidence.working(*k)),
            grid_of(title, against, {"accuracy" if each == SCORE else each: each for each in judged}, counted),
        ]

    def pictures(self, evidence: Tuned[Way]) -> dict[str, Figure]:
        return {self.name: over_rates(evidence)}

    def section(self, evidence: Tuned[Way]) -> list[str]:
        names = {str(way) for way in EVERY if way.how in SHOWN}
        scores, _, verdicts = self.tables(evidence)
        return titled([replace(t, rows=[row for row in t.rows if row[0] in names]) for t in (scores, verdicts)])


class Duel(NamedTuple):
    """Two ways in a setting, compared in one measure."""

    setting: Setting
    way: Way
    other: Way
    verdict: Verdict


def duels(found: Tuned[Way], measure: str = SCORE) -> list[Duel]:
    """Every way against the free one of the same initialization, in every setting that has both."""
    samples, pairs = found.samples[measure], []
    for setting, way in samples:
        other = way._replace(how=AGAINST.get(way.how, ""))
        if other.how == FREE_COSINE and (setting, other) not in samples:  # not run: by the constant rate
            other = way._replace(how=FREE)
        if (setting, other) in samples:
            pairs.append((setting, way, other))
    told = verdicts([(samples[setting, way], samples[setting, other]) for setting, way, other in pairs])
    return [Duel(*pair, verdict) for pair, verdict in zip(pairs, told)]


def over_rates(found: Tuned[Way]) -> Figure:
    """Accuracy over the rate, from uniform members of the first data set: a panel for each depth."""
    first = found.settings[0].dataset
    depths = sorted({where.depth for where in found.settings if where.dataset == first and where.shots is None})
    drawn, axes = plots.column(len(depths), label="Accuracy over the learning rate: on the set more rates work")
    for axis, depth in zip(axes, depths):
        setting = Setting(first, depth)
        for how, look in DRAWN.items():
            if rates := found.tuned.get((setting, Way("stiefel", how))):
                axis.plot(*zip(*sorted(rates.items())), marker="o", markersize=4, label=how, **look)
        times = sorted({times for (where, _), rates in found.tuned.items() if where == setting for times in rates})
        axis.set(ylim=(0, 102), title=str(setting))
        at_places(axis, times, "learning rate, times 0.001/√depth")
    return drawn
