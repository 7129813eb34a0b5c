"""The command line, `stiefel-init`: thin commands over the laboratory's functions."""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .._errors import StiefelError
from .._install import missing
from .options import (
    CategoryOption,
    DataOption,
    DecimalOption,
    Device,
    DeviceOption,
    DirectoryOption,
    DropOption,
    DryOption,
    GroupOption,
    JsonOption,
    MinutesOption,
    OnOption,
    Optimizer,
    OutOption,
    Plugin,
    Precision,
    ResultsOption,
    StackOption,
    TargetOption,
    TaskOption,
    TimeOption,
    columns_of,
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Deep ReLU networks that train from the first step: initialize, diagnose, and re-run the paper.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"stiefel-init {__version__}")
        raise typer.Exit


@app.callback()
def load_plugins(
    plugin: Plugin = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Import the user's files that register schemes, data sets, activations or experiments."""
    from .plugins import load_file

    for path in plugin or ():
        load_file(path)


data_app = typer.Typer(no_args_is_help=True, help="List, fetch and locate the data sets.")
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
            except BrokenPipeError:  # the reader, such as `head`, has stopped reading
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except KeyboardInterrupt:
                print("\nStopped. Finished work is kept; rerun the command to resume.", file=sys.stderr)
                sys.exit(130)

        return function

    return register


@command(app)
def demo(
    out: OutOption = Path("stiefel-init-demo"),
    device: DeviceOption = Device.auto,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training data.")] = 12,
) -> None:
    """Train six initializations at depths 10, 50 and 100 on handwritten digits, and write a page with the results.

    Three seeds each. Takes about a minute on two cores and needs no network.
    """
    from .studies.demo import run_demo

    page = run_demo(out, device.value, epochs)
    print(f"\nOpen {page} in a browser.")


@command(app)
def train(
    data: DataOption = "digits",
    scheme: Annotated[
        str,
        typer.Option(help="Comma-separated: 'all' for the paper's six; also permutation, identity, rotation."),
    ] = "all",
    depth: Annotated[str, typer.Option(help="Hidden layers, comma-separated.")] = "10",
    width: Annotated[int, typer.Option(help="Units per hidden layer.")] = 64,
    activation: Annotated[
        str, typer.Option(help="relu, leaky_relu, prelu, elu, selu; comma-separated, or 'all'.")
    ] = "relu",
    seeds: Annotated[int, typer.Option(help="Networks per setting; five or more tell schemes apart.")] = 1,
    epochs: Annotated[int, typer.Option(help="Passes over the training data.")] = 20,
    batch: Annotated[int, typer.Option(help="Batch size; 0 for full batch.")] = 256,
    lr: Annotated[
        str,
        typer.Option(
            help="Learning rate in units of 0.001/√depth. Of several (0.25,0.5,1,2,4), or with 'auto', each scheme "
            "gets its best, chosen on a validation part."
        ),
    ] = "1",
    optimizer: Annotated[Optimizer, typer.Option(help="The optimizer.")] = Optimizer.adam,
    shots: Annotated[int | None, typer.Option(help="Training rows per class; by default all.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Shift of standardized tabular features; the paper recommends 2.")
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="tf32 is less accurate, but faster for many networks on a GPU.")
    ] = Precision.float32,
    target: TargetOption = None,
    task: TaskOption = None,
    drop: DropOption = "",
    category: CategoryOption = "",
    group: GroupOption = None,
    time: TimeOption = None,
    decimal: DecimalOption = None,
    device: DeviceOption = Device.auto,
    out: OutOption = Path("stiefel-init-train"),
    data_dir: DirectoryOption = None,
    stack: StackOption = None,
    on: OnOption = "local",
    dry_run: DryOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare starts on your own data; rerun the command to resume.

    [dim]stiefel-init train --data digits --scheme all --depth 5,10,50 --seeds 5 --lr auto --out DIR[/dim]

    [dim]stiefel-init train --data customers.csv --target churn --scheme stiefel,he --depth 30 --alpha 2[/dim]
    """
    from .studies import own, study_files, study_page
    from .studies.rates import rates

    datasets = own.own_data(data, columns_of(target, task, drop, category, group, time, decimal))
    cells = own.grid(
        dataset=next(iter(datasets), data), schemes=scheme, depths=depth, width=width, activations=activation,
        epochs=epochs, batch=batch, optimizer=optimizer.value, shots=shots, alpha=alpha, precision=precision.value,
    )  # fmt: skip
    study = own.plan(cells, seeds, rates(lr), datasets, data_dir)
    if dry_run:
        from .train.forecast import forecast, measured_here

        measured_here(on)
        print(forecast(study.forecast_cells(), device.value, study.datasets, data_dir, out, stack))
        return
    from .progress import counted
    from .report.summary import summary
    from .train.cluster import Place
    from .train.runner import pick_device, run

    def run_cells(chosen: list[Any]) -> list[Any]:
        return run(chosen, out=out, device=device.value, datasets=study.datasets, directory=data_dir, most=stack, on=on)

    if Place.of(on) is None:
        pick_device(device.value)
    own.check(study, out, data_dir)
    if study.dataset.columns and not as_json:
        study_files.columns_table(study.dataset).show()
    outcome = own.run_study(study, run_cells)
    folder, content = study_files.write(outcome, out)
    page = study_page.page(outcome, content, folder)
    if as_json:
        print(json.dumps(content, ensure_ascii=False, indent=1))
        return
    title = f"{content['data']['name']}, {content['metric']['label']}, after {counted(epochs, 'epoch')}"
    summary(outcome.records, title=title).show()
    if study.seeds > 1 or study.rates.searched or study_files.imbalanced(study.dataset):
        study_files.comparison(content).show()
    for line in study_page.sentences(outcome, content):
        print(line)
    print(f"\n{counted(len(outcome.records), 'network')}: {page}, with results.csv and summary.json beside it.")


@command(app, "list")
def list_studies(
    directory: Annotated[Path, typer.Argument(help="A directory that `train --out` wrote.")] = Path(
        "stiefel-init-train"
    ),
    as_json: JsonOption = False,
) -> None:
    """List the studies of a directory: data, schemes, who is best, and the page of each."""
    from .report import tables
    from .studies.study_files import listing

    with tables.as_json(as_json):
        listing(directory).show()


@command(app)
def diagnose(
    model: Annotated[
        str | None, typer.Argument(help="Your own model as FILE.py:NAME, a module or a function that builds one.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Hidden layers.")] = 100,
    width: Annotated[int, typer.Option(min=1, help="Units per hidden layer.")] = 64,
    scheme: Annotated[
        str,
        typer.Option(help="Comma-separated: 'all' for the paper's six; also permutation, identity, rotation."),
    ] = "all",
    activation: Annotated[str, typer.Option(help="relu, leaky_relu, prelu, elu or selu.")] = "relu",
    data: Annotated[
        str,
        typer.Option(
            "--data", "--dataset", help="A data set by name, a file, or the shape of one input for noise, as 3x32x32."
        ),
    ] = "digits",
    target: TargetOption = None,
    task: TaskOption = None,
    drop: DropOption = "",
    category: CategoryOption = "",
    group: GroupOption = None,
    time: TimeOption = None,
    decimal: DecimalOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the weights.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Directory for the picture and the numbers.")] = None,
    data_dir: DirectoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happens to signal and gradient before training, for the initializations or for your own model.

    [dim]stiefel-init diagnose --depth 100 --width 64 --scheme all --data digits --out DIR[/dim]

    [dim]stiefel-init diagnose path/to/file.py:build_model --data mnist[/dim]
    """
    from . import diagnosis

    batch = diagnosis.batch(data, columns_of(target, task, drop, category, group, time, decimal), data_dir)
    if model is not None:
        diagnoses = {model: diagnosis.of_own_model(model, batch)}
    else:
        diagnoses = diagnosis.of_schemes(scheme, depth, width, activation, batch, seed)
    written = [] if out is None else diagnosis.write(diagnoses, out)
    if as_json:
        print(json.dumps(diagnosis.numbers(diagnoses), ensure_ascii=False, indent=1))
        return
    if len(diagnoses) == 1:
        print(*diagnoses.values())
    else:
        title = f"{depth} {activation} layers, {width} wide, on {batch.name}, before training"
        diagnosis.comparison(diagnoses, title).show()
    if written:
        print(f"\nWrote {' and '.join(map(str, written))}.")


@command(app)
def audit(
    model: Annotated[str, typer.Argument(help="Your model as FILE.py:NAME, a module or a function that builds one.")],
) -> None:
    """Show which law each parameter of your model holds, and which look as if nobody had initialized them.

    [dim]stiefel-init audit path/to/file.py:build_model[/dim]
    """
    from ..torch import audit as audit_model
    from .diagnosis import load_model

    print(audit_model(load_model(model)))


@command(app)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table5, figure1, figure2, figure3, signal, or all; table5-protocol; members"
        ),
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds; by default as many as we ran.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, marked as such: minutes on a CPU.")] = False,
    device: DeviceOption = Device.auto,
    out: OutOption = Path("stiefel-init-results"),
    data_dir: DirectoryOption = None,
    stack: StackOption = None,
    on: OnOption = "local",
    minutes: MinutesOption = None,
    dry_run: DryOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rerun an experiment of the paper and compare it with the published numbers; or rerun one of our studies."""
    from .experiment import Options, Trained
    from .experiments import chosen, networks
    from .report import tables
    from .train.cluster import Place
    from .train.runner import pick_device

    experiments = chosen(name)
    if Place.of(on) is None:
        pick_device(device.value)
    options = Options(out, seeds, quick, device.value, data_dir, stack, on, minutes)
    if not dry_run:
        with tables.as_json(as_json):
            for experiment in experiments:
                if on != "local" and not isinstance(experiment, Trained):
                    print(f"{experiment.name} is not made of networks; it runs on this machine.", file=sys.stderr)
                experiment.run(options)
        return
    from .train.forecast import forecast, measured_here

    measured_here(on)
    cells, own = networks(experiments, options)
    if cells:
        print(forecast(cells, device.value, own, data_dir, out, stack))
    for experiment in (experiment for experiment in experiments if not isinstance(experiment, Trained)):
        print(f"{experiment.name} keeps no trained networks; it would be computed from scratch.")


@command(app)
def compare(
    name: Annotated[str | None, typer.Argument(help="table1, table2, table3 or table5; by default all.")] = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare records with the published numbers, cell by cell."""
    from .paper.comparisons import comparisons
    from .report import tables
    from .results import Results

    with tables.as_json(as_json):
        for table in comparisons(name, Results(results)):
            table.show()


