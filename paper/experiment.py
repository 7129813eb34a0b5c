"""`Experiment`: one object in one file for each table, figure and study; and the registry of all of them.

An experiment knows what to run, which records belong to it, and how to present them: tables, pictures, claims, and a
section of a page. `Trained` is made of networks; others override `run` and `evidence`. How to add one: CONTRIBUTING.md.
"""

from __future__ import annotations

import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.data import Dataset, load
from stiefel_init.lab.files import prepare
from stiefel_init.lab.progress import progress
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.cluster import ClusterSpec, reach
from stiefel_init.lab.train.family import DeviceName
from stiefel_init.lab.train.record import Record, environment
from stiefel_init.lab.train.runner import pick_device, run

from .limit import time_limit
from .results import Results, note_environment, recorded, write_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK_NOTE = "This was a quick run, with fewer seeds, depths and epochs than published; its numbers are not comparable."
STOPPED = "Stopped after {:g} minutes; finished networks are kept, rerun to resume."
Verdict = Literal["holds", "holds in part", "does not hold", "not tested"]


class Claim(NamedTuple):
    """A claim, whether the records support it, and why."""

    claim: str
    verdict: Verdict = "not tested"
    evidence: str = "No records."


def held(whole: bool, part: bool = False) -> Verdict:
    """The verdict on a claim that holds as a whole, or in part."""
    return "holds" if whole else "holds in part" if part else "does not hold"


@dataclass(frozen=True)
class Options:
    """How to run an experiment.

    >>> Options(Path("out"), quick=True).device
    'auto'
    """

    out: Path
    seeds: int | None = None
    """Number of seeds; as published if None."""
    quick: bool = False
    """A small version: minutes on a CPU."""
    device: DeviceName = "auto"
    data: Path | None = None
    """Directory of the data sets."""
    stack: int | None = None
    """Networks to train at once; as many as fit in memory if None."""
    on: str = "local"
    """Where to train: `"local"`, `"ray"` or `"ray://HOST:PORT"`."""
    minutes: float | None = None
    """When to stop training; finished networks are kept, and shown."""


def titled(tables: Iterable[Table]) -> list[str]:
    """Tables with their titles above them, as lines of Markdown."""
    lines = []
    for table in tables:
        title = [f"**{table.title[0].upper()}{table.title[1:]}**", ""] if table.title else []
        lines += [*title, *table.markdown(), ""]
    return lines


class Experiment(ABC):
    """A table, a figure or a study; subclass it, or `Trained`, and `register` an instance.

    >>> from paper.registry import experiments
    >>> experiments()["figure2"].label(quick=True)
    'figure2-quick'
    """

    name: ClassVar[str]
    title: ClassVar[str]
    page: ClassVar[str | None] = "results"
    """The page of the docs with its section, if any."""
    listed: ClassVar[bool] = False
    """Whether docs/tables/NAME.csv has its tables, of which the page shows a part."""
    of_paper: ClassVar[bool] = False
    """Whether `reproduce all` runs it."""
    files: ClassVar[tuple[str, ...]] = ()
    """Names of the CSV files that it writes besides records of networks."""

    @abstractmethod
    def run(self, options: Options) -> None:
        """Run it, write its results to `options.out`, and print them."""

    @abstractmethod
    def evidence(self, results: Results) -> Any:
        """Its part of a directory of results, in any form that the methods below take; None if there is nothing."""

    def tables(self, evidence: Any) -> list[Table]:
        """Its results as tables, in the order of the page."""
        return []

    def pictures(self, evidence: Any) -> dict[str, Figure]:
        """Its results as pictures, by file name without suffix."""
        return {}

    def claims(self, evidence: Any) -> list[Claim]:
        """The claims it tests, with verdicts; "not tested" if `evidence` is None."""
        return []

    def section(self, evidence: Any) -> list[str]:
        """Its section of a page, as lines of Markdown."""
        lines = [f"## {self.title}", "", *self.shown(evidence)]
        return lines + titled(self.tables(evidence))

    def shown(self, evidence: Any) -> list[str]:
        """Its pictures, as lines of Markdown."""
        drawn = self.pictures(evidence).items()
        return [line for name, figure in drawn for line in (f"![{figure.get_label()}]({name}.png)", "")]

    def label(self, quick: bool) -> str:
        """The name of its files, marked if they are of a quick run."""
        return f"{self.name}-quick" if quick else self.name

    def present(self, evidence: Any, options: Options) -> None:
        """Print the tables of a run, and draw its pictures."""
        from stiefel_init.lab.report import plots

        for table in self.tables(evidence):
            table.show()
        for name, figure in self.pictures(evidence).items():
            file = name.replace(self.name, self.label(options.quick), 1)
            print(f"wrote {plots.save(figure, options.out / f'{file}.png')}")
        if options.quick:
            print(QUICK_NOTE)


