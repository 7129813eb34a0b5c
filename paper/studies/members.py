"""The study of members: which member of the set trains best, and how deep."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.significance import greater_p
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import Lee, Orthogonal, Permutation, Scheme, Stiefel, get
from stiefel_init.theory import ACTIVATIONS

from ..experiment import Options, Trained
from ..results import Results, write_table
from ..tables.protocol import IMAGES, SHOTS, TABULAR_WIDTH
from .kit import Search, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES = "stiefel", "permutation", "identity", "rotation 0.03", "rotation 0.1", "rotation 1", "lee", "he"
MEMBERS: tuple[Scheme, ...] = (*map(get, _NAMES), Orthogonal(), Orthogonal(math.sqrt(2)))
"""What is compared; the first six are members of the set."""
OF_THE_SET, CANDIDATES = MEMBERS[:6], MEMBERS[1:5]
UNIFORM, RECOMMENDED = Stiefel(), Permutation()
DEPTHS = (10, 30, 100, 300, 1000)
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the paper's 0.001/√depth."""
QUICK_EPOCHS = 20
FEW_SHOT_SEEDS = 50
"""Few shots vary much, and are cheap; those of the uniform member are table 3's."""
TUNING_SEED = 1000
"""Seed of the networks that find each member's best rate; no compared network uses it."""
DEEPEST = {3_000: 10, 10_000: 5}
"""Epochs of the deepest networks."""
CURVES = "members-curves"
MARGIN = 0.5
"""Points of accuracy; what is worse by less is not worse."""


def kind(cell: Cell) -> str:
    """What was compared, by name."""
    if cell.scheme == UNIFORM:
        return "uniform"
    return "orthogonal, gain √2" if cell.scheme == MEMBERS[-1] else str(cell.scheme)


KINDS = tuple(kind(Cell("", scheme)) for scheme in MEMBERS)


def epochs_of(depth: int) -> int:
    """Epochs of the comparison: forty, for a thousand layers fifteen."""
    return 40 if depth < 1000 else 15


FRESH = {100: 100} | {depth: epochs_of(depth) for depth in (300, 1000)}
"""Depths and epochs of the final comparison of the recommended member with the uniform one."""


def cell(dataset: str, scheme: Scheme, depth: int, times: float = 1.0, *, seed: int = 0, **options: Any) -> Cell:
    """A network at `times` the paper's rate."""
    return _setting(dataset, scheme, depth, times, **options).with_seed(seed)


@cache
def _setting(dataset: str, scheme: Scheme, depth: int, times: float, **options: Any) -> Cell:
    usual = {"epochs": epochs_of(depth), "rate": times * 1e-3 / math.sqrt(depth)}
    return Cell(dataset, scheme, depth, **usual | options)