@command(app)
def report(
    out: Annotated[Path, typer.Option("--out", help="Directory for results.md and its pictures.")] = Path("docs"),
    html: Annotated[bool, typer.Option("--html", help="Write a page for the browser, results.html.")] = False,
    results: ResultsOption = None,
) -> None:
    """Write the report: the paper's claims with verdicts, tables beside the published ones, pictures."""
    from .experiments import experiments
    from .report import pages
    from .results import Results

    source, known = Results(results), experiments().values()
    for path in [pages.write_html(out, source, known)] if html else pages.write(out, source, known):
        print(f"wrote {path}")


@command(app)
def publish(
    records: Annotated[Path, typer.Argument(help="Directory of records written by `reproduce`.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the published results.")] = Path("results"),
) -> None:
    """Publish records: a CSV for each experiment, and environment.json, which says how it was run."""
    from .experiment import Trained
    from .experiments import experiments
    from .files import prepare
    from .progress import counted
    from .results import Results
    from .results import publish as write

    source, known = Results(records), experiments().values()
    before = Results(out).records if out.is_dir() and any(out.glob("*.csv")) else {}
    merged = {**before, **source.records}  # published records stay unless rerun
    selected = {
        experiment.label(quick): experiment.select(merged, quick=quick)
        for quick in (False, True)
        for experiment in known
        if isinstance(experiment, Trained)
    }
    for path in write(source, selected, [name for experiment in known for name in experiment.files], prepare(out)):
        print(f"wrote {path}")
    left = source.records.keys() - {record.cell for group in selected.values() for record in group}
    if left:
        print(f"{counted(len(left), 'network')} of {records} belong to no experiment and were left out.")


