"""The study of members: which member of the set trains best, and how deep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import Lee, Orthogonal, Permutation, Scheme, Stiefel, get
from stiefel_init.theory import ACTIVATIONS

from ..experiment import Options, Trained, titled
from ..results import Results
from ..tables.images import at_places, banded
from ..tables.protocol import IMAGES, SHOTS
from ..verdicts import greater_p, verdicts
from .kit import MISSING, WORKS, Grid, Setting, TunedStudy, grid_of, spread

if TYPE_CHECKING:
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
MARGIN = 0.5
"""Points of accuracy; what is worse by less is not worse."""


def kind(cell: Cell) -> str:
    """What was compared, by name."""
    return {UNIFORM: "uniform", MEMBERS[-1]: "orthogonal, gain √2"}.get(cell.scheme, str(cell.scheme))


_BLUE, _ORANGE, _GREY = "#0072B2", "#B35900", "#6E7781"
SHOWN: dict[str, dict[str, Any]] = {
    "uniform": {"color": _ORANGE},
    "permutation": {"color": _BLUE},
    "identity": {"color": _BLUE, "linestyle": ":"},
    "rotation 0.03": {"color": _BLUE, "linestyle": "--"},
    "he": {"color": _GREY},
    "orthogonal": {"color": _GREY, "linestyle": "--"},
}
"""Of the kinds in the picture: members near the identity, the uniform one, and others."""
KINDS = tuple(kind(Cell("", scheme)) for scheme in MEMBERS)


def epochs_of(depth: int) -> int:
    """Epochs of the comparison: forty, for a thousand layers fifteen."""
    return 40 if depth < 1000 else 15


FRESH = {100: 100} | {depth: epochs_of(depth) for depth in (300, 1000)}
"""Depths and epochs of the final comparison of the recommended member with the uniform one."""


@cache
def cell(dataset: str, scheme: Scheme, depth: int, times: float = 1.0, **options: Any) -> Cell:
    """A network at `times` the paper's rate."""
    usual = {"epochs": epochs_of(depth), "rate": times * 1e-3 / math.sqrt(depth)}
    return Cell(dataset, scheme, depth, **usual | options)


