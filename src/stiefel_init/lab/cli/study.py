"""Commands that train: `demo`, `train`, and `list`, which shows what `train` left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ...core.errors import StiefelError
from ..options import (
    DataOption,
    Device,
    DeviceOption,
    DirectoryOption,
    DryOption,
    JsonOption,
    OnOption,
    Optimizer,
    OutOption,
    Precision,
    Schedule,
    SchemeOption,
    StackOption,
    takes_columns,
)


def demo(
    out: OutOption = Path("stiefel-init-demo"),
    device: DeviceOption = Device.auto,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training data.")] = 12,
    dry_run: DryOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train six initializations at depths 10, 50 and 100 on handwritten digits, and write a page with the results.

    Three seeds each. Takes about a minute on two cores and needs no network.
    """
    from ..report import tables
    from ..study.demo import networks, run_demo

    if dry_run:
        from ..train.forecast import forecast, show

        show(forecast(networks(epochs), device.value, {}, None, out), {}, out, as_json=as_json)
        return
    with tables.as_json(as_json):
        page = run_demo(out, device.value, epochs)
        print(f"\nOpen {page} in a browser.")


@takes_columns
def train(
    data: DataOption = "digits",
    scheme: SchemeOption = "all",
    depth: Annotated[str, typer.Option(help="Hidden layers, comma-separated.")] = "10",
    width: Annotated[int, typer.Option(help="Units per hidden layer.")] = 64,
    activation: Annotated[
        str,
        typer.Option(help="relu, leaky_relu, prelu, elu, selu, or 'all' for these; gelu, silu, tanh; comma-separated."),
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
    schedule: Annotated[
        Schedule,
        typer.Option(
            help="Of the learning rate; cosine warms up for a tenth of the steps, then falls to 0; release lets go of "
            "weights on the set after half of the steps."
        ),
    ] = Schedule.constant,
    optimizer: Annotated[
        Optimizer, typer.Option(help="adam with --decay is AdamW; stiefel-… stay in the set.")
    ] = Optimizer.adam,
    decay: Annotated[float, typer.Option(help="Weight decay, decoupled from the gradient, such as 0.01.")] = 0.0,
    dropout: Annotated[float, typer.Option(help="Probability of dropping an output of a hidden layer.")] = 0.0,
    ends: Annotated[
        float, typer.Option(help="Learning rate of the first and the last layer, times that of the others.")
    ] = 1.0,
    shots: Annotated[int | None, typer.Option(help="Training rows per class; by default all.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Shift of standardized tabular features; the paper recommends 2.")
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="tf32 is less accurate, but faster for many networks on a GPU.")
    ] = Precision.float32,
    columns: Any = None,  # an option for each of its fields
    device: DeviceOption = Device.auto,
    out: OutOption = Path("stiefel-init-train"),
    data_dir: DirectoryOption = None,
    stack: StackOption = None,
    on: OnOption = "local",
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Watch the networks of the first seed while they train: a page and JSON Lines of each in OUT/watch.",
        ),
    ] = False,
    dry_run: DryOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare starts on your own data; rerun the command to resume.

    [dim]stiefel-init train --data digits --scheme all --depth 5,10,50 --seeds 5 --lr auto --out DIR[/dim]

    [dim]stiefel-init train --data customers.csv --target churn --scheme recipe,he --depth 30[/dim]
    """
    from ..study import files as study_files
    from ..study import own
    from ..study import page as study_page
    from ..study.rates import rates

    datasets = own.own_data(data, columns)
    cells = own.grid(
        dataset=next(iter(datasets), data), schemes=scheme, depths=depth, width=width, activations=activation,
        epochs=epochs, batch=batch, optimizer=optimizer.value, shots=shots, alpha=alpha, precision=precision.value,
        decay=decay, dropout=dropout, schedule=schedule.value, ends=ends,
    )  # fmt: skip
    study = own.plan(cells, seeds, rates(lr), datasets, data_dir)
    if dry_run:
        from ..train.forecast import forecast, measured_here, show

        measured_here(on)
        found = forecast(study.forecast_cells(), device.value, study.datasets, data_dir, out, stack)
        show(found, {}, out, as_json=as_json)
        return
    from ..progress import counted
    from ..report.tables import summary
    from ..train.cluster import ClusterSpec
    from ..train.runner import run

    watching = None
    if watch:
        from ..train.watched import Watching

        watching = Watching(out / "watch", tell=lambda text: print(text, file=sys.stderr))

    def run_cells(chosen: list[Any]) -> list[Any]:
        return run(
            chosen, out=out, device=device.value, datasets=study.datasets, directory=data_dir, most=stack, on=on,
            watching=watching,
        )  # fmt: skip

    if watch and ClusterSpec.of(on) is not None:
        raise StiefelError(
            f"--watch sees networks that train on this machine, and --on is {on}; leave one of them out."
        )
    own.check(study, out, data_dir, device.value, on)
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
    if watch:
        print(f"What was watched: {out / 'watch'}")


def list_studies(
    directory: Annotated[Path, typer.Argument(help="A directory that `train --out` wrote.")] = Path(
        "stiefel-init-train"
    ),
    as_json: JsonOption = False,
) -> None:
    """List the studies of a directory: data, schemes, who is best, and the page of each."""
    from ..report import tables
    from ..study.files import listing

    with tables.as_json(as_json):
        listing(directory).show()