class Networks:
    """The networks of the study, by the question they answer; a quick study is on digits."""

    def __init__(self, seeds: int, quick: bool) -> None:
        self.seeds, self.quick = seeds, quick
        self.sets = ("digits",) if quick else IMAGES
        self.short: dict[str, Any] = {"epochs": QUICK_EPOCHS} if quick else {}

    def usual(self) -> list[Cell]:
        """Every member at every depth, at 0.001/√depth."""
        grid = product(range(self.seeds), self.sets, MEMBERS, DEPTHS)
        return [cell(dataset, scheme, depth, seed=seed, **self.short) for seed, dataset, scheme, depth in grid]

    def fixed(self) -> list[Cell]:
        """Lee's at the paper's rate for it, 0.001 at every depth."""
        grid = product(range(self.seeds), self.sets, DEPTHS)
        return [cell(data, Lee(), depth, math.sqrt(depth), seed=seed, **self.short) for seed, data, depth in grid]

    def rates(self) -> list[Cell]:
        """Networks that find each member's best rate: with a seed of their own, in a third of the epochs.

        A quick study only shows what rates do, at a hundred layers, with the seeds of the comparison.
        """
        if self.quick:
            grid = product(range(self.seeds), MEMBERS, RATES)
            return [cell("digits", scheme, 100, times, seed=seed, **self.short) for seed, scheme, times in grid]
        return [
            cell(dataset, scheme, depth, times, seed=TUNING_SEED, epochs=epochs_of(depth) // 3)
            for dataset, scheme, depth, times in product(IMAGES, MEMBERS, DEPTHS, RATES)
        ]

    def best(self, records: Mapping[Cell, Record]) -> list[Cell]:
        """Each member at the rate whose tuning network scored best; of equal ones, the largest."""
        return Search(
            tuple(self.rates()), lambda tuning: tuning.scheme,
            lambda scheme, setting, times: cell(setting.dataset, scheme, setting.depth, times),
            first=0, ties_to_largest=True,
        ).compared(self.seeds, records)  # fmt: skip

    def few(self) -> list[Cell]:
        """A few images of each class, a hundred layers."""
        return [
            cell(dataset, scheme, 100, seed=seed, shots=shots, batch=None, epochs=100)
            for dataset, scheme, shots in product(self.sets, MEMBERS, SHOTS)
            for seed in range(self.seeds if self.quick or scheme not in OF_THE_SET else FEW_SHOT_SEEDS)
        ]

    def activations(self) -> list[Cell]:
        """Other activations, a hundred layers."""
        epochs = QUICK_EPOCHS if self.quick else 15
        return [
            cell(dataset, scheme, 100, seed=seed, activation=activation, epochs=epochs)
            for seed, dataset, scheme, activation in product(range(self.seeds), self.sets, MEMBERS, ACTIVATIONS)
        ]

    def tabular(self) -> list[Cell]:
        """Tabular data, a hundred narrow layers."""
        sets = ("wine", "cancer") if self.quick else tuple(TABULAR_WIDTH)
        return [
            cell(dataset, scheme, 100, seed=seed, width=TABULAR_WIDTH[dataset], alpha=alpha, epochs=100)
            for seed, scheme, dataset, alpha in product(range(self.seeds), MEMBERS, sets, (0.0, 2.0))
        ]

    def long(self) -> list[Cell]:
        """The paper's hundred epochs, twice as many seeds."""
        grid = product(range(2 * self.seeds), IMAGES, OF_THE_SET)
        return [cell(dataset, scheme, 100, seed=seed, epochs=100) for seed, dataset, scheme in grid]

    def fresh(self) -> list[Cell]:
        """Seeds that were not used to choose the recommended member."""
        return [
            cell(dataset, scheme, depth, seed=seed, epochs=epochs)
            for seed, dataset in product(range(2 * self.seeds, 4 * self.seeds), IMAGES)
            for scheme, (depth, epochs) in product((UNIFORM, RECOMMENDED), FRESH.items())
        ]

    def thousand(self) -> list[Cell]:
        """A thousand layers for forty epochs."""
        grid = product(range(self.seeds), IMAGES, (get("rotation 0.1"), RECOMMENDED))
        return [cell(dataset, scheme, 1000, seed=seed, epochs=40) for seed, dataset, scheme in grid]

    def deepest(self) -> list[Cell]:
        """Deeper than the comparison goes, on MNIST, one network each."""
        grid = product(DEEPEST, MEMBERS[1:4], (1.0, 4.0))
        return [cell("mnist", scheme, depth, times, epochs=DEEPEST[depth]) for depth, scheme, times in grid]

    def everything(self, records: Mapping[Cell, Record]) -> list[Cell]:
        """All of the study; a quick one is without the long and the deep networks."""
        parts = [self.usual(), self.fixed(), self.rates(), self.few(), self.activations(), self.tabular()]
        if not self.quick:
            parts += [self.long(), self.fresh(), self.thousand(), self.deepest(), self.best(records)]
        return list(dict.fromkeys(cell for part in parts for cell in part))


class MemberRecords(NamedTuple):
    """The records of the study, full or quick or both, the number of seeds, and the learning curves."""

    records: Mapping[Cell, Record]
    seeds: int
    curves: Sequence[Mapping[str, Any]] = ()

    @property
    def networks(self) -> Networks:
        """Those of the full study."""
        return Networks(self.seeds, False)

    def of(self, wanted: Sequence[Cell], dataset: str | None = None) -> list[Record]:
        """The records of those cells that have one, or of those on one data set."""
        cells = (cell for cell in dict.fromkeys(wanted) if dataset in (None, cell.dataset))
        return [self.records[cell] for cell in cells if cell in self.records]

    def part(self, make: Callable[[Networks], list[Cell]], dataset: str | None = None) -> list[Record]:
        """The records of a part of the study, of both its forms."""
        return self.of([cell for quick in (False, True) for cell in make(Networks(self.seeds, quick))], dataset)

    def at_best(self, dataset: str | None = None) -> list[Record]:
        """Each member at its best rate."""
        return self.of(self.networks.best(self.records), dataset)


class Members(Trained):
    """Members of the set by name, and other initializations, at equal rates and at their best."""

    name = "members"
    title = "Which member of the set?"
    page = "members"
    seeds = 5
    files = (CURVES,)

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """All of the study; the networks at their best rates follow from those that found them."""
        return Networks(seeds, quick).everything(records or {})

    def evidence(self, results: Results) -> Any:
        """The records of both forms of the study, and the learning curves."""
        found = MemberRecords(results.records_of(self.name), self.seeds, results.table(CURVES))
        return found if found.part(Networks.usual) else None

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables, keep the learning curves, and draw the pictures."""
        found = MemberRecords({record.cell: record for record in records}, self.count(options))
        if rows := curves(found):
            path = options.out / f"{CURVES.replace(self.name, self.label(options.quick))}.csv"
            print(f"wrote {write_table(rows, path)}")
        found = found._replace(curves=rows)
        for table in self.tables(found):
            table.show()
        self.write_pictures(found, options)

    def tables(self, evidence: MemberRecords) -> list[Table]:
        """The claims, what each data set says, and each member against the uniform one."""
        tables = [_claims(evidence)] if evidence.of(evidence.networks.deepest()) else []
        for dataset in (*IMAGES, "digits"):
            tables += _of_dataset(evidence, dataset)
        tables += _others(evidence)
        return tables + [table for best in (False, True) if (table := _duels(evidence, best)).rows]

    def pictures(self, evidence: MemberRecords) -> dict[str, Any]:
        """Accuracy over depth and by epoch."""
        drawn = {}
        for dataset in (*IMAGES, "digits"):
            usual = evidence.part(Networks.usual, dataset)
            if len({record.cell.depth for record in usual}) > 1:
                drawn[f"members-{dataset}"] = over_depth(usual)
        if evidence.curves:
            drawn |= {"members-learning": learning(evidence.curves), CURVES: deep(evidence.curves)}
        return drawn

    def section(self, evidence: MemberRecords) -> list[str]:
        """Pictures and tables, without a heading: the page has one."""
        return super().section(evidence)[2:]


def _of_dataset(found: MemberRecords, dataset: str) -> list[Table]:
    """By depth, at the best rate, by rate, few shots, and by activation."""
    usual = found.part(Networks.usual, dataset)
    if not usual:
        return []
    epochs = " or ".join(map(str, sorted({record.cell.epochs for record in usual}, reverse=True)))
    fixed = found.part(Networks.fixed, dataset)
    tables = [_table(f"{dataset}, {epochs} epochs at 0.001/√depth; by depth", usual, lambda c: c.depth, fixed)]
    best = found.at_best(dataset)
    if {(r.cell.scheme, r.cell.depth) for r in best} >= {(r.cell.scheme, r.cell.depth) for r in usual}:
        tables.append(_table(f"{dataset}, each at its best rate of five; by depth", best, lambda c: c.depth))
    for depth in (100, 300, 1000):
        tried = [record for record in found.part(Networks.rates, dataset) if record.cell.depth == depth]
        if len({record.cell.lr_multiplier for record in tried}) > 1:
            title = f"{dataset}, depth {depth}, {tried[0].cell.epochs} epochs; by rate, in units of 0.001/√depth"
            tables.append(_table(title, tried, lambda c: c.lr_multiplier))
    if few := found.part(Networks.few, dataset):
        tables.append(_table(f"{dataset}, depth 100; by images per class", few, lambda c: c.shots))
    shaped = found.part(Networks.activations, dataset)
    if any(record.cell.activation != "relu" for record in shaped):
        title = f"{dataset}, depth 100, {shaped[0].cell.epochs} epochs; by activation"
        tables.append(_table(title, shaped, lambda c: c.activation))
    return tables


def _others(found: MemberRecords) -> list[Table]:
    """The long trainings, the deepest networks, and tabular data."""
    tables = []
    long = found.of(found.networks.long())
    if any(record.cell.scheme != UNIFORM for record in long):
        tables.append(_table("depth 100, the paper's 100 epochs; by data set", long, lambda c: c.dataset))
    if deep := found.of(found.networks.deepest()):
        title = "mnist, the deepest; by depth, epochs and rate in units of 0.001/√depth"
        tables.append(_table(title, deep, lambda c: f"{c.depth:,}, {c.epochs} epochs, × {c.lr_multiplier:g}"))
    tabular = found.part(Networks.tabular)
    for metric in dict.fromkeys(record.metric for record in tabular):
        scored = [record for record in tabular if record.metric == metric]
        title = f"tabular data, depth 100, {metric.label.removeprefix('test ').removesuffix(' (%)')}; by set and α"
        tables.append(_table(title, scored, lambda c: f"{c.dataset}, α {c.alpha:g}"))
    return tables


def _table(title: str, records: Sequence[Record], column: Callable[[Cell], Any], extra: Sequence[Record] = ()) -> Table:
    """Means and standard deviations: a row for each member, a column for each value of `column`."""
    columns = list(dict.fromkeys(column(record.cell) for record in records))
    if all(isinstance(value, int | float) for value in columns):
        columns.sort()
    elif set(columns) <= set(ACTIVATIONS):
        columns.sort(key=ACTIVATIONS.index)
    scores: dict[tuple[str, Any], list[float]] = {}
    for record in records:
        scores.setdefault((kind(record.cell), column(record.cell)), []).append(record.score)
    for record in extra:
        scores.setdefault(("lee at 0.001", column(record.cell)), []).append(record.score)
    names = [name for name in (*KINDS, "lee at 0.001") if any(key[0] == name for key in scores)]
    rows = [[name, *(spread(scores.get((name, value))) for value in columns)] for name in names]
    return Table(title, ["", *map(str, columns)], rows)


def _scores(records: Sequence[Record], scheme: object) -> np.ndarray:
    return np.array([record.score for record in records if record.cell.scheme == scheme])


def _duels(found: MemberRecords, best: bool) -> Table:
    """Each member against the uniform one: difference of means, and p of Welch's tests both ways.

    At 0.001/√depth, few shots too; or at the best rate of each.
    """
    rows = []
    usual = found.at_best() if best else found.part(Networks.usual) + found.part(Networks.few)
    settings = sorted({(r.cell.dataset, r.cell.depth, r.cell.shots or 0) for r in usual if r.cell.depth >= 100})
    for setting in settings:
        here = [r for r in usual if (r.cell.dataset, r.cell.depth, r.cell.shots or 0) == setting]
        if any(len(_scores(here, scheme)) < 2 for scheme in (UNIFORM, *CANDIDATES)):
            continue
        dataset, depth, shots = setting
        where = f"{dataset}, depth {depth}" + (f", {shots}-shot" if shots else "")
        b = _scores(here, UNIFORM)
        for scheme in CANDIDATES:
            a = _scores(here, scheme)
            numbers = f"{a.mean() - b.mean():+.2f}", f"{greater_p(a, b):.3f}", f"{greater_p(b, a):.3f}"
            rows.append([where, str(scheme), *numbers])
    title = "against the uniform member, " + ("each at its best rate" if best else "at 0.001/√depth")
    return Table(title, ["setting", "member", "difference", "p, better", "p, worse"], rows)


def _claims(found: MemberRecords) -> Table:
    """The study's claims, each with its verdict and the numbers behind it."""
    rows = []
    fresh = found.of(found.networks.fresh())
    for (depth, epochs), dataset in product(FRESH.items(), IMAGES):
        chosen = [record for record in fresh if (record.cell.dataset, record.cell.depth) == (dataset, depth)]
        claim = f"{RECOMMENDED} is {'not worse' if depth == 100 else 'better'} than uniform"
        rows.append(_against_uniform(f"{claim}: {dataset}, depth {depth}, {epochs} epochs", chosen, worse=depth == 100))
    for dataset, least in zip(IMAGES, (96.0, 86.0)):
        chosen = [record for record in found.of(found.networks.thousand()) if record.cell.dataset == dataset]
        for scheme in sorted(dict.fromkeys(record.cell.scheme for record in chosen), key=MEMBERS.index):
            values = _scores(chosen, scheme)
            reached = int((values >= least).sum())
            verdict = "open" if len(values) < 5 else "holds" if reached == len(values) else "fails"
            text = f"{reached} of {len(values)} seeds; lowest {values.min():.2f}, mean {values.mean():.2f}"
            rows.append([f"a thousand layers, {scheme}: {dataset} at {least:g} % within 40 epochs", verdict, text])
    deep = found.of(found.networks.deepest())
    for depth in dict.fromkeys(record.cell.depth for record in deep):
        top = max((record for record in deep if record.cell.depth == depth), key=lambda record: record.score)
        text = f"best {top.score:.2f} % after {top.cell.epochs} epochs, {kind(top.cell)} at "
        text += f"{top.cell.lr_multiplier:g} × 0.001/√depth"
        rows.append([f"{depth:,} layers reach 90 % on MNIST", "holds" if top.score >= 90 else "fails", text])
    good = [r for c, r in found.records.items() if c.dataset == "mnist" and c.scheme in OF_THE_SET and r.score >= 95]
    if good:
        top = max(good, key=lambda record: (record.cell.depth, record.score))
        text = f"{top.cell.depth:,} layers, {top.score:.2f} % after {top.cell.epochs} epochs, {kind(top.cell)}"
        rows.append(["the deepest plain network to reach 95 % on MNIST", "holds", text])
    return Table("claims", ["claim", "verdict", "evidence"], rows)


def _against_uniform(claim: str, records: Sequence[Record], *, worse: bool) -> list[str]:
    """The recommended member against the uniform one: shown to be better, or shown not to be `worse` by the margin."""
    a, b = _scores(records, RECOMMENDED), _scores(records, UNIFORM)
    if min(len(a), len(b)) < 2:
        return [claim, "open", f"{len(a)} and {len(b)} seeds"]
    p = greater_p(a + MARGIN if worse else a, b)
    numbers = f"{a.mean():.2f} ± {a.std(ddof=1):.2f} ({len(a)}) against {b.mean():.2f} ± {b.std(ddof=1):.2f} ({len(b)})"
    small = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    text = f"worse by less than {MARGIN:g}, {small}" if worse else small
    return [claim, "holds" if p < 0.05 else "not shown", f"{numbers}; {text}"]


def curves(found: MemberRecords) -> list[dict[str, object]]:
    """Test accuracy by epoch: the comparison at 0.001/√depth from a hundred layers on, and the deepest networks."""
    networks = found.networks
    wanted = [cell for cell in networks.usual() if cell.depth >= 100]
    deep = [*networks.fixed(), *networks.best(found.records), *networks.thousand(), *networks.deepest()]
    wanted += [cell for cell in deep if cell.depth >= 1000]
    return [
        {
            "dataset": record.cell.dataset, "member": kind(record.cell), "depth": record.cell.depth,
            "times": record.cell.lr_multiplier, "epochs": record.cell.epochs, "seed": record.cell.seed, "epoch": epoch,
            "score": score,
        }
        for record in found.of(wanted)
        for epoch, score in zip(record.tested, record.test_score)
    ]  # fmt: skip


def over_depth(records: Sequence[Record]) -> Figure:
    """Score against depth for each kind, and the ten best points once more.

    Bands are one standard deviation, as far as there are such scores.
    """
    drawn, axes = plots.figure(2, size=(4.6, 4.0), label=f"Accuracy over depth, {records[0].cell.dataset}")
    best = 0.0
    for number, name in enumerate(KINDS):
        chosen = [record for record in records if kind(record.cell) == name]
        if not chosen:
            continue
        depths = sorted({record.cell.depth for record in chosen})
        scores = [np.array([record.score for record in chosen if record.cell.depth == d]) for d in depths]
        mean, std = np.array([s.mean() for s in scores]), np.array([s.std() for s in scores])
        best = max(best, float(mean.max()))
        style = "-" if chosen[0].cell.scheme in OF_THE_SET else "--"
        for axis in axes[0]:
            axis.plot(depths, mean, style, color=f"C{number}", label=name, linewidth=1.6, marker="o", markersize=3)
            low, high = (np.clip(edge, 0, 100) for edge in (mean - std, mean + std))
            axis.fill_between(depths, low, high, color=f"C{number}", alpha=0.12, linewidth=0)
    depths = sorted({record.cell.depth for record in records})
    for axis, limits in zip(axes[0], ((0, 102), (best - 10, best + 1))):
        axis.set(xlabel="depth", xscale="log", ylim=limits)
        axis.set_xticks(depths, [f"{d:,}" for d in depths])
        axis.set_xticks([], minor=True)
    axes[0, 0].set_ylabel("test accuracy (%)")
    plots.legend(drawn, axes[0, 0])
    return drawn


def learning(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Test accuracy by epoch in the comparison of members: a row for each data set, a column for each depth.

    Bands from the lowest seed to the highest. Curves more than twenty points behind are not shown.
    """
    usual = [r for r in rows if r["times"] == 1 and r["depth"] in DEPTHS]
    usual = [r for r in usual if r["epochs"] == epochs_of(r["depth"])]
    datasets, depths = list(dict.fromkeys(r["dataset"] for r in usual)), sorted({r["depth"] for r in usual})
    drawn, axes = plots.figure(
        len(depths), len(datasets), size=(4.2, 3.2), label="Accuracy by epoch, by data set and depth"
    )
    for line, dataset in zip(axes, datasets):
        for axis, depth in zip(line, depths):
            chosen = [r for r in usual if (r["dataset"], r["depth"]) == (dataset, depth)]
            _by_epoch(axis, chosen)
            top = max(r["score"] for r in chosen)
            axis.set(title=f"{dataset}, {depth:,} layers", xlabel="epoch", ylim=(top - 20, top + 1))
        line[0].set_ylabel("test accuracy (%)")
    plots.legend(drawn, axes[0, 0])
    return drawn


def deep(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Test accuracy by epoch of networks of a thousand layers and more, a panel for each data set and depth.

    Of runs of different length, the longest that five networks or more had. Bands from the lowest seed to the
    highest; other rates than 0.001/√depth are dashed.
    """
    rows = [row for row in rows if row["depth"] >= 1000]
    panels = list(dict.fromkeys((row["depth"], row["dataset"]) for row in rows))
    panels.sort(key=lambda panel: panel[0])
    from matplotlib.lines import Line2D

    drawn, axes = plots.figure(len(panels), size=(4.4, 3.8), label="Accuracy by epoch, a thousand layers and more")
    others: set[float] = set()
    for axis, (depth, dataset) in zip(axes[0], panels):
        chosen = [row for row in rows if (row["depth"], row["dataset"]) == (depth, dataset)]
        trained = Counter(row["epochs"] for row in chosen if row["epoch"] == row["epochs"])
        longest = max(trained, key=lambda epochs: (trained[epochs] >= 5, epochs))
        chosen = [row for row in chosen if row["epochs"] == longest]
        _by_epoch(axis, chosen)
        others |= {row["times"] for row in chosen} - {1}
        axis.set(xlabel="epoch", title=f"{dataset}, {depth:,} layers", ylim=(0, 102))
    axes[0, 0].set_ylabel("test accuracy (%)")
    handles = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels())}
    for times in sorted(others):
        handles[f"{times:g} × the rate"] = Line2D([], [], color="black", linestyle="--")
    drawn.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
    return drawn


def _by_epoch(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The mean of the seeds by epoch, and a band from the lowest to the highest, for each member and rate."""
    for member, times in sorted({(r["member"], r["times"]) for r in rows}, key=lambda p: (KINDS.index(p[0]), p[1])):
        chosen = [r for r in rows if (r["member"], r["times"]) == (member, times)]
        epochs = sorted({r["epoch"] for r in chosen})
        scores = [np.array([r["score"] for r in chosen if r["epoch"] == epoch], float) for epoch in epochs]
        colour, label = f"C{KINDS.index(member)}", member if times == 1 else None
        style = "-" if times == 1 else "--"
        axis.plot(epochs, [s.mean() for s in scores], style, color=colour, label=label, linewidth=1.6)
        low, high = [s.min() for s in scores], [s.max() for s in scores]
        axis.fill_between(epochs, low, high, color=colour, alpha=0.12, linewidth=0)
    axis.locator_params(axis="x", integer=True)