class AtBest(TunedStudy[Scheme]):
    """Each member at the rate whose tuning network scored best; of equal ones, the largest."""

    stages: ClassVar = {
        False: ((Grid(tuple(Setting(data, depth) for depth, data in product(DEPTHS, IMAGES)), MEMBERS),),)
    }
    tuning_seeds, first_seed, ties_to_largest = (TUNING_SEED,), 0, True

    def rates(self, contender: Scheme, setting: Setting, quick: bool) -> tuple[float, ...]:
        return RATES

    def cell(self, contender: Scheme, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        epochs = epochs_of(setting.depth) // (3 if tuning else 1)
        return cell(setting.dataset, contender, setting.depth, times, epochs=epochs)


class Networks:
    """The networks of the study, by the question they answer, and the records of them; a quick study is on digits."""

    def __init__(self, seeds: int, quick: bool, records: Mapping[Cell, Record] | None = None) -> None:
        self.seeds, self.quick, self.records = seeds, quick, records or {}
        self.sets = ("digits",) if quick else IMAGES
        self.short: dict[str, Any] = {"epochs": QUICK_EPOCHS} if quick else {}

    def _cells(
        self, schemes: Sequence[Scheme] = MEMBERS, depths: Sequence[int] = (100,), times: Sequence[float] = (1.0,), *,
        seeds: Sequence[int] = (), sets: Sequence[str] = (), **options: Any,
    ) -> list[Cell]:  # fmt: skip
        grid = product(seeds or range(self.seeds), sets or self.sets, schemes, depths, times)
        return [cell(data, scheme, depth, rate, **options).with_seed(seed) for seed, data, scheme, depth, rate in grid]

    def usual(self) -> list[Cell]:
        """Every member at every depth, at 0.001/√depth."""
        return self._cells(depths=DEPTHS, **self.short)

    def fixed(self) -> list[Cell]:
        """Lee's at the paper's rate for it, 0.001 at every depth."""
        return [c for d in DEPTHS for c in self._cells((Lee(),), (d,), (math.sqrt(d),), **self.short)]

    def rates(self) -> list[Cell]:
        """Networks that find each member's best rate: with a seed of their own, in a third of the epochs.

        A quick study only shows what rates do, at a hundred layers, with the seeds of the comparison.
        """
        if self.quick:
            return self._cells(times=RATES, **self.short)
        (search,) = AtBest().searches(False)
        return search.tuning

    def best(self) -> list[Cell]:
        """Each member at the rate whose tuning network scored best; of equal ones, the largest."""
        (search,) = AtBest().searches(False)
        return search.compared(self.seeds, self.records)

    def few(self) -> list[Cell]:
        """A few images of each class, a hundred layers."""
        seeds = self.seeds if self.quick else FEW_SHOT_SEEDS
        groups = (OF_THE_SET, range(seeds)), (MEMBERS[len(OF_THE_SET) :], range(self.seeds))
        few: dict[str, Any] = {"batch": None, "epochs": 100}
        return [c for g, s in groups for shots in SHOTS for c in self._cells(g, seeds=s, shots=shots, **few)]

    def activations(self) -> list[Cell]:
        """Other activations, a hundred layers."""
        epochs = QUICK_EPOCHS if self.quick else 15
        return [c for name in ACTIVATIONS for c in self._cells(activation=name, epochs=epochs)]

    def fresh(self) -> list[Cell]:
        """Seeds that were not used to choose the recommended member."""
        two, seeds = (UNIFORM, RECOMMENDED), range(2 * self.seeds, 4 * self.seeds)
        return [c for d, epochs in FRESH.items() for c in self._cells(two, (d,), seeds=seeds, epochs=epochs)]

    def deepest(self) -> list[Cell]:
        """Deeper than the comparison goes, on MNIST, one network each."""
        one: dict[str, Any] = {"sets": ("mnist",), "seeds": (0,)}
        near, times = MEMBERS[1:4], (1.0, 4.0)
        return [c for d, epochs in DEEPEST.items() for c in self._cells(near, (d,), times, epochs=epochs, **one)]

    def everything(self) -> list[Cell]:
        """All of the study; a quick one is without the deep networks."""
        parts = [self.usual(), self.fixed(), self.rates(), self.few(), self.activations()]
        parts += [] if self.quick else [self.fresh(), self.deepest(), self.best()]
        return list(dict.fromkeys(cell for part in parts for cell in part))

    def of(self, wanted: Sequence[Cell], dataset: str | None = None) -> list[Record]:
        """The records of those cells that have one, or of those on one data set."""
        cells = (cell for cell in dict.fromkeys(wanted) if dataset in (None, cell.dataset))
        return [self.records[cell] for cell in cells if cell in self.records]

    def at_best(self, dataset: str | None = None) -> list[Record]:
        """Each member at its best rate."""
        return self.of(self.best(), dataset)


class Members(Trained):
    """Members of the set by name, and other initializations, at equal rates and at their best."""

    name = "members"
    title = "Which member of the set?"
    page = "members"
    seeds = 5

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        return Networks(seeds, quick, records).everything()

    def evidence(self, results: Results) -> Any:
        found = Networks(self.seeds, False, results.records_of(self.name))
        return found if found.of(found.usual()) else None

    def show(self, records: list[Record], options: Options) -> None:
        known = {record.cell: record for record in records}
        self.present(Networks(self.count(options), options.quick, known), options)

    def tables(self, evidence: Networks) -> list[Table]:
        claims = () if evidence.quick else (_claims,)
        return [table for of in (*claims, _at_best, _working, _against_uniform) if (table := of(evidence)).rows]

    def pictures(self, evidence: Networks) -> dict[str, Any]:
        usual = {dataset: evidence.of(evidence.usual(), dataset) for dataset in evidence.sets}
        return {f"members-{dataset}": over_depth(records) for dataset, records in usual.items() if records}

    def section(self, evidence: Networks) -> list[str]:
        return titled(self.tables(evidence))


Key = tuple[str, str]


def _of(records: Iterable[Record], value: Callable[[Cell], Any]) -> dict[Key, dict[Any, float]]:
    """Scores by member and setting, of a hundred layers and more: in each, by a value of the networks."""
    found: dict[Key, dict[Any, float]] = {}
    for record in records:
        if (cell := record.cell).depth >= 100:
            other = "" if cell.activation == "relu" else f", {cell.activation}"
            where = f"{Setting(cell.dataset, cell.depth, cell.shots)}{other}"
            found.setdefault((kind(cell), where), {})[value(cell)] = record.score
    return found


def _samples(records: Iterable[Record]) -> dict[Key, np.ndarray]:
    """The same as samples."""
    return {key: np.array([*scores.values()]) for key, scores in _of(records, lambda cell: cell.seed).items()}


def _grid(title: str, values: Mapping[Key, Any], text: Callable[[Any], str]) -> Table:
    """A row for each member, a column for each setting."""
    names, columns = {name: name for name, _ in values}, {where: where for _, where in values}
    return grid_of(title, names, columns, lambda *key: text(values[key]) if key in values else MISSING)


def _at_best(found: Networks) -> Table:
    """Each at its best rate, and Lee's at the paper's; a quick study has all at one rate."""
    usual, at = (found.of(found.usual()), "0.001/√depth") if found.quick else (found.at_best(), "its best rate")
    fixed = {("lee at 0.001", where): scores for (_, where), scores in _samples(found.of(found.fixed())).items()}
    return _grid(f"test accuracy (%), each at {at}", _samples(usual) | fixed, spread)


def _working(found: Networks) -> Table:
    """The highest rate at which each learns nearly as well as any at any rate."""
    rates = _of(found.of(found.rates()), lambda cell: cell.lr_multiplier)
    top = {where: max(max(of.values()) for (_, at), of in rates.items() if at == where) for _, where in rates}
    works = {key: [times for times, score in of.items() if score >= WORKS * top[key[1]]] for key, of in rates.items()}
    title = f"highest rate that works ({WORKS:.0%} of the best score), times 0.001/√depth"
    return _grid(title, works, lambda times: f"{max(times):g}" if times else "none")


def _against_uniform(found: Networks) -> Table:
    """Each near member against the uniform one, all at 0.001/√depth: differences of means."""
    shaped = [record for record in found.of(found.activations()) if record.cell.activation != "relu"]
    samples = _samples([*found.of(found.usual()), *found.of(found.few()), *shaped])
    pairs = {
        (name, where): (each, samples["uniform", where])
        for name, where in product(map(str, CANDIDATES), dict.fromkeys(where for _, where in samples))
        if (each := samples.get((name, where))) is not None and ("uniform", where) in samples
    }
    told = dict(zip(pairs, verdicts(list(pairs.values()), list)))

    def text(where: str, name: str) -> str:
        if (verdict := told.get((name, where))) is None or verdict.word == "open":
            return MISSING
        difference = f"{verdict.gain:+.1f}"
        return {"better": f"**{difference}**", "worse": f"{difference} †"}.get(verdict.word, difference)

    chance = f"{0.05 * len(pairs):.0f} of {len(pairs)} by chance"
    title = f"points above the uniform member at 0.001/√depth; bold: better, †: worse (Welch, p < 0.05: {chance})"
    return grid_of(title, {where: where for _, where in pairs}, {name: name for name, _ in pairs}, text)


def _claims(found: Networks) -> Table:
    """The study's claims, each with its verdict and the numbers behind it."""
    rows = []
    fresh = found.of(found.fresh())
    for (depth, epochs), dataset in product(FRESH.items(), IMAGES):
        chosen = [record for record in fresh if (record.cell.dataset, record.cell.depth) == (dataset, depth)]
        claim = f"{RECOMMENDED} is {'not worse' if depth == 100 else 'better'} than uniform"
        rows.append(_duel(f"{claim}: {dataset}, depth {depth}, {epochs} epochs", chosen, worse=depth == 100))
    deep = found.of(found.deepest())
    for depth in dict.fromkeys(record.cell.depth for record in deep):
        top = max((record for record in deep if record.cell.depth == depth), key=lambda record: record.score)
        text = f"best {top.score:.2f} % after {top.cell.epochs} epochs, {kind(top.cell)} at "
        text += f"{top.cell.lr_multiplier:g} × 0.001/√depth"
        rows.append([f"{depth:,} layers reach 90 % on MNIST", "holds" if top.score >= 90 else "fails", text])
    return Table("claims", ["claim", "verdict", "evidence"], rows)


def _duel(claim: str, records: Sequence[Record], *, worse: bool) -> list[str]:
    """The recommended member against the uniform one: shown to be better, or shown not to be `worse` by the margin."""
    a, b = (np.array([r.score for r in records if r.cell.scheme == each]) for each in (RECOMMENDED, UNIFORM))
    if min(len(a), len(b)) < 2:
        return [claim, "open", f"{len(a)} and {len(b)} seeds"]
    p = greater_p(a + MARGIN if worse else a, b)
    numbers = " against ".join(f"{x.mean():.2f} ± {x.std(ddof=1):.2f} ({len(x)})" for x in (a, b))
    small = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    text = f"worse by less than {MARGIN:g}, {small}" if worse else small
    return [claim, "holds" if p < 0.05 else "not shown", f"{numbers}; {text}"]


def over_depth(records: Sequence[Record]) -> Figure:
    """Score against depth for some kinds, and the ten best points once more."""
    drawn, axes = plots.column(2, label=f"Accuracy over depth, {records[0].cell.dataset}", height=3.4)
    best, depths = 0.0, sorted({record.cell.depth for record in records})
    for name, look in SHOWN.items():
        chosen = [record for record in records if kind(record.cell) == name]
        for axis in axes:
            means = banded(axis, chosen, 0.12, label=name, linewidth=1.8, **look)
            best = max(best, *means, 0.0)
    for axis, limits in zip(axes, ((0, 102), (best - 10, best + 1))):
        axis.set(ylim=limits)
        at_places(axis, depths, "depth")
    return drawn
