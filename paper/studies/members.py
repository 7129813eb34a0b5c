"""The study of members: which member of the set trains best, and how deep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.theory import ACTIVATIONS

from ..experiment import Options, Trained
from ..results import Results, write_table
from ..tables.protocol import IMAGES
from ..tables.statistics import greater_p
from . import member_cells as cells
from .member_cells import FRESH, KINDS, MEMBERS, OF_THE_SET, RECOMMENDED, UNIFORM, kind

CANDIDATES = MEMBERS[1:5]
CURVES = "members-curves"
MARGIN = 0.5
"""Points of accuracy; what is worse by less is not worse."""


class Found(NamedTuple):
    """The records of the study, full or quick or both, the number of seeds, and the learning curves."""

    records: Mapping[Cell, Record]
    seeds: int
    curves: Sequence[Mapping[str, Any]] = ()

    def of(self, wanted: Sequence[Cell]) -> list[Record]:
        """The records of those cells that have one."""
        return [self.records[cell] for cell in dict.fromkeys(wanted) if cell in self.records]

    def part(self, make: Callable[[int, bool], list[Cell]], dataset: str | None = None) -> list[Record]:
        """The records of a part of the study, of both its forms."""
        records = self.of([cell for quick in (False, True) for cell in make(self.seeds, quick)])
        return [record for record in records if dataset in (None, record.cell.dataset)]

    def at_best(self, dataset: str | None = None) -> list[Record]:
        """Each member at its best rate."""
        records = self.of(cells.best(self.seeds, self.records))
        return [record for record in records if dataset in (None, record.cell.dataset)]


class Members(Trained):
    """Members of the set by name, and other initializations, at equal rates and at their best."""

    name = "members"
    title = "Which member of the set?"
    page = "members"
    seeds = 5
    files = (CURVES,)

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """All of the study; the networks at their best rates follow from those that found them."""
        return cells.everything(seeds, quick, records or {})

    def evidence(self, results: Results) -> Any:
        """The records of both forms of the study, and the learning curves."""
        found = Found(results.records_of(self.name), self.seeds, results.table(CURVES))
        return found if found.part(cells.usual) else None

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables, keep the learning curves, and draw the pictures."""
        by_cell = {record.cell: record for record in records}
        found = Found(by_cell, self.count(options))
        if rows := curves(found):
            path = options.out / f"{CURVES.replace(self.name, self.label(options.quick))}.csv"
            print(f"wrote {write_table(rows, path)}")
        found = found._replace(curves=rows)
        for table in self.tables(found):
            table.show()
        self.write_pictures(found, options)

    def tables(self, evidence: Found) -> list[Table]:
        """The claims, what each data set says, and each member against the uniform one."""
        tables = [_claims(evidence)] if evidence.of(cells.deepest()) else []
        for dataset in (*IMAGES, "digits"):
            tables += _of_dataset(evidence, dataset)
        tables += _others(evidence)
        return tables + [table for best in (False, True) if (table := _duels(evidence, best)).rows]

    def pictures(self, evidence: Found) -> dict[str, Any]:
        """Accuracy over depth and by epoch."""
        from . import member_pictures as pictures

        drawn = {}
        for dataset in (*IMAGES, "digits"):
            usual = evidence.part(cells.usual, dataset)
            if len({record.cell.depth for record in usual}) > 1:
                drawn[f"members-{dataset}"] = pictures.over_depth(usual)
        if evidence.curves:
            drawn["members-learning"] = pictures.learning(evidence.curves)
            drawn["members-curves"] = pictures.deep(evidence.curves)
        return drawn

    def section(self, evidence: Found) -> list[str]:
        """Pictures and tables, without a heading: the page has one."""
        return super().section(evidence)[2:]


