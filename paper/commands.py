"""Commands about the paper: `reproduce` and `compare`; and the maintainers' `docs`, `report` and `publish`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stiefel_init.lab.options import (
    DeviceOption,
    DirectoryOption,
    DryOption,
    JsonOption,
    OnOption,
    OutOption,
    StackOption,
    folder,
)

MinutesOption = Annotated[
    float | None, typer.Option("--minutes", min=0.01, help="Stop training after so many; rerun to resume.")
]
ResultsOption = Annotated[Path | None, typer.Option(help="Directory of records; by default our published ones.")]


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table5, table5-batches-of-32, figure1, figure2, figure3, signal, algorithms, "
            "or all of these in one run; members; baselines; on-the-set; transfer; zoo; find-start; cifar; "
            "shakespeare; plasticity."
        ),
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds; by default as many as we ran.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, marked as such: minutes on a CPU.")] = False,
    device: DeviceOption = "auto",
    out: OutOption = Path("stiefel-init-results"),
    data_dir: DirectoryOption = None,
    stack: StackOption = None,
    on: OnOption = "local",
    minutes: MinutesOption = None,
    dry_run: DryOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rerun an experiment of the paper and compare it with the published numbers; or rerun one of our studies."""
    from stiefel_init.lab.report import tables
    from stiefel_init.lab.train.cluster import ClusterSpec
    from stiefel_init.lab.train.runner import pick_device

    from .everything import networks
    from .experiment import Options, Trained
    from .registry import chosen
    from .registry import experiments as known
    from .results import recorded

    experiments = chosen(name)
    if ClusterSpec.of(on) is None:
        pick_device(device)
    options = Options(out, seeds, quick, device, data_dir, stack, on, minutes)
    if not dry_run:
        with tables.as_json(as_json):
            if name != "all" and on != "local" and not isinstance(experiments[0], Trained):
                print(f"{name} is not made of networks; it runs on this machine.", file=sys.stderr)
            (known()[name] if name == "all" else experiments[0]).run(options)
        return
    from stiefel_init.lab.progress import show_plan
    from stiefel_init.lab.train.runner import foresee

    cells, own = networks(experiments, options)
    done = recorded(out, lambda text: print(text, file=sys.stderr), touch=False)
    found = foresee(cells, out, device, own, data_dir, stack, done) if cells else None
    show_plan(found, [each.name for each in experiments if not isinstance(each, Trained)], out, as_json=as_json)


def compare(
    name: Annotated[str | None, typer.Argument(help="table1, table2, table3 or table5; by default all.")] = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare records with the published numbers, cell by cell."""
    from stiefel_init.lab.report import tables

    from .registry import experiments
    from .results import Results
    from .tables.table import comparisons

    with tables.as_json(as_json):
        for table in comparisons(name, experiments().values(), Results(results)):
            table.show()


def report(
    out: Annotated[
        Path, typer.Option("--out", parser=folder, metavar="PATH", help="Directory for results.md and its pictures.")
    ] = Path("stiefel-init-report"),
    results: ResultsOption = None,
) -> None:
    """Write the report: the paper's claims with verdicts, tables beside the published ones, pictures."""
    from stiefel_init.lab.files import refuse_file

    from . import docs as pages
    from .registry import experiments
    from .results import Results

    refuse_file(out)  # before the pictures are drawn
    for path in pages.write(out, Results(results), experiments().values()):
        print(f"wrote {path}")


def docs(
    check: Annotated[bool, typer.Option("--check", help="Say whether the pages are current; write nothing.")] = False,
) -> None:
    """Write every page that is made from records: docs/, the README's figures and badges."""
    from . import docs as pages
    from .registry import experiments
    from .results import Results

    root = Path(__file__).parents[1]
    for path in pages.write_all(root, Results(root / "results"), experiments().values(), check=check):
        print(f"wrote {path.relative_to(root)}")


def publish(
    records: Annotated[Path, typer.Argument(help="Directory of records written by `reproduce`.")],
    out: Annotated[
        Path, typer.Option("--out", parser=folder, metavar="PATH", help="Directory for the published results.")
    ] = Path("results"),
) -> None:
    """Publish records: a CSV for each experiment, and environment.json, which says how it was run."""
    from stiefel_init.lab.files import prepare
    from stiefel_init.lab.progress import counted

    from .registry import experiments, selected
    from .results import Results
    from .results import publish as write

    source = Results(records)
    chosen = selected(source, Results(out) if out.is_dir() and any(out.glob("*.csv")) else None)
    tables = [name for experiment in experiments().values() for name in experiment.files]
    for path in write(source, chosen, tables, prepare(out)):
        print(f"wrote {path}")
    if left := source.records.keys() - {record.cell for group in chosen.values() for record in group}:
        print(f"{counted(len(left), 'network')} of {records} belong to no experiment and were left out.")
