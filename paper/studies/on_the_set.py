"""The study of training on the set: what the constraint buys, and what it costs, each way at its best learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.significance import Verdict, bonferroni, verdicts
from stiefel_init.lab.train.cell import Cell, OptimizerName, ScheduleName
from stiefel_init.lab.train.record import Record

from ..experiment import Options
from ..results import Results
from ..tables.protocol import IMAGES, TABULAR_WIDTH
from .kit import MISSING, SCORE, WORKS, Data, Grid, Key, Setting, Tuned, TunedStudy, quality, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FREE, FREE_COSINE, FREE_ENDS = "free", "free, cosine", "free, fast ends"
ON_SET, ON_SET_COSINE, RELEASED = "on the set", "on the set, cosine", "on the set, then free"
GAIN, ENDS, STIEFEL = "on the set, gains", "on the set, fast ends", "Stiefel manifold"


class How(NamedTuple):
    """A way to train, the free one it is compared with, and its line in pictures."""

    optimizer: OptimizerName
    schedule: ScheduleName
    fast_ends: bool = False
    """Whether the first and the last layer learn √depth times as fast, so that their rate does not shrink with it."""
    against: str | None = None
    """The same initialization trained freely, by the same schedule."""
    colour: str = "#D55E00"
    style: Any = "-"


HOW = {
    FREE: How("adam", "constant", colour="#777777", style=":"),
    FREE_COSINE: How("adam", "cosine", colour="#777777", style=(0, (1, 3))),
    FREE_ENDS: How("adam", "cosine", fast_ends=True, colour="#000000"),
    ON_SET: How("stiefel-adam", "constant", against=FREE, colour="#0072B2"),
    ON_SET_COSINE: How("stiefel-adam", "cosine", against=FREE_COSINE, colour="#0072B2", style="--"),
    RELEASED: How("stiefel-adam", "release", against=FREE_COSINE, colour="#009E73", style="-."),
    GAIN: How("gain-adam", "cosine", against=FREE_COSINE, colour="#CC79A7"),
    ENDS: How("stiefel-adam", "cosine", fast_ends=True, against=FREE_ENDS, colour="#56B4E9"),
    STIEFEL: How("orthogonal-adam", "constant", against=FREE),
}
"""On the Stiefel manifold weights stay orthogonal, without the ones; with gains, each layer has a learned one."""
AGAINST = {name: how.against for name, how in HOW.items() if how.against}
SCHEMES = {"stiefel": "uniform", "permutation": "permutation"}
"""The initializations, and what the pages call them."""
RATES, QUICK_RATES = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0), (1.0, 16.0, 256.0)
EPOCHS, QUICK_EPOCHS, TABLE_EPOCHS, STEPS = 15, 6, 60, 100
"""On images, in the quick study, on tables, and on a few images of each class."""
TABLE = "cancer"
DEPTHS = (100, 300, 1000)
DEEPEST = DEPTHS[-1]
SHOTS = 8
MARGIN = 0.5
"""Points of accuracy by which a way may be worse and still count as not worse."""


class Way(NamedTuple):
    """An initialization, and how it is trained."""

    scheme: str
    how: str

    def __str__(self) -> str:
        return f"{SCHEMES[self.scheme]}, {self.how}"


EVERY = tuple(Way(scheme, how) for scheme, how in product(SCHEMES, HOW))
_WAYS = {(way.scheme, *HOW[way.how][:3]): way for way in EVERY}


def _ways(*hows: str) -> tuple[Way, ...]:
    return tuple(Way(scheme, how) for how, scheme in product(hows or HOW, SCHEMES))


def _images(depth: int, shots: int | None = None) -> tuple[Setting, ...]:
    return tuple(Setting(dataset, depth, shots) for dataset in IMAGES)


class Measure(NamedTuple):
    """Something measured of a trained network."""

    title: str
    value: Callable[[Record], float | None]
    """Of a record; more is better."""
    digits: int = 1


def _less(value: float | None) -> float | None:
    return None if value is None else -value


ACCURACY = Measure("test accuracy (%) at the best rate", quality)
MEASURES = (
    Measure("log loss on the test part", lambda record: _less(record.log_loss), 3),
    Measure("expected calibration error (%)", lambda record: _less(record.calibration)),
    Measure("test accuracy (%) under noise of standard deviation 0.3 in the inputs", lambda record: record.noisy),
)


class OnTheSet(TunedStudy[Way]):
    """Plain networks trained freely, on the set and on the Stiefel manifold, each way at its best rate."""

    name = "on-the-set"
    title = "What does it buy?"
    page = "on-the-set"
    seeds = 10
    quick_seeds = 3
    order = ("digits", *IMAGES, TABLE)
    tuning_seeds, first_seed = (3000, 3001), 4000  # not the baselines', so that no network is in both studies
    measures: ClassVar = {SCORE: quality, **{measure.title: measure.value for measure in MEASURES}}
    stages: ClassVar = {
        False: (  # what costs most last
            (Grid(_images(DEEPEST), _ways(ON_SET_COSINE, FREE, ENDS, FREE_ENDS)),),
            (Grid((*_images(100), *_images(100, SHOTS)), _ways()),),
            (Grid(_images(300), _ways(FREE, FREE_COSINE, ON_SET, ON_SET_COSINE, STIEFEL)),),
            (Grid((Setting(TABLE, 100),), _ways()),),
            (
                Grid((Setting("mnist", DEEPEST),), _ways(ON_SET, STIEFEL)),
                Grid(_images(DEEPEST), _ways(FREE_COSINE)),
            ),
        ),
        True: ((Grid((Setting("digits", 30), Setting("digits", 100), Setting("digits", 30, SHOTS)), _ways()),),),
    }

    def contender(self, cell: Cell) -> Way:
        """The way in which a network is trained."""
        return _WAYS[str(cell.scheme), cell.optimizer, cell.schedule, cell.ends != 1]

    def rates(self, contender: Way, setting: Setting, quick: bool) -> tuple[float, ...]:
        """The same for all."""
        return QUICK_RATES if quick else RATES

    def cell(self, contender: Way, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        """A network at `times` the paper's rate."""
        dataset, depth, shots = setting
        epochs = TABLE_EPOCHS if dataset == TABLE else QUICK_EPOCHS if quick else EPOCHS
        epochs = epochs // 3 if tuning and not quick else epochs
        batch, how = 16 if dataset == TABLE else 256, HOW[contender.how]
        return Cell(
            dataset, contender.scheme, depth, TABULAR_WIDTH.get(dataset, 64), optimizer=how.optimizer,
            schedule=how.schedule, epochs=epochs if shots is None else STEPS, batch=batch if shots is None else None,
            shots=shots, rate=times * 1e-3 / math.sqrt(depth), alpha=0.0 if dataset in TABULAR_WIDTH else None,
            ends=math.sqrt(depth) if how.fast_ends else 1.0,
        )  # fmt: skip

    def evidence(self, results: Results) -> Any:
        """The records of the study."""
        return self.found_in(results.records_of(self.name), self.seeds)

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables and draw the pictures."""
        found = self.found_in({record.cell: record for record in records}, self.count(options))
        if found is not None:
            for table in self.tables(found):
                table.show()
            self.write_pictures(found, options)

    def tables(self, evidence: Tuned[Way]) -> list[Table]:
        """Targets, scores, rates that work, verdicts, and the other measures."""
        ways = [way for way in EVERY if any(way == other for _, other in evidence.scores)]

        def table(title: str, value: Callable[[Key[Way]], str]) -> Table:
            rows = [[str(way), *(value((setting, way)) for setting in evidence.settings)] for way in ways]
            rows = [row for row in rows if any(text not in ("", MISSING) for text in row[1:])]
            return Table(title, ["", *map(str, evidence.settings)], rows)

        def judged(title: str, measure: Measure, against: Mapping[str, str], margin: float | None) -> Table:
            found = {(duel.setting, duel.way): duel.verdict for duel in duels(evidence, measure, against, margin)}

            def text(key: Key[Way]) -> str:
                if (verdict := found.get(key)) is None:
                    return ""
                return f"{verdict.word} ({verdict.gain:+.{measure.digits}f}, p = {verdict.p:.2g})"

            return table(title, text)

        free = "against the same initialization trained freely"
        made = [
            Table("what was wanted", ["", "found", ""], [list(target) for target in targets(evidence)]),
            table(ACCURACY.title, lambda key: spread(evidence.scores.get(key))),
            table(
                "the best rate, times 0.001/√depth",
                lambda key: f"{evidence.best[key]:g}" if key in evidence.best else MISSING,
            ),
            table(
                f"rates that work ({WORKS:.0%} of the best score of the setting): the highest over the lowest",
                lambda key: evidence.working_text(*key),
            ),
            judged(f"{free}, accuracy", ACCURACY, AGAINST, MARGIN),
            judged("on the set against the Stiefel manifold, accuracy", ACCURACY, {ON_SET: STIEFEL}, MARGIN),
        ]
        for measure in MEASURES:
            samples, digits = evidence.samples[measure.title], measure.digits
            texts = {key: spread(values, digits) for key, values in samples.items()}
            made.append(table(measure.title, lambda key, texts=texts: texts.get(key, MISSING)))  # type: ignore[misc]
            made.append(judged(f"{free}, {measure.title}", measure, AGAINST, None))
        return [each for each in made if each.rows]

    def pictures(self, evidence: Tuned[Way]) -> dict[str, Figure]:
        """The score over the rate, and the rates that work over the depth."""
        return {self.name: over_rates(evidence), f"{self.name}-rates": over_depth(evidence)}

    def section(self, evidence: Tuned[Way]) -> list[str]:
        """What was run and how verdicts are made, before pictures and tables."""
        return [self._run(evidence), "", *WORDS, "", *super().section(evidence)[2:]]

    def _run(self, found: Tuned[Way]) -> str:
        line = f"**{self.title}** {len(found.settings)} settings, {found.seeds()} seeds each."
        if found.quick:
            return (
                f"{line} These are records of `stiefel-init reproduce on-the-set --quick`, on digits alone; the full "
                f"study (MNIST, Fashion-MNIST and a table, up to {DEEPEST:,} layers, {self.seeds} seeds) was not run."
            )
        asked = {
            (setting, way.how)
            for stage in self.stages[False]
            for grid in stage
            for setting, way in product(grid.settings, grid.contenders)
        }
        missing = sorted(f"{setting} ({how})" for setting, how in asked - {(s, way.how) for s, way in found.scores})
        return line + (f" Not run: {'; '.join(missing)}." if missing else " All of the study was run.")


WORDS = [
    "Ways: *free*, Adam; *on the set*, `stiefel-adam`; *Stiefel manifold*, the same without the ones; *cosine*, a",
    "warm-up and a cosine to zero instead of a constant rate; *then free*, half of the steps on the set, then free",
    "at a sixteenth of the rate and a cosine to zero; *gains*, with a cosine, members times a learned gain for",
    "each layer; *fast ends*, with a cosine, the first and the last layer at √depth times the rate of the others.",
    "Each way of each initialization has its best rate, chosen by networks with other seeds and a third of the epochs.",
    "",
    "*better*, *worse*: the means differ (Welch's test; p times the comparisons in the table is below 0.05).",
    f"*not worse*: by less than {MARGIN} points, likewise. *not shown*: neither. In brackets: the difference of",
    "means, more being better, and the corrected p.",
]


class Duel(NamedTuple):
    """Two ways in a setting, compared in one measure."""

    setting: Setting
    way: Way
    other: Way
    verdict: Verdict


def duels(found: Tuned[Way], measure: Measure, against: Mapping[str, str], margin: float | None = None) -> list[Duel]:
    """Every way against another one of the same initialization, in every setting that has both."""
    samples = found.scores if measure is ACCURACY else found.samples[measure.title]

    def other(setting: Setting, way: Way) -> Way:
        """Free training by the same schedule, or, where that was not run, by the constant one."""
        same = way._replace(how=against[way.how])
        return same if (setting, same) in samples or same.how != FREE_COSINE else way._replace(how=FREE)

    pairs = [(setting, way, other(setting, way)) for setting, way in samples if way.how in against]
    pairs = [pair for pair in pairs if (pair[0], pair[2]) in samples]
    values = [(samples[setting, way], samples[setting, other]) for setting, way, other in pairs]
    words = verdicts(values, bonferroni, margin, 0.05 / max(len(pairs), 1))
    return [Duel(*pair, word) for pair, word in zip(pairs, words)]


class Target(NamedTuple):
    """Something the method was meant to reach."""

    what: str
    found: str
    reached: str


def targets(found: Tuned[Way]) -> list[Target]:
    """What was wanted, and what the records have of it."""
    rows = []
    deepest, hundred = Setting("mnist", DEEPEST), Setting("mnist", 100)
    kept = (ON_SET, ON_SET_COSINE, ENDS)
    reached = {
        how: float(found.scores[deepest, Way("stiefel", how)].mean())
        for how in (*kept, FREE, FREE_COSINE, FREE_ENDS)
        if (deepest, Way("stiefel", how)) in found.scores
    }
    if on_set := {how: mean for how, mean in reached.items() if how in kept}:
        text = ", ".join(f"{how} {mean:.1f} %" for how, mean in reached.items())
        rows.append(Target("uniform members, 1,000 layers, MNIST: 95 %", text, _yes(max(on_set.values()) >= 95)))
    for scheme, name in SCHEMES.items():
        widths = {how: found.working(hundred, Way(scheme, how)) for how in (*kept, FREE)}
        if any(widths[how] is not None for how in kept):
            text = ", ".join(f"{how} {'none' if width is None else f'× {width:g}'}" for how, width in widths.items())
            what = f"{name}, 100 layers, MNIST: rates that work, × 64"
            rows.append(Target(what, text, _yes(max(widths[how] or 0 for how in kept) >= 64)))
    pairs = product((Setting(dataset, 100) for dataset in IMAGES), SCHEMES)
    return rows + [row for setting, scheme in pairs if (row := _at_best(found, setting, scheme)) is not None]


def _at_best(found: Tuned[Way], setting: Setting, scheme: str) -> Target | None:
    """The best schedule on the set beside the best free one."""
    here = {way.how: values for way, values in found.of(setting).items() if way.scheme == scheme}
    groups = (ON_SET, ON_SET_COSINE, RELEASED, GAIN, ENDS), (FREE, FREE_COSINE, FREE_ENDS)
    ours, free = ({how: values for how, values in here.items() if how in group} for group in groups)
    if not free or not ours:
        return None
    a, b = (max(group, key=lambda how: float(group[how].mean())) for group in (ours, free))
    comparisons = 2 * len(SCHEMES)
    (verdict,) = verdicts(
        [(ours[a], free[b])], lambda p: [min(1.0, comparisons * each) for each in p], MARGIN, 0.05 / comparisons
    )
    text = (
        f"{a} {ours[a].mean():.2f} %, {b} {free[b].mean():.2f} % "
        f"({verdict.word}, {verdict.gain:+.2f}, p = {verdict.p:.2g})"
    )
    what = f"{SCHEMES[scheme]}, {setting}: not worse than free training"
    return Target(what, text, _yes(verdict.word in ("better", "not worse")))


def _yes(reached: bool) -> str:
    return "reached" if reached else "not reached"


def _line(how: str) -> dict[str, Any]:
    return {"linestyle": HOW[how].style, "color": HOW[how].colour, "marker": "o", "markersize": 3, "label": how}


def over_rates(found: Tuned[Way]) -> Figure:
    """Accuracy over the rate on all data: a column for each depth, a row for each set of images and initialization."""
    settings = [setting for setting in found.settings if setting.shots is None and setting.dataset != TABLE]
    depths = sorted({setting.depth for setting in settings})
    rows = list(product(dict.fromkeys(setting.dataset for setting in settings), SCHEMES))
    drawn, axes = plots.figure(len(depths), len(rows), (3.1, 2.4), label="Accuracy over the learning rate")
    for row, (dataset, scheme) in zip(axes, rows):
        for axis, depth in zip(row, depths):
            setting = Setting(dataset, depth)
            for how in HOW:
                if rates := found.tuned.get((setting, Way(scheme, how))):
                    axis.plot(*zip(*sorted(rates.items())), **_line(how))
            axis.set(xscale="log", ylim=(0, 102))
            ticks = sorted({times for (where, _), rates in found.tuned.items() if where == setting for times in rates})
            axis.set_xticks(ticks, [f"{times:g}" for times in ticks])
            axis.set_xticks([], minor=True)
            axis.set_title(f"{setting}\n{SCHEMES[scheme]}", fontsize=9)
        row[0].set_ylabel("test accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("times 0.001/√depth")
    plots.legend(drawn, max(axes.flat, key=lambda axis: len(axis.lines)))
    return drawn


def over_depth(found: Tuned[Way]) -> Figure:
    """Rates that work, the highest over the lowest, over the depth: a panel for each data set and initialization."""
    sets = [data for data in found.data if data.shots is None]
    deep = [data for data in sets if len(found.depths(data)) > 1] or sets[:1]
    panels: list[tuple[Data, str]] = list(product(deep, SCHEMES))
    drawn, axes = plots.figure(len(panels), size=(3.3, 3.1), label="Rates that work, over the depth")
    for axis, (data, scheme) in zip(axes[0], panels):
        depths = found.depths(data)
        for how in HOW:
            points = [
                (setting.depth, found.working(setting, Way(scheme, how)) or 0.5)
                for setting in found.settings
                if setting.data == data and (setting, Way(scheme, how)) in found.tuned
            ]
            if points:
                axis.plot(*zip(*points), **_line(how))
        axis.set(xscale="log", yscale="log", xlabel="depth", ylim=(0.4, 1500))
        axis.set_title(f"{data}, {SCHEMES[scheme]}", fontsize=9)
        axis.set_xticks(depths, [f"{depth:,}" for depth in depths])
        axis.set_xticks([], minor=True)
        axis.set_yticks([0.5, 1, 4, 16, 64, 256, 1024], ["none", "× 1", "× 4", "× 16", "× 64", "× 256", "× 1,024"])
        axis.set_yticks([], minor=True)
    axes[0, 0].set_ylabel("highest rate that works / lowest")
    plots.legend(drawn, max(axes.flat, key=lambda axis: len(axis.lines)))
    return drawn
