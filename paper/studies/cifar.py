"""The study of CIFAR-10: plain convolutional networks beside residual ones, each at its best rate."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from stiefel_init.lab.data import Dataset, load
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.study.rates import best_first, beyond
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import get

from ..experiment import Options, titled
from ..results import Results, write_table
from ..verdicts import interval, verdicts
from .cifar_networks import (
    BATCH,
    GROUPS,
    HE,
    NAMES,
    OURS,
    PLAIN,
    REPVGG,
    RESIDUAL,
    TRIED,
    VGG,
    WIDER,
    Contender,
    signal,
)
from .kit import MISSING, Grid, Setting, Tuned, TunedStudy, grid_of, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA, QUICK = "cifar10-jpeg", "cifar10-tenth"
EPOCHS, LONG, QUICK_EPOCHS = (2, 30), (3, 60), (1, 3)
"""Of the networks that choose a rate, and of those that are compared; deep ones choose twice as long."""
DEEP = 50
DEAD = 10.5
"""Accuracy (%) up to which nothing was learned; guessing reaches 10."""
WORKING = 0.9
"""A rate works if it reaches this share of what the best one does."""


def _grid(depth: int, *contenders: Contender, data: str = DATA) -> tuple[Grid, ...]:
    return (Grid((Setting(data, depth),), contenders),)


_FIRST = (OURS, HE, GROUPS, PLAIN["looks-linear"], BATCH)
_DEFAULT = PLAIN["PyTorch's default"]  # which is dead at 20 layers already
_REST = tuple(each for each in (*PLAIN.values(), *RESIDUAL.values()) if each not in (*_FIRST, _DEFAULT))
_VGG = (VGG["`initialize_(model)`"], VGG["He"])


class Evidence(NamedTuple):
    """What is on record."""

    tuned: Tuned[Contender] | None
    curves: Sequence[Mapping[str, Any]] = ()
    """Of each compared network, its score after each epoch, seconds and memory."""
    signal: Sequence[Mapping[str, Any]] = ()
    """Of each layer before training, how many features are distinct, and how far apart images are."""

    def scores(self, depth: int, contender: Contender) -> np.ndarray | None:
        """Of a contender's networks; None if there are none."""
        found = None if self.tuned is None else self.tuned.scores.get((self.setting(depth), contender))
        return found if found is not None and len(found) else None

    def setting(self, depth: int) -> Setting:
        """The setting with so many layers."""
        return Setting(DATA if self.tuned is None else self.tuned.settings[0].dataset, depth)

    def dead(self, depth: int, contender: Contender) -> float | None:
        """What a contender reached that learned nothing at any rate."""
        reached = {} if self.tuned is None else self.tuned.tuned.get((self.setting(depth), contender), {})
        best = max(reached.values(), default=math.inf)
        return best if best <= DEAD else None

    def text(self, depth: int, contender: Contender) -> str:
        """Its scores, as a table has them."""
        scores = self.scores(depth, contender)
        if scores is None:
            dead = self.dead(depth, contender)
            return MISSING if dead is None else f"{dead:.1f} at any rate"
        return spread(scores)

    def gain(self, depth: int, one: Contender, other: Contender) -> str:
        """By how many points one is better than another, with the 95 % interval; what learned nothing is at chance."""
        a, b = self.scores(depth, one), self.scores(depth, other)
        if a is None or b is None:
            return MISSING
        if min(len(a), len(b)) < 2:
            return f"{a.mean() - b.mean():+.1f}"
        low, high = interval(a, b)
        return f"{a.mean() - b.mean():+.1f} [{low:+.1f}, {high:+.1f}]"