class Measured(Experiment):
    """An experiment that keeps a table of its own, measured anew in each run."""

    numbers: ClassVar[tuple[str, ...]] = ()
    """Columns that have a number in every row."""

    @abstractmethod
    def measure(self, options: Options, device: torch.device, advance: Callable[[float], None]) -> tuple[Any, int]:
        """What is found, and the number of networks that it took; `advance` is told which share is done."""

    def rows(self, evidence: Any) -> Sequence[Mapping[str, Any]]:
        """What is found as a table."""
        return evidence

    def evidence(self, results: Results) -> Any:
        """The rows on record.

        Raises:
            StiefelError: if the table is damaged.
        """
        rows = results.table(self.name)
        if not all(isinstance(row.get(name), int | float) for row in rows for name in self.numbers):
            raise self.damaged(results)
        return rows or None

    def damaged(self, results: Results) -> StiefelError:
        """What to say of a table that is not its own."""
        place = results.place / f"{self.name}.csv"
        return StiefelError(f"{place} is damaged; restore the file, or measure again.")

    def run(self, options: Options) -> None:
        """Measure, write the table and how it was made, and show it."""
        device, label, start = pick_device(options.device), self.label(options.quick), time.perf_counter()
        with progress(1.0, label) as advance:
            evidence, networks = self.measure(options, device, advance)
        seconds, out = time.perf_counter() - start, prepare(options.out)
        print(f"wrote {write_table(self.rows(evidence), out / f'{label}.csv')}")
        note_environment(out, label, environment(device, "stacked"), seconds, networks)
        self.present(evidence, options)


class Trained(Experiment):
    """An experiment made of trained networks.

    >>> from paper.registry import experiments
    >>> table1 = experiments()["table1"]
    >>> isinstance(table1, Trained) and len(table1.cells(seeds=1))
    120
    """

    seeds: ClassVar[int]
    """Number of seeds, as published."""
    quick_seeds: ClassVar[int] = 1
    optional: ClassVar[tuple[str, ...]] = ()
    """Data sets that it can do without, where nobody has them."""

    @abstractmethod
    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """Its networks, with so many seeds; those of the quick version if asked.

        If networks depend on the results of others, this is called again with the records so far.
        """

    def count(self, options: Options) -> int:
        """How many seeds to run."""
        return options.seeds or (self.quick_seeds if options.quick else self.seeds)

    def datasets(self, cells: Sequence[Cell], directory: Path | None) -> dict[str, Dataset]:
        """Data sets of its own, which `load` does not know, by the names that the cells use."""
        return {}

    def trainable(self, options: Options, seeds: int, done: Mapping[Cell, Record]) -> list[Cell]:
        """Its networks that are not done, as far as there are data; of an optional set without, one line says so."""
        left = (cell for cell in self.cells(seeds, quick=options.quick, records=done) if cell not in done)
        return [cell for cell in left if cell.dataset not in self.optional or _has(cell.dataset, options.data)]

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """The records that belong to it, of the published number of seeds, or of more if every setting has more."""
        seeds = self.seeds
        cells = self.cells(seeds, quick=quick, records=records)
        while records.keys() >= set(self.cells(seeds + 1, quick=quick, records=records)) > set(cells):
            seeds += 1
            cells = self.cells(seeds, quick=quick, records=records)
        return [records[cell] for cell in dict.fromkeys(cells) if cell in records]

    def evidence(self, results: Results) -> list[Record] | None:
        """Its records."""
        return self.select(results.records_of(self.label(quick=False))) or None

    def run(self, options: Options) -> None:
        """Train its networks until the time is up, print its tables and draw its pictures."""
        if (place := ClusterSpec.of(options.on)) is not None:
            reach(place)  # before any data are loaded
        seeds = self.count(options)
        done: dict[Cell, Record] = {}
        known = recorded(options.out, partial(print, file=sys.stderr))  # once, however many rounds
        with time_limit(options.minutes) as limit:
            while left := self.trainable(options, seeds, done):
                if not known.keys() >= set(left):
                    # All that is left, finished or not: a stack that was killed goes on if it has the same networks.
                    own, label = self.datasets(left, options.data), self.label(options.quick)
                    known |= {record.cell: record for record in train(left, own, options, label, known)}
                done |= {cell: known[cell] for cell in left}
        if limit.reached:
            print(STOPPED.format(options.minutes))
            known = recorded(options.out, lambda text: None, touch=False)
            done = {record.cell: record for record in self.select(known, quick=options.quick)}
        self.show(list(done.values()), options)

    def show(self, records: list[Record], options: Options) -> None:
        """Present what `run` trained."""
        self.present(records, options)


@cache
def _has(name: str, directory: Path | None) -> bool:
    try:
        load(name, directory=directory)
    except StiefelError as error:
        print(f"Left out, its data is not available: {name}. {error}", file=sys.stderr)
        return False
    return True


def train(
    cells: Sequence[Cell], own: Mapping[str, Dataset], options: Options, title: str, known: Mapping[Cell, Record],
) -> list[Record]:  # fmt: skip
    """Their records, known or trained; some data sets are an experiment's own."""
    return run(
        cells, out=options.out, device=options.device, datasets=own, directory=options.data, most=options.stack,
        on=options.on, title=title, known=known,
    )  # fmt: skip


_REGISTRY: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment available by name to `stiefel-init reproduce`; returns it.

    Raises:
        StiefelError: if its name is not a word (it becomes a file name), or is taken.
    """
    name = getattr(experiment, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise StiefelError(f"name={name!r} cannot name an experiment; use letters, digits, '_' and '-'.")
    if name.endswith("-quick"):
        raise StiefelError(f"name={name!r} is for quick runs; choose another.")
    known, kind = type(_REGISTRY.get(name, experiment)), type(experiment)
    taken = (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__)
    if taken or any(name in other.files for other in _REGISTRY.values() if other.name != name):
        raise StiefelError(f"name={name!r} is taken; choose another.")
    _REGISTRY[name] = experiment
    return experiment


def registered() -> dict[str, Experiment]:
    """All experiments by name, in the order they were registered."""
    return dict(_REGISTRY)
