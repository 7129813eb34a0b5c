"""The command line, `stiefel-init`. Each command is a thin layer over the laboratory's functions."""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .._errors import StiefelError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Deep ReLU networks that train from the first step: initialize, diagnose, and re-run the paper.",
)
data_app = typer.Typer(no_args_is_help=True, help="The data sets: list them, fetch them, say where they are.")
app.add_typer(data_app, name="data")


def command(parent: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that Ctrl-C ends cleanly, with exit code 130."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @parent.command(name)
        @functools.wraps(function)
        def run(*args: Any, **options: Any) -> None:
            try:
                function(*args, **options)
                sys.stdout.flush()
            except BrokenPipeError:  # the reader, `head` say, has enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except KeyboardInterrupt:
                print("\nStopped. What was finished is kept; the same command goes on from there.", file=sys.stderr)
                sys.exit(130)

        return function

    return register


class Device(StrEnum):
    """Where to train."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


OutOption = Annotated[Path, typer.Option("--out", help="Directory for records and pictures; a run goes on from it.")]
DeviceOption = Annotated[Device, typer.Option(help="auto takes a GPU where there is one.")]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Directory that holds the data files; else STIEFEL_INIT_DATA, cache, network."),
]
StackOption = Annotated[
    int | None, typer.Option("--stack", min=1, help="Networks to train at once; as many as memory allows if left out.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Say what would run and how long it may take, then stop.")]


@command(app)
def demo(
    out: OutOption = Path("stiefel-init-demo"),
    device: DeviceOption = Device.auto,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training data.")] = 30,
) -> None:
    """Train six initializations at depths 10, 50 and 100 on handwritten digits, and make a page of the result.

    Needs no network and, on two cores, about a minute.
    """
    from .demo import run_demo

    page = run_demo(out, device.value, epochs)
    print(f"\nOpen {page} in a browser.")


@command(app)
def train(
    dataset: Annotated[
        str, typer.Option(help="A data set by name (stiefel-init data list), or a CSV file.")
    ] = "digits",
    scheme: Annotated[
        str,
        typer.Option(help="Initializations, comma-separated, or 'all' six; permutation, identity and rotation too."),
    ] = "all",
    depth: Annotated[str, typer.Option(help="Hidden layers, comma-separated.")] = "10",
    width: Annotated[int, typer.Option(help="Units of each hidden layer.")] = 64,
    activation: Annotated[
        str, typer.Option(help="relu, leaky_relu, prelu, elu, selu; comma-separated, or 'all'.")
    ] = "relu",
    seeds: Annotated[int, typer.Option(help="Networks of each kind.")] = 1,
    epochs: Annotated[int, typer.Option(help="Passes over the training data.")] = 20,
    batch: Annotated[int, typer.Option(help="Rows of a mini-batch; 0 for all at once.")] = 256,
    lr: Annotated[float, typer.Option(help="Learning rate, divided by the square root of the depth.")] = 1e-3,
    optimizer: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    shots: Annotated[int | None, typer.Option(help="Training images per class; all if left out.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Shift of standardized tabular features; the paper favours 2.")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="float32; or tf32, less exact, and faster for many networks on a GPU.")
    ] = "float32",
    target: Annotated[str | None, typer.Option(help="The column of a CSV to predict.")] = None,
    device: DeviceOption = Device.auto,
    out: OutOption = Path("stiefel-init-train"),
    data: DataOption = None,
    stack: StackOption = None,
    dry_run: DryOption = False,
) -> None:
    """Train your own study in one line; run it again and it goes on where it stopped.

    [dim]stiefel-init train --dataset digits --scheme all --depth 5,10,50 --seeds 3 --epochs 20 --out DIR[/dim]

    [dim]stiefel-init train --dataset customers.csv --target churn --scheme stiefel,he --depth 30 --alpha 2[/dim]
    """
    from . import study

    own = study.own_data(dataset, target)
    cells = study.grid(
        dataset=next(iter(own), dataset), schemes=scheme, depths=depth, width=width, activations=activation,
        seeds=seeds, epochs=epochs, batch=batch, lr=lr, optimizer=optimizer, shots=shots, alpha=alpha,
        precision=precision,
    )  # fmt: skip
    if dry_run:
        print(study.forecast(cells, device.value, own, data, out, stack))
        return
    from .progress import counted
    from .runner import run
    from .tasks import Tasks

    records = run(cells, out=out, device=device.value, datasets=own, directory=data, most=stack)
    _print_table(*study.summary(records), title=f"{records[0]['dataset']}, after {epochs} epochs")
    page = study.write_page(records, out, error=Tasks(own, data).dataset(cells[0].dataset).classes is None)
    print(f"\n{counted(len(records), 'record')} and {page.name} are in {out}.")


@command(app)
def diagnose(
    model: Annotated[
        str | None, typer.Argument(help="Your own model, FILE.py:NAME, a module or a function that builds one.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Hidden layers.")] = 100,
    width: Annotated[int, typer.Option(min=1, help="Units of each hidden layer.")] = 64,
    scheme: Annotated[
        str,
        typer.Option(help="Initializations, comma-separated, or 'all' six; permutation, identity and rotation too."),
    ] = "all",
    activation: Annotated[str, typer.Option(help="relu, leaky_relu, prelu, elu or selu.")] = "relu",
    data: Annotated[
        str, typer.Option(help="A data set by name, or the shape of one input of noise, such as 3x32x32.")
    ] = "digits",
    seed: Annotated[int, typer.Option(min=0, help="Decides the weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Directory to write the picture and the numbers to.")
    ] = None,
) -> None:
    """Say where signal and gradient go before any training: of the six initializations, or of your own model.

    [dim]stiefel-init diagnose --depth 100 --width 64 --scheme all --data digits --out DIR[/dim]

    [dim]stiefel-init diagnose path/to/file.py:build_model --data mnist[/dim]
    """
    from . import diagnosis

    batch = diagnosis.batch(data)
    if model is not None:
        found = {model: diagnosis.of_own_model(model, batch)}
    else:
        found = diagnosis.of_schemes(scheme, depth, width, activation, batch, seed)
    written = [] if out is None else diagnosis.write(found, out)
    if len(found) == 1:
        print(*found.values())
    else:
        title = f"{depth} {activation} layers, {width} wide, on {batch.name}, before training"
        _print_table(*diagnosis.comparison(found), title=title)
    if written:
        print(f"\nWrote {' and '.join(map(str, written))}.")


@command(app)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table5, figure1, figure2, figure3, signal, all of these; or members."
        ),
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds, or repeats; as we ran it if left out.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version: minutes on a CPU, marked as such.")] = False,
    device: DeviceOption = Device.auto,
    out: OutOption = Path("stiefel-init-results"),
    data: DataOption = None,
    stack: StackOption = None,
    dry_run: DryOption = False,
) -> None:
    """Run an experiment of the paper and compare it with the published numbers; or the study of members."""
    from .reproduce import reproduce as run_experiments

    run_experiments(
        name,
        seeds=seeds,
        quick=quick,
        device=device.value,
        out=out,
        data=data,
        stack=stack,
        dry_run=dry_run,
        show=_print_table,
    )


@command(app)
def compare(
    name: Annotated[str | None, typer.Argument(help="table1, table2, table3 or table5; all if left out.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Directory of records; our own, published ones if left out.")
    ] = None,
) -> None:
    """Hold records against the published numbers, cell by cell."""
    from .reproduce import comparison_tables

    for title, header, rows in comparison_tables(name, results):
        _print_table(header, rows, title=title)


@command(app)
def report(
    out: Annotated[Path, typer.Option("--out", help="Directory for results.md and its pictures.")] = Path("docs"),
    html: Annotated[bool, typer.Option("--html", help="One page for a browser, results.html, instead.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="Directory of records; our own, published ones if left out.")
    ] = None,
) -> None:
    """Write what the records say of the paper: claims with verdicts, tables beside the published ones, pictures."""
    from .report import write, write_html, write_members

    if html:
        print(f"wrote {write_html(out, results)}")
        return
    written = write(out, results)
    if (out / "members.md").exists():
        written += write_members(out / "members.md", out, results)
    for path in written:
        print(f"wrote {path}")


@command(app)
def paper(
    name: Annotated[
        str | None, typer.Argument(help="table1, table2, table3, table5 or figure1; all if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Records instead of tables.")] = False,
) -> None:
    """Print the published numbers."""
    from . import paper as published

    if as_json:
        print(json.dumps([one.to_dict() for one in published.published(name)], indent=1))
        return
    for table in published.TABLES if name is None else (name,):
        _print_table(*published.layout(table), title=f"{table}: {published.TITLES[table]}")


@command(data_app, "list")
def data_list(data: DataOption = None) -> None:
    """The data sets, and where each would come from now."""
    from .data import describe

    rows = [
        [one.name, one.task, f"{one.rows:,}", str(one.features), str(one.classes or "—"), one.where or "not here yet"]
        for one in describe(directory=data)
    ]
    _print_table(["name", "task", "rows", "features", "classes", "where"], rows)


@command(data_app, "get")
def data_get(name: Annotated[str, typer.Argument(help="A data set, or 'all'.")], data: DataOption = None) -> None:
    """Fetch a data set into the cache and verify it."""
    from .data import NAMES, get

    for one in NAMES if name == "all" else (name,):
        print(f"{one}: {get(one, directory=data)}")


@command(data_app, "where")
def data_where(name: Annotated[str, typer.Argument(help="A data set.")], data: DataOption = None) -> None:
    """Where a data set would come from now, without asking the network."""
    from .data import where

    print(where(name, directory=data) or f"not on this machine; fetch it with: stiefel-init data get {name}")


@command(app)
def bench(
    name: Annotated[str, typer.Argument(help="sampler, engine, initialize, diagnose, …")] = "sampler",
    device: DeviceOption = Device.auto,
    write: Annotated[bool, typer.Option("--write", help="Keep the figures under benchmarks/records/.")] = False,
) -> None:
    """Run a benchmark of the source tree: times against every peer, in one run."""
    from .runner import pick_device

    folder = Path(__file__).parents[3] / "benchmarks"
    script = folder / f"{name}.py"
    names = sorted(path.stem for path in folder.glob("[!_]*.py"))
    if not names:
        raise StiefelError("The benchmarks are part of the source tree; clone it and run `make bench`.")
    if name not in names:
        raise StiefelError(f"name={name!r} is not known; choose one of {', '.join(map(repr, names))}.")
    sys.argv = [str(script), "--device", pick_device(device.value).type, *(["--write"] if write else [])]
    sys.path.insert(0, str(folder))
    runpy.run_path(str(script), run_name="__main__")


def _print_table(header: list[str], rows: list[list[str]], title: str = "") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold", pad_edge=False)
    for index, column in enumerate(header):
        text = index == 0 or all(not _is_number(row[index]) for row in rows)
        table.add_column(column, justify="left" if text else "right", no_wrap=not text or index == 0)
    for row in rows:
        table.add_row(*row)
    # A pipe gets whole lines, whatever its width would be taken for.
    console = Console(width=None if sys.stdout.isatty() else 200)
    if title:
        console.print(title, style="italic", markup=False, highlight=False)
    console.print(table)


def _is_number(text: str) -> bool:
    try:
        float(text.split("±")[0].replace(",", "").replace("%", ""))
    except ValueError:
        return False
    return True


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit code 0, 2 for bad input told in one sentence, 130 for Ctrl-C."""
    try:
        app(args=arguments, prog_name="stiefel-init")
    except StiefelError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