class Cifar(TunedStudy[Contender]):
    """Plain networks on CIFAR-10 beside residual ones."""

    name = "cifar"
    title = "Measured"
    page = "cifar"
    seeds = 5
    files = ("cifar-curves", "cifar-signal")
    order = (DATA, QUICK)
    tuning_seeds = (1000,)
    dead = DEAD
    stages: ClassVar = {
        False: (
            _grid(20, *_FIRST, _DEFAULT), _grid(16, *_VGG), _grid(56, *_FIRST), _grid(20, *_REST),
            _grid(56, *_REST), _grid(20, *TRIED.values()), _grid(11, WIDER), _grid(11, *_VGG),
            _grid(110, OURS, HE, GROUPS), _grid(16, *VGG.values()), _grid(110, PLAIN["looks-linear"], BATCH),
        ),
        True: (_grid(20, OURS, HE, BATCH, data=QUICK), _grid(56, OURS, HE, data=QUICK)),
    }  # fmt: skip
    """The most important first, since a run may end early."""

    def contender(self, cell: Cell) -> Contender:
        """Whose network it is."""
        scheme = next((text for text in _SCHEMES if get(text) == cell.scheme), str(cell.scheme))
        width: Any = OURS.width if cell.dataset == QUICK else cell.width
        return Contender(
            cell.network,
            scheme,
            cell.activation,
            cell.groups,
            width,
            cell.decay,
            cell.dataset == DATA and cell.epochs in LONG,
        )

    def rates(self, contender: Contender, setting: Setting, quick: bool) -> tuple[float, ...]:
        """Times 0.001: around what first looks found best."""
        if quick:
            return (4.0,) if contender.network == "resnet" else (1.0, 2.0)
        lowest = 0.25
        if contender.network in ("resnet", REPVGG):
            lowest = 2.0
        elif contender.groups:
            lowest = 0.5
        elif contender.scheme == "looks-linear":
            lowest = 0.125
        return tuple(lowest * 2**place for place in range(3 if setting.depth > DEEP else 4))

    def cell(self, contender: Contender, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        """A network at `times` 0.001."""
        short, whole = QUICK_EPOCHS if quick else LONG if contender.long else EPOCHS
        short *= 2 if setting.depth > DEEP and not quick else 1
        return Cell(
            setting.dataset, contender.scheme, setting.depth, 8 if quick else contender.width, contender.activation,
            epochs=short if tuning else whole, batch=64 if quick else 256,
            rate=times * 1e-3, precision="float32" if quick else "bfloat16", decay=contender.decay, schedule="cosine",
            network=contender.network, clip=1.0, smoothing=0.1, augment="crop-flip", warmup=0.5,
            groups=contender.groups,
        )  # fmt: skip

    def datasets(self, cells: Sequence[Cell], directory: Path | None) -> dict[str, Dataset]:
        """A tenth of the images, for the quick study."""
        return {QUICK: _tenth(load(DATA, directory=directory))} if any(c.dataset == QUICK for c in cells) else {}

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables, draw the pictures, and note what records in a table do not have."""
        label = self.label(options.quick)
        noted = [
            _curve(self.contender(record.cell), record) for record in records if record.cell.seed >= self.first_seed
        ]
        if fresh := [row for row in noted if row["curve"]]:
            path = options.out / f"{label}-curves.csv"
            before = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []
            new = {_key(row) for row in fresh}
            write_table([*(row for row in before if _key(row) not in new), *fresh], path)
        path = options.out / f"{label}-signal.csv"
        if options.device == "cpu" and not path.exists():  # on a machine with a GPU it would wait
            write_table(signal(load(DATA, directory=options.data), quick=options.quick), path)
        rows = Results(options.out)
        tuned = self.found_in({record.cell: record for record in records}, self.count(options), quick=options.quick)
        evidence = Evidence(tuned, rows.table(f"{label}-curves"), rows.table(f"{label}-signal"))
        for table in self.tables(evidence):
            table.show()
        self.write_pictures(evidence, options)

    def evidence(self, results: Results) -> Any:
        """What is on record, if only that nothing is."""
        tuned = self.found_in(results.records_of(self.name), self.seeds)
        return Evidence(tuned, results.table("cifar-curves"), results.table("cifar-signal"))

    def tables(self, evidence: Evidence) -> list[Table]:
        """Goals, scores, what was tried, rates, costs, and the signal before training."""
        depths = {f"{depth} layers": depth for depth in (20, 56, 110)}
        of_vgg = {f"VGG-{depth}": depth for depth in (11, 16)}
        rows, tried = PLAIN | RESIDUAL, {"`initialize_(model)`, one rate": OURS, **TRIED}
        made = [
            Table("Goals", ["goal", "result", "met?"], [list(goal) for goal in goals(evidence)]),
            grid_of("Test accuracy (%)", rows, depths, lambda each, depth: evidence.text(depth, each)),
            grid_of("VGG without normalization", VGG, of_vgg, lambda each, depth: evidence.text(depth, each)),
            Table(
                "How near can plain come? 20 layers",
                ["", "accuracy (%)", "to `initialize_(model)`", "to residual with batch normalization"],
                [
                    [name, evidence.text(20, each), "" if each == OURS else evidence.gain(20, each, OURS),
                     evidence.gain(20, each, BATCH)]
                    for name, each in tried.items() if evidence.scores(20, each) is not None
                ]
                + [[NAMES[WIDER], evidence.text(11, WIDER), "", ""]] * (evidence.scores(11, WIDER) is not None),
            ),
            grid_of("Best rate (0.001), and the working ones", rows | VGG, depths | of_vgg,
                    lambda each, depth: _rates(evidence, depth, each)),
            grid_of("Seconds and memory of a network", rows, depths, lambda each, depth: _cost(evidence, depth, each)),
            *_signal_tables(evidence.signal),
        ]  # fmt: skip
        return [table for table in made if table.rows]

    def pictures(self, evidence: Evidence) -> dict[str, Figure]:
        """Scores while training, and how far apart images are before it."""
        return {self.name: picture(evidence)} if evidence.curves or evidence.signal else {}

    def _ran(self, tuned: Tuned[Contender]) -> str:
        """How much of the study is on record."""
        asked = {
            (s, c) for stage in self.stages[False] for grid in stage for s in grid.settings for c in grid.contenders
        }
        seeds = sorted({len(scores) for scores in tuned.scores.values()})
        told = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        return f"On record: {len(asked & tuned.scores.keys())} of {len(asked)} contenders, {told} fresh seeds each."

    def section(self, evidence: Evidence) -> list[str]:
        """What to conclude, the picture, the tables."""
        ran = "" if evidence.tuned is None else self._ran(evidence.tuned)
        return [
            *conclusions(evidence),
            "",
            *self.shown(evidence),
            *([ran, ""] if ran else []),
            *titled(self.tables(evidence)),
        ]


_SCHEMES = sorted({each.scheme for each in NAMES})


def _tenth(dataset: Dataset) -> Dataset:
    """Every tenth image, of either part."""
    assert dataset.train_rows is not None
    rows = np.r_[0 : dataset.train_rows : 10, dataset.train_rows : len(dataset.y) : 10]
    return replace(
        dataset, name=QUICK, x=dataset.x[rows], y=dataset.y[rows], train_rows=len(range(0, dataset.train_rows, 10))
    )


def _curve(contender: Contender, record: Record) -> dict[str, Any]:
    """What a table of records does not have of one."""
    scores = " ".join(f"{score:.2f}" for score in record.test_score)
    memory = "" if record.memory is None else f"{record.memory / 2**20:.0f}"
    network = {"depth": record.cell.depth, "quick": record.cell.dataset == QUICK, "seed": record.cell.seed}
    return {**contender._asdict(), **network, "seconds": f"{record.seconds:.1f}", "memory": memory, "curve": scores}


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in (*Contender._fields, "depth", "quick", "seed"))


def _of(evidence: Evidence, depth: int, contender: Contender) -> list[Mapping[str, Any]]:
    """The rows of a contender's networks."""
    wanted = [*map(str, contender), str(depth)]
    return [row for row in evidence.curves if [str(row[name]) for name in (*Contender._fields, "depth")] == wanted]


def _rates(evidence: Evidence, depth: int, contender: Contender) -> str:
    """The best rate, and from where to where others reach nearly as much."""
    tuned, setting = evidence.tuned, evidence.setting(depth)
    reached = {} if tuned is None else tuned.tuned.get((setting, contender), {})
    if not reached or evidence.dead(depth, contender) is not None:
        return MISSING
    works = [times for times, score in reached.items() if score >= WORKING * max(reached.values())]
    best = best_first(reached)[0]
    end = "*" if beyond(reached, best) is not None else ""
    return f"{best:g}{end} ({min(works):g} to {max(works):g})"


def _cost(evidence: Evidence, depth: int, contender: Contender) -> str:
    rows = _of(evidence, depth, contender)
    if not rows:
        return MISSING
    seconds = np.mean([float(row["seconds"]) for row in rows])
    memory = [float(row["memory"]) for row in rows if row["memory"] not in ("", None)]
    return f"{seconds:.0f} s" + (f", {np.mean(memory) / 1024:.2f} GiB" if memory else "")


def _signal_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """At some layers of the deepest network that is on record."""
    if not rows:
        return []
    deepest = max(int(row["depth"]) for row in rows)
    here = [row for row in rows if int(row["depth"]) == deepest]
    names, last = (
        list(dict.fromkeys(str(row["initialization"]) for row in here)),
        max(int(row["layer"]) for row in here),
    )
    shown = sorted({1, *(round(last * share) for share in (0.25, 0.5, 0.75, 1.0))})
    of = {(str(row["initialization"]), int(row["layer"])): row for row in here}
    titles = {"spread": "how far apart images are", "distinct": "distinct features"}
    return [
        Table(
            f"Before training, {deepest} layers: {title}", ["initialization", *(f"layer {layer}" for layer in shown)],
            [[name, *(f"{float(of[name, layer][key]):.3g}" for layer in shown)] for name in names],
        )
        for key, title in titles.items()
    ]  # fmt: skip


def goals(evidence: Evidence) -> list[tuple[str, str, str]]:
    """What was wanted, what came out, and whether it was met."""

    def ahead(depth: int, least: float, contenders: Mapping[str, Contender] = PLAIN) -> tuple[str, str]:
        ours, he = evidence.scores(depth, contenders["`initialize_(model)`"]), evidence.scores(depth, contenders["He"])
        if ours is None or he is None:
            return MISSING, "not measured yet"
        gain = evidence.gain(depth, contenders["`initialize_(model)`"], contenders["He"])
        return gain, "yes" if ours.mean() - he.mean() >= least else "no"

    def of_all(depth: int) -> tuple[str, str]:
        others = {name: each for name, each in PLAIN.items() if each not in (OURS, GROUPS)}
        known = {name: scores for name, each in others.items() if (scores := evidence.scores(depth, each)) is not None}
        ours = evidence.scores(depth, OURS)
        if ours is None or not known:
            return MISSING, "not measured yet"
        best = max(known, key=lambda name: known[name].mean())
        word = verdicts([(ours, known[best])])[0].word
        missing = len(others) - len(known) - sum(evidence.dead(depth, each) is not None for each in others.values())
        told = f"{evidence.gain(depth, OURS, others[best])} to {best}" + (
            f"; {missing} not measured yet" if missing else ""
        )
        return told, "yes" if word == "better" and not missing else "no" if word == "worse" else "not shown"

    def near() -> tuple[str, str]:
        tried = {name: each for name, each in (PLAIN | TRIED).items() if each.network == "cnn" and not each.long}
        known = {name: scores for name, each in tried.items() if (scores := evidence.scores(20, each)) is not None}
        residual = [scores for each in RESIDUAL.values() if (scores := evidence.scores(20, each)) is not None
                    and each.network == "resnet"]  # fmt: skip
        if not known or not residual:
            return MISSING, "not measured yet"
        best, top = (
            max(known, key=lambda name: known[name].mean()),
            max(residual, key=lambda scores: float(scores.mean())),
        )
        gap = float(top.mean() - known[best].mean())
        return f"{gap:.1f} points ({best})", "yes" if gap <= 1 else "2.5 points, yes" if gap <= 2.5 else "no"

    seconds = [float(row["seconds"]) for row in _of(evidence, 20, OURS)]
    minutes = 25 * float(np.mean(seconds)) / 60 if seconds else math.nan
    fast = (f"{minutes:.1f}", "yes" if minutes <= 8 else "no") if seconds else (MISSING, "not measured yet")
    return [
        ("20 layers: 5 points above He", *ahead(20, 5)),
        ("56 layers: 15 points above He", *ahead(56, 15)),
        ("VGG-16: 10 points above He", *ahead(16, 10, VGG)),
        *((f"{depth} layers: ahead of every other plain initialization", *of_all(depth)) for depth in (20, 56)),
        ("plain, 20 layers, within 1.0 point of residual with batch normalization (2.5 is a success)", *near()),
        ("25 networks of 20 layers, minutes of one GPU: at most 8", *fast),
    ]  # fmt: skip


def conclusions(evidence: Evidence) -> list[str]:
    """What a practitioner should do, as far as it is measured."""
    lines = []
    top = {depth: evidence.scores(depth, BATCH) for depth in (20, 56)}
    for depth in (20, 56, 110):
        ours, he = evidence.scores(depth, OURS), evidence.text(depth, HE)
        if ours is None:
            continue
        others = {name: s for name, each in PLAIN.items() if each not in (OURS, GROUPS)
                  and (s := evidence.scores(depth, each)) is not None}  # fmt: skip
        best = max(others, key=lambda name: others[name].mean(), default=None)
        told = f"- **Plain, {depth} layers**: `initialize_(model)` {ours.mean():.1f} %"
        if best is not None:
            told += f", the best other initialization ({best}) {others[best].mean():.1f} %"
        if best != "He" and he != MISSING:
            told += f", He {he.partition(' ')[0]} %"
        if (residual := top.get(depth)) is not None:
            told += f"; a residual network with batch normalization {residual.mean():.1f} %"
        lines += wrapped(told + ".", "  ")
    if not lines:
        return ["Not measured yet: `stiefel-init reproduce cifar --data-dir FOLDER` trains these networks."]
    ours, residual = evidence.scores(20, OURS), top[20]
    if ours is not None and residual is not None:
        gap = float(residual.mean() - ours.mean())
        advice = (
            f"If your network may have skips and normalization, keep them: at 20 layers they are worth {gap:.1f} "
            "points. If it has to be plain, call `initialize_(model)`; the deeper it is, the more that matters."
            if gap > 0
            else "At 20 layers a plain network needs neither skips nor normalization; call `initialize_(model)`."
        )
        lines = [*wrapped(advice), "", *lines]
    return lines


def picture(evidence: Evidence) -> Figure:
    """Test accuracy over the epochs at two depths; and how far apart images are, layer by layer, before training."""
    drawn, axes = plots.figure(3, size=(3.7, 3.2), label="Test accuracy while training, and the signal before it")
    shown = {
        **{name: each for name, each in PLAIN.items() if each != GROUPS},
        "residual, batch normalization, He": BATCH,
    }
    colours = {name: f"C{place}" for place, name in enumerate(shown)}
    seen: dict[str, Any] = {}
    for axis, depth in zip(axes[0], (20, 56)):
        for name, each in shown.items():
            curves = [[float(v) for v in str(row["curve"]).split()] for row in _of(evidence, depth, each)]
            if curves := [curve for curve in curves if len(curve) == max(map(len, curves))]:
                epochs = range(1, len(curves[0]) + 1)
                (seen[name.strip("`")],) = axis.plot(
                    epochs, np.mean(curves, 0), color=colours[name], label=name.strip("`")
                )
        axis.set(title=f"{depth} layers", xlabel="epoch", ylabel="test accuracy (%)")
        if not axis.lines:
            axis.text(0.5, 0.5, "not measured yet", ha="center", transform=axis.transAxes)
            axis.set(xticks=[], yticks=[])
    rows, deepest = evidence.signal, max((int(row["depth"]) for row in evidence.signal), default=0)
    for name in dict.fromkeys(str(row["initialization"]) for row in rows):
        here = [row for row in rows if row["initialization"] == name and int(row["depth"]) == deepest]
        colour = colours.get(name, colours.get(f"`{name}`", "C9"))
        points = [int(row["layer"]) for row in here], [max(float(row["spread"]), 1e-6) for row in here]
        (seen[name],) = axes[0, 2].plot(*points, color=colour, label=name)
    axes[0, 2].set(
        title=f"before training, {deepest} layers", xlabel="layer", ylabel="distance of images", yscale="log"
    )
    drawn.legend(list(seen.values()), list(seen), loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return drawn