def _of_dataset(found: Found, dataset: str) -> list[Table]:
    """By depth, at the best rate, by rate, few shots, and by activation."""
    usual = found.part(cells.usual, dataset)
    if not usual:
        return []
    epochs = " or ".join(map(str, sorted({record.cell.epochs for record in usual}, reverse=True)))
    fixed = found.part(cells.fixed, dataset)
    tables = [_table(f"{dataset}, {epochs} epochs at 0.001/√depth; by depth", usual, lambda c: c.depth, fixed)]
    best = found.at_best(dataset)
    if {(r.cell.scheme, r.cell.depth) for r in best} >= {(r.cell.scheme, r.cell.depth) for r in usual}:
        tables.append(_table(f"{dataset}, each at its best rate of five; by depth", best, lambda c: c.depth))
    for depth in (100, 300, 1000):
        tried = [record for record in found.part(cells.rates, dataset) if record.cell.depth == depth]
        if len({record.cell.lr_multiplier for record in tried}) > 1:
            title = f"{dataset}, depth {depth}, {tried[0].cell.epochs} epochs; by rate, in units of 0.001/√depth"
            tables.append(_table(title, tried, lambda c: c.lr_multiplier))
    if few := found.part(cells.few, dataset):
        tables.append(_table(f"{dataset}, depth 100; by images per class", few, lambda c: c.shots))
    shaped = found.part(cells.activations, dataset)
    if any(record.cell.activation != "relu" for record in shaped):
        title = f"{dataset}, depth 100, {shaped[0].cell.epochs} epochs; by activation"
        tables.append(_table(title, shaped, lambda c: c.activation))
    return tables


def _others(found: Found) -> list[Table]:
    """The long trainings, the deepest networks, and tabular data."""
    tables = []
    long = found.of(cells.long(found.seeds))
    if any(record.cell.scheme != UNIFORM for record in long):
        tables.append(_table("depth 100, the paper's 100 epochs; by data set", long, lambda c: c.dataset))
    if deep := found.of(cells.deepest()):
        title = "mnist, the deepest; by depth, epochs and rate in units of 0.001/√depth"
        tables.append(_table(title, deep, lambda c: f"{c.depth:,}, {c.epochs} epochs, × {c.lr_multiplier:g}"))
    tabular = found.part(cells.tabular)
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
    rows = [[name, *(_mean(scores.get((name, value), [])) for value in columns)] for name in names]
    return Table(title, ["", *map(str, columns)], rows)


def _mean(scores: Sequence[float]) -> str:
    if len(scores) > 1:
        return f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}"
    return f"{scores[0]:.1f}" if scores else "—"


def _scores(records: Sequence[Record], scheme: object) -> np.ndarray:
    return np.array([record.score for record in records if record.cell.scheme == scheme])


def _duels(found: Found, best: bool) -> Table:
    """Each member against the uniform one: difference of means, and p of Welch's tests both ways.

    At 0.001/√depth, few shots too; or at the best rate of each.
    """
    rows = []
    usual = found.at_best() if best else found.part(cells.usual) + found.part(cells.few)
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


def _claims(found: Found) -> Table:
    """The study's claims, each with its verdict and the numbers behind it."""
    rows = []
    fresh = found.of(cells.fresh(found.seeds))
    for (depth, epochs), dataset in product(FRESH.items(), IMAGES):
        chosen = [record for record in fresh if (record.cell.dataset, record.cell.depth) == (dataset, depth)]
        claim = f"{RECOMMENDED} is {'not worse' if depth == 100 else 'better'} than uniform"
        rows.append(_against_uniform(f"{claim}: {dataset}, depth {depth}, {epochs} epochs", chosen, worse=depth == 100))
    for dataset, least in zip(IMAGES, (96.0, 86.0)):
        chosen = [record for record in found.of(cells.thousand(found.seeds)) if record.cell.dataset == dataset]
        for scheme in sorted(dict.fromkeys(record.cell.scheme for record in chosen), key=MEMBERS.index):
            values = _scores(chosen, scheme)
            reached = int((values >= least).sum())
            verdict = "open" if len(values) < 5 else "holds" if reached == len(values) else "fails"
            text = f"{reached} of {len(values)} seeds; lowest {values.min():.2f}, mean {values.mean():.2f}"
            rows.append([f"a thousand layers, {scheme}: {dataset} at {least:g} % within 40 epochs", verdict, text])
    deep = found.of(cells.deepest())
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


def curves(found: Found) -> list[dict[str, object]]:
    """Test accuracy by epoch: the comparison at 0.001/√depth from a hundred layers on, and the deepest networks."""
    seeds = found.seeds
    wanted = [cell for cell in cells.usual(seeds, False) if cell.depth >= 100]
    deep = [*cells.fixed(seeds, False), *cells.best(seeds, found.records), *cells.thousand(seeds), *cells.deepest()]
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