@command(app)
def paper(
    name: Annotated[
        str | None, typer.Argument(help="table1, table2, table3, table5 or figure1; by default all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the published numbers."""
    from .paper import published

    if as_json:
        print(json.dumps([number.to_dict() for number in published.published(name)], indent=1))
        return
    for table in published.TABLES if name is None else (name,):
        published.layout(table).show()


@command(data_app, "list")
def data_list(data_dir: DirectoryOption = None, as_json: JsonOption = False) -> None:
    """List the data sets, and where each would come from."""
    from .data import describe
    from .report import tables

    rows = [
        [row.name, row.task, f"{row.rows:,}", str(row.features), str(row.classes or "—"), row.where or "not here yet"]
        for row in describe(directory=data_dir)
    ]
    with tables.as_json(as_json):
        tables.Table("", ["name", "task", "rows", "features", "classes", "where"], rows).show()


@command(data_app, "get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set, or 'all'.")], data_dir: DirectoryOption = None
) -> None:
    """Fetch a data set into the cache and verify it."""
    from .data import NAMES, get

    for chosen in NAMES if name == "all" else (name,):
        print(f"{chosen}: {get(chosen, directory=data_dir)}")


@command(data_app, "where")
def data_where(name: Annotated[str, typer.Argument(help="A data set.")], data_dir: DirectoryOption = None) -> None:
    """Show where a data set would come from, without using the network."""
    from .data import where

    print(where(name, directory=data_dir) or f"not on this machine; fetch it with: stiefel-init data get {name}")


@command(app)
def bench(
    name: Annotated[str, typer.Argument(help="sampler, engine, initialize, diagnose, …")] = "sampler",
    device: DeviceOption = Device.auto,
    write: Annotated[bool, typer.Option("--write", help="Save the numbers under benchmarks/records/.")] = False,
) -> None:
    """Run a benchmark from the source tree: our times and every peer's, in one run."""
    from .train.runner import pick_device

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


# The base of typer's own complaints, which it does not export.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")


_PACKAGES = ("torch", "pandas", "sklearn", "matplotlib", "markdown_it", "rich")
"""What the extra `lab` brings."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit code 0, 2 for bad input (explained in one sentence), 130 for Ctrl-C."""
    try:
        app(args=arguments, prog_name="stiefel-init", standalone_mode=False)
        sys.exit(0)
    except StiefelError as error:
        sentence = str(error)
    except _UsageError as error:
        sentence = error.format_message()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _PACKAGES:
            raise
        sentence = str(missing(error, "this command", name, "lab"))
    if sentence:  # none where a command is missing, and the help was the answer
        print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
