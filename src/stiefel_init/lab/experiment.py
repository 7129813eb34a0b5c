"""`Experiment`: one object in one file for each table, figure and study; and the registry of all of them.

An experiment knows what to run, which records are its own, and what they say: tables, pictures, claims, and a section
of a page. `Trained` is one made of networks; any other overrides `run` and `evidence`. How to add one: CONTRIBUTING.md.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch

from .._errors import StiefelError
from .files import prepare
from .report.tables import Table
from .results import Results, note_environment, write_table
from .train.cell import Cell
from .train.record import Record, environment
from .train.runner import DeviceName, run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK_NOTE = "A quick run: fewer seeds, depths and epochs than published, so its numbers are not comparable."
Verdict = Literal["holds", "holds in part", "does not hold", "not tested"]


class Claim(NamedTuple):
    """Something that was said, what the records say of it, and why."""

    claim: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Options:
    """How to run an experiment."""

    out: Path
    seeds: int | None = None
    """Seeds, or repeats; as published if None."""
    quick: bool = False
    """A small version: minutes on a CPU."""
    device: DeviceName = "auto"
    data: Path | None = None
    """Where the data sets lie."""
    stack: int | None = None
    """Networks to train at once; as many as memory allows if None."""


class Experiment(ABC):
    """A table, a figure or a study."""

    name: ClassVar[str]
    title: ClassVar[str]
    page: ClassVar[str | None] = "results"
    """The page of the docs that has its section; None for none."""
    of_paper: ClassVar[bool] = False
    """Whether `reproduce all` runs it."""
    files: ClassVar[tuple[str, ...]] = ()
    """The tables that it writes beside records of networks, by the names of their CSV files."""

    @abstractmethod
    def run(self, options: Options) -> None:
        """Run it, keep its results in `options.out`, and print what they say."""

    @abstractmethod
    def evidence(self, results: Results) -> Any:
        """What a directory of results has of it; None if nothing."""

    def tables(self, evidence: Any) -> list[Table]:
        """What it found, as tables."""
        return []

    def pictures(self, evidence: Any) -> dict[str, Figure]:
        """What it found, as pictures, by the names of their files without suffix."""
        return {}

    def claims(self, evidence: Any) -> list[Claim]:
        """What it was to show, with verdicts; without evidence, that they were not tested."""
        return []

    def section(self, evidence: Any) -> list[str]:
        """Its section of a page, in lines of Markdown."""
        lines = [f"## {self.title}", "", *self.shown(evidence)]
        for table in self.tables(evidence):
            title = [f"**{table.title[0].upper()}{table.title[1:]}**", ""] if table.title else []
            lines += [*title, *table.markdown(), ""]
        return lines

    def shown(self, evidence: Any) -> list[str]:
        """The lines of Markdown that show its pictures."""
        drawn = self.pictures(evidence).items()
        return [line for name, figure in drawn for line in (f"![{figure.get_label()}]({name}.png)", "")]

    def label(self, quick: bool) -> str:
        """The name under which it writes files."""
        return f"{self.name}-quick" if quick else self.name

    def write_rows(
        self,
        rows: Sequence[Mapping[str, Any]],
        options: Options,
        *,
        device: torch.device,
        seconds: float,
        networks: int,
    ) -> None:
        """Keep the results of an experiment that is not made of cells, with where they come from, and say so."""
        label, out = self.label(options.quick), prepare(options.out)
        print(f"wrote {write_table(rows, out / f'{label}.csv')}")
        note_environment(out, label, environment(device, "stacked"), seconds, networks)

    def write_pictures(self, evidence: Any, options: Options) -> None:
        """Draw its pictures into `options.out`, and say so."""
        from .report import plots

        for name, figure in self.pictures(evidence).items():
            file = name.replace(self.name, self.label(options.quick), 1)
            print(f"wrote {plots.save(figure, options.out / f'{file}.png')}")


class Trained(Experiment):
    """An experiment made of networks."""

    seeds: ClassVar[int]
    """Seeds, or repeats, as published."""
    quick_seeds: ClassVar[int] = 1

    @abstractmethod
    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        """Its networks. Some may follow from the records of others; then it is called again with these."""

    def count(self, options: Options) -> int:
        """How many seeds to run."""
        return options.seeds or (self.quick_seeds if options.quick else self.seeds)

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Those of the records that are its own.

        They are of the published number of seeds, or more if every setting has more.
        """
        seeds = self.seeds
        own = self.cells(seeds, quick=quick, records=records)
        while records.keys() >= (more := set(self.cells(seeds + 1, quick=quick, records=records))) and more > set(own):
            seeds += 1
            own = self.cells(seeds, quick=quick, records=records)
        return [records[cell] for cell in dict.fromkeys(own) if cell in records]

    def evidence(self, results: Results) -> list[Record] | None:
        """Its records."""
        return self.select(results.records) or None

    def run(self, options: Options) -> None:
        """Train its networks, print its tables and draw its pictures."""
        seeds = self.count(options)
        done: dict[Cell, Record] = {}
        while left := [cell for cell in self.cells(seeds, quick=options.quick, records=done) if cell not in done]:
            found = run(
                left, out=options.out, device=options.device, directory=options.data, most=options.stack,
                title=self.label(options.quick),
            )  # fmt: skip
            done |= {record.cell: record for record in found}
        self.show(list(done.values()), options)
        if options.quick:
            print(QUICK_NOTE)

    def show(self, records: list[Record], options: Options) -> None:
        """Print the tables, and draw the pictures."""
        for table in self.tables(records):
            table.show()
        self.write_pictures(records, options)


_REGISTRY: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known by its name to `stiefel-init reproduce`.

    Args:
        experiment: An object of a subclass of `Experiment` or `Trained`.

    Returns:
        The experiment itself.

    Raises:
        StiefelError: if its name is not a word, since it becomes the name of files, or another experiment has it.
    """
    name = getattr(experiment, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w-]*", name) or name == "all":
        raise StiefelError(f"name={name!r} cannot name an experiment; use letters, digits, '_' and '-', and not 'all'.")
    if name.endswith("-quick"):
        raise StiefelError(f"name={name!r} is for quick runs; choose another.")
    known, own = _REGISTRY.get(name, experiment), type(experiment)
    taken = (type(known).__module__, type(known).__qualname__) != (own.__module__, own.__qualname__)
    if taken or any(name in one.files for one in _REGISTRY.values() if one.name != name):
        raise StiefelError(f"name={name!r} is taken; choose another.")
    _REGISTRY[name] = experiment
    return experiment


def registered() -> dict[str, Experiment]:
    """All experiments by name, in the order they were registered."""
    return dict(_REGISTRY)
