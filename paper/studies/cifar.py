"""The study of CIFAR-10: plain convolutional networks beside residual ones, each at its best rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch

from stiefel_init.lab.data import Dataset, load
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.convolutional import Blueprint
from stiefel_init.lab.train.record import Record
from stiefel_init.recipe.search import best_first, beyond
from stiefel_init.torch import diagnose, initialize_

from ..experiment import Options, titled
from ..results import Results, write_table
from ..verdicts import apart
from .kit import MISSING, Grid, Setting, Tuned, TunedStudy, grid_of, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Contender(NamedTuple):
    """A network and how it starts and is trained."""

    network: str
    scheme: str
    activation: str = "relu"
    groups: bool = False
    width: int = 32
    decay: float = 0.02
    long: bool = False
    """Whether it is trained twice as long."""


def _cnn(scheme: str, *options: Any, **more: Any) -> Contender:
    return Contender("cnn", scheme, *options, **more)


OURS, HE, GROUPS, DEFAULT = _cnn("recipe"), _cnn("he"), _cnn("recipe", groups=True), _cnn("torch")
BATCH = Contender("resnet", "he")
PLAIN = {
    "`initialize_(model)`": OURS, "the same, `param_groups`": GROUPS, "He": HE, "looks-linear": _cnn("looks-linear"),
    "PyTorch's default": DEFAULT, "orthogonal at the centre": _cnn(f"delta-orthogonal {math.sqrt(2)}"),
    "LSUV": _cnn("lsuv"), "TAT, its activation": _cnn("tat", "tat"),
}  # fmt: skip
"""Plain networks by their initialization."""
RESIDUAL = {
    "residual, batch normalization, He": BATCH,
    "residual, batch normalization, `initialize_`": Contender("resnet", "recipe"),
    "residual, batch normalization, default": Contender("resnet", "torch"),
    "residual alone, He": Contender("resnet-nobn", "he"),
    "residual alone, `initialize_`": Contender("resnet-nobn", "recipe"),
}
WIDE = 48
"""Channels with which 11 layers cost about as much as 20 of 32."""
TRIED = {
    "`param_groups`": GROUPS,
    "TAT's activation": _cnn("recipe", "tat"),
    "TAT's activation, `param_groups`": _cnn("recipe", "tat", groups=True),
    "a slope of 0.01 below zero": _cnn("recipe", "leaky_relu"),
    "weight decay 0.1": _cnn("recipe", decay=0.1),
    "weight decay 0.5": _cnn("recipe", decay=0.5),
    "twice as long": _cnn("recipe", long=True),
}
"""What might bring a plain network nearer to a residual one; at 20 layers."""
WIDER = _cnn("recipe", width=WIDE)
VGG = {name: each._replace(network="vgg", width=64) for name, each in PLAIN.items()}
NAMES = {each: name for name, each in (PLAIN | RESIDUAL | TRIED | VGG).items()} | {
    WIDER: f"11 layers of {WIDE} channels"
}

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
_REST = tuple(each for each in (*PLAIN.values(), *RESIDUAL.values()) if each not in (*_FIRST, DEFAULT))
_VGG = (VGG["`initialize_(model)`"], VGG["He"])


class Evidence(NamedTuple):
    """What is on record."""

    tuned: Tuned[Contender] | None
    signal: Sequence[Mapping[str, Any]] = ()
    """Of each layer before training, how many features are distinct, and how far apart images are."""

    def _at(self, found: Mapping[Any, Any], depth: int, contender: Contender | None) -> Any:
        return next((of for (where, each), of in found.items() if (where.depth, each) == (depth, contender)), None)

    def scores(self, depth: int, contender: Contender) -> np.ndarray | None:
        """Of a contender's networks; None if there are none."""
        return None if self.tuned is None else self._at(self.tuned.scores, depth, contender)

    def reached(self, depth: int, contender: Contender | None) -> Mapping[float, float]:
        """What the networks reached that chose its rate."""
        return (None if self.tuned is None else self._at(self.tuned.tuned, depth, contender)) or {}

    def text(self, depth: int, contender: Contender) -> str:
        """Its scores as a table has them, or what the short networks reached, marked."""
        scores, short = self.scores(depth, contender), max(self.reached(depth, contender).values(), default=math.nan)
        if scores is not None or math.isnan(short):
            return spread(scores)
        return f"{short:.1f} {'at any rate' if short <= DEAD else '†'}"

    def rates(self, depth: int, contender: Contender | None) -> str:
        reached = self.reached(depth, contender)
        if max(reached.values(), default=0.0) <= DEAD:
            return MISSING
        works = [times for times, score in reached.items() if score >= WORKING * max(reached.values())]
        best = best_first(reached)[0]
        end = "*" if beyond(reached, best) is not None else ""
        return f"{best:g}{end} ({min(works):g} to {max(works):g})"

    def gap(self, depth: int, one: Contender, other: Contender) -> str:
        """By how many points one is better than another, with the 95 % interval."""
        a, b = self.scores(depth, one), self.scores(depth, other)
        return MISSING if a is None or b is None or one == other else apart(a, b)


class Cifar(TunedStudy[Contender]):
    """Plain networks on CIFAR-10 beside residual ones."""

    name = "cifar"
    title = "Measured"
    page = "cifar"
    seeds = 5
    files = ("cifar-signal",)
    order = (DATA, QUICK)
    tuning_seeds = (1000,)
    dead = DEAD
    stages: ClassVar = {
        False: (
            _grid(20, *_FIRST, DEFAULT), _grid(16, *_VGG), _grid(56, *_FIRST), _grid(20, *_REST),
            _grid(56, *_REST), _grid(20, *TRIED.values()), _grid(11, WIDER), _grid(11, *_VGG),
            _grid(110, OURS, HE, GROUPS), _grid(16, *VGG.values()), _grid(110, PLAIN["looks-linear"], BATCH),
        ),
        True: (_grid(20, OURS, HE, BATCH, data=QUICK), _grid(56, OURS, HE, data=QUICK)),
    }  # fmt: skip
    """The most important first, since a run may end early."""

    def rates(self, contender: Contender, setting: Setting, quick: bool) -> tuple[float, ...]:
        if quick:
            return (4.0,) if contender.network == "resnet" else (1.0, 2.0)
        lowest = 2.0 if contender.network == "resnet" else 0.5 if contender.groups else 0.25
        lowest = 0.125 if contender.scheme == "looks-linear" else lowest
        return tuple(lowest * 2**place for place in range(3 if setting.depth > DEEP else 4))

    def cell(self, contender: Contender, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
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
        if not any(cell.dataset == QUICK for cell in cells):
            return {}
        whole = load(DATA, directory=directory)
        assert whole.train_rows is not None
        rows = np.r_[0 : whole.train_rows : 10, whole.train_rows : len(whole.y) : 10]
        train_rows = len(range(0, whole.train_rows, 10))
        return {QUICK: replace(whole, name=QUICK, x=whole.x[rows], y=whole.y[rows], train_rows=train_rows)}

    def show(self, records: list[Record], options: Options) -> None:
        label = f"{self.label(options.quick)}-signal"
        path = options.out / f"{label}.csv"
        if options.device == "cpu" and not path.exists():  # on a machine with a GPU it would wait
            write_table(signal(load(DATA, directory=options.data), quick=options.quick), path)
        tuned = self.found_in({record.cell: record for record in records}, self.count(options), quick=options.quick)
        self.present(Evidence(tuned, Results(options.out).table(label)), options)

    def evidence(self, results: Results) -> Any:
        return Evidence(self.found_in(results.records_of(self.name), self.seeds), results.table("cifar-signal"))

    def tables(self, evidence: Evidence) -> list[Table]:
        depths = {f"{depth} layers": depth for depth in (20, 56, 110)}
        of_vgg = {f"VGG-{depth}": depth for depth in (11, 16)}
        rows, tried = PLAIN | RESIDUAL, {"`initialize_(model)`, one rate": OURS, **TRIED}
        columns = ["", "accuracy (%)", "to `initialize_(model)`", "to residual with batch normalization"]
        near = [
            [name, evidence.text(20, each), evidence.gap(20, each, OURS), evidence.gap(20, each, BATCH)]
            for name, each in tried.items() if evidence.scores(20, each) is not None
        ]  # fmt: skip
        if evidence.scores(11, WIDER) is not None:
            near.append([NAMES[WIDER], evidence.text(11, WIDER), MISSING, MISSING])
        made = [
            grid_of("Test accuracy (%)", rows, depths, lambda each, depth: evidence.text(depth, each)),
            grid_of("VGG without normalization", VGG, of_vgg, lambda each, depth: evidence.text(depth, each)),
            Table("How near can plain come? 20 layers", columns, near),
            grid_of("Best rate (0.001), and the working ones", {name: name for name in rows}, depths | of_vgg,
                    lambda name, depth: evidence.rates(depth, (VGG if depth in of_vgg.values() else rows).get(name))),
            *_signal_tables(evidence.signal),
        ]  # fmt: skip
        return [table for table in made if table.rows]

    def pictures(self, evidence: Evidence) -> dict[str, Figure]:
        return {self.name: picture(evidence.signal)} if evidence.signal else {}

    def section(self, evidence: Evidence) -> list[str]:
        lines = [*conclusions(evidence), "", *self.shown(evidence)]
        if evidence.tuned is not None:
            asked = {key for search in self.searches(False) for key in search.tried}
            seeds = sorted({len(scores) for scores in evidence.tuned.scores.values()})
            told = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
            have = len(asked & evidence.tuned.scores.keys())
            lines += [
                f"On record: {have} of {len(asked)} contenders, fresh seeds each: {told}. †: not trained to its end;",
                "the best of the short networks that choose a rate, of 2 epochs, deep ones of 4.", "",
            ]  # fmt: skip
        return lines + titled(self.tables(evidence))


def _layers(rows: Sequence[Mapping[str, Any]]) -> tuple[int, dict[str, list[Mapping[str, Any]]]]:
    """The depth of the deepest networks that are on record, and their layers by initialization."""
    deepest, found = max(row["depth"] for row in rows), dict[str, list[Mapping[str, Any]]]()
    for row in rows:
        if row["depth"] == deepest:
            found.setdefault(row["initialization"], []).append(row)
    return deepest, found


def _signal_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """At some layers of the deepest networks."""
    if not rows:
        return []
    deepest, of = _layers(rows)
    last = len(next(iter(of.values())))
    shown = sorted({1, *(round(last * share) for share in (0.25, 0.5, 0.75, 1.0))})
    titles = {"spread": "how far apart images are", "distinct": "distinct features"}
    return [
        Table(
            f"Before training, {deepest} layers: {title}", ["initialization", *(f"layer {layer}" for layer in shown)],
            [[name, *(f"{float(layers[at - 1][key]):.3g}" for at in shown)] for name, layers in of.items()],
        )
        for key, title in titles.items()
    ]  # fmt: skip


def signal(dataset: Dataset, *, quick: bool = False) -> list[dict[str, Any]]:
    """Of each layer of plain networks before training: how many units are distinct, how far apart images are."""
    assert dataset.train_rows is not None
    assert dataset.image is not None
    some = slice(0, dataset.train_rows, dataset.train_rows // 60)
    images = torch.from_numpy(dataset.x[some]).float().unflatten(1, dataset.image) / dataset.scale
    images = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)
    targets, rows = torch.from_numpy(dataset.y[some]), list[dict[str, Any]]()
    for depth in (20,) if quick else (20, 56):
        for name, each in PLAIN.items():
            if each.groups or (quick and each not in (OURS, HE)):
                continue
            width = 8 if quick else each.width
            shape = dataset.features, 10, dataset.image, dataset.name
            model = Blueprint("cnn", depth, width, each.activation, *shape).build()
            initialize_(model, each.scheme, seed=0, inputs=images if each.scheme in ("lsuv", "tat") else None)
            for place, layer in enumerate(diagnose(model, images, targets).layers[:-1], 1):
                told = {"distinct": layer.distinct or 0.0, "spread": layer.spread, "gradient": layer.gradient or 0.0}
                short = {key: f"{value:.4g}" for key, value in told.items()}
                rows.append({"initialization": name.strip("`"), "depth": depth, "layer": place, **short})
    return rows


def conclusions(evidence: Evidence) -> list[str]:
    """What a practitioner should do, as far as it is measured."""
    lines, (ours, grouped) = [], list(PLAIN)[:2]
    for depth in (20, 56, 110):
        named = {name: scores.mean() for name, each in (PLAIN | {BATCHED: BATCH}).items()
                 if (scores := evidence.scores(depth, each)) is not None}  # fmt: skip
        others = {name: score for name, score in named.items() if name not in (ours, grouped, BATCHED)}
        best = [max(others, key=lambda name: others[name])] if others else []
        shown = dict.fromkeys([ours, grouped, *best, "He", BATCHED])
        told = ", ".join(f"{name} {named[name]:.1f} %" for name in shown if name in named)
        if ours in named:
            lines += wrapped(f"- **Plain, {depth} layers**: {told}.", "  ")
    if not lines:
        return ["Not measured yet: `stiefel-init reproduce cifar --data-dir FOLDER` trains these networks."]
    plain, residual = evidence.scores(20, OURS), evidence.scores(20, BATCH)
    if plain is not None and residual is not None:
        grouped_too = evidence.scores(20, GROUPS)
        gap = float(residual.mean() - max(scores.mean() for scores in (plain, grouped_too) if scores is not None))
        advice = (
            f"If your network may have skips and normalization, keep them: at 20 layers they are worth {gap:.1f} "
            "points. If it has to be plain, call `initialize_(model)` and `param_groups`; the deeper it is, the more "
            "that matters."
            if gap > 0
            else "At 20 layers a plain network needs neither skips nor normalization; call `initialize_(model)`."
        )
        lines = [*wrapped(advice), "", *lines]
    return lines


BATCHED = "residual, batch normalization, He"


def picture(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """How far apart images are, layer by layer, before training."""
    drawn, axes = plots.figure(1, size=(6.4, 3.4), label="How far apart images are before training")
    deepest, of = _layers(rows)
    for name, layers in of.items():
        axes[0, 0].plot(
            [int(row["layer"]) for row in layers], [max(float(row["spread"]), 1e-6) for row in layers], label=name
        )
    axes[0, 0].set(title=f"{deepest} layers", xlabel="layer", ylabel="distance of images", yscale="log")
    plots.legend(drawn, axes[0, 0])
    return drawn
