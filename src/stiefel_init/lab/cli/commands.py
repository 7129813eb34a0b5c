"""The users' commands: `demo`, `train` and `list`, `diagnose` and `audit`, `data list` and `data get`.

What a command needs is imported when it runs, so that the command line starts fast.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ...core.errors import StiefelError
from .. import options
from ..train.family import AugmentName, OptimizerName, PrecisionName, ScheduleName

training = partial(typer.Option, rich_help_panel="Training")
of_networks = partial(typer.Option, rich_help_panel="Only with --network")
STUDIES = Path("stiefel-init-train")
ACTIVATIONS_HELP = "relu, leaky_relu, prelu, elu, selu, tanh, tat, gelu, silu, or one of your own (--plugin)."
DATA = (
    "A data set by name (stiefel-init data list); a table: CSV, Parquet, compressed; or images in class folders, as a "
    "folder or an archive."
)
NETWORK = (
    "mlp; on images also cnn, vgg16, resnet20 and the like, with -bn or -nobn; or FILE.py:NAME, a module of your own "
    "or a function that builds one."
)
RATE = (
    "Learning rate in units of 0.001/√depth, with --network of 0.001. Of several (0.25,0.5,1,2,4), or with 'auto', "
    "each scheme gets its best, chosen on a validation part."
)
SCHEDULE = (
    "Of the learning rate; cosine warms up for a tenth of the steps, then falls to 0; release lets go of weights on "
    "the set after half of the steps."
)
EDGES = "Learning rate of the first and the last layer, times that of the others; √depth is right for plain ones."
PRECISION = "tf32 is less accurate, but faster for many networks on a GPU; bfloat16 is for --network."
WATCH = "Watch the networks of the first seed while they train: a page and JSON Lines of each in OUT/watch."


def demo(
    out: options.OutOption = Path("stiefel-init-demo"),
    device: options.DeviceOption = "auto",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training data.")] = 12,
    dry_run: options.DryOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Train networks of 10, 50 and 100 layers from PyTorch's default, He's and ours, and write a page with the results.

    Three seeds each. Takes about a minute on two cores and needs no network.
    """
    from ..report import tables
    from ..study.demo import planned, run_demo

    if dry_run:
        from ..progress import show_plan
        from ..train.runner import foresee

        show_plan(foresee(planned(epochs).foreseen(), out, device), [], out, as_json=as_json)
        return
    with tables.as_json(as_json):
        page = run_demo(out, device, epochs)
        print(f"\nOpen {page} in a browser.")


def train(
    data: Annotated[str, typer.Option("--data", "--dataset", help=DATA)] = "digits",
    scheme: options.SchemeOption = "all",
    network: Annotated[str, typer.Option(help=NETWORK)] = "mlp",
    depth: Annotated[str, typer.Option(help="Hidden layers, of a cnn all layers; comma-separated.")] = "10",
    width: Annotated[
        int | None, typer.Option(help="Units per hidden layer, channels of the first stage; by default the usual.")
    ] = None,
    activation: Annotated[
        str, typer.Option(help=f"{ACTIVATIONS_HELP} 'all' stands for the first five; comma-separated.")
    ] = "relu",
    seeds: Annotated[int, training(help="Networks per setting; five or more tell schemes apart.")] = 1,
    epochs: Annotated[
        int | None, training(help="Passes over the training data; by default 20, of small tables 500 steps.")
    ] = None,
    batch: Annotated[int, training(help="Batch size; 0 for full batch.")] = 256,
    lr: Annotated[str, training(help=RATE)] = "1",
    schedule: Annotated[ScheduleName, training(help=SCHEDULE)] = "constant",
    optimizer: Annotated[
        OptimizerName, training(help="adam with --decay is AdamW; stiefel-… stay in the set.")
    ] = "adam",
    decay: Annotated[float, training(help="Weight decay, decoupled from the gradient, such as 0.01.")] = 0.0,
    dropout: Annotated[float, training(help="Probability of dropping an output of a hidden layer.")] = 0.0,
    edge_lr: Annotated[float, training("--edge-lr", help=EDGES)] = 1.0,
    groups: Annotated[
        bool, of_networks("--param-groups", help="Each layer at the rate that param_groups gives it.")
    ] = False,
    clip: Annotated[float | None, of_networks(help="The largest norm of the gradient.")] = None,
    smoothing: Annotated[float, of_networks(help="Label smoothing, such as 0.1.")] = 0.0,
    augment: Annotated[AugmentName, of_networks(help="Whether training images are cropped and flipped.")] = "none",
    warmup: Annotated[float | None, of_networks(help="Epochs of the warm-up of a cosine; by default a tenth.")] = None,
    shots: Annotated[int | None, training(help="Training rows per class; by default all.")] = None,
    alpha: Annotated[
        float | None, training(help="Shift of standardized tabular features; the paper recommends 2.")
    ] = None,
    precision: Annotated[PrecisionName, training(help=PRECISION)] = "float32",
    target: options.TargetOption = None,
    task: options.TaskOption = None,
    drop: options.DropOption = "",
    category: options.CategoryOption = "",
    group: options.GroupOption = None,
    time: options.TimeOption = None,
    decimal: options.DecimalOption = None,
    number: options.NumberOption = "",
    device: options.DeviceOption = "auto",
    out: options.OutOption = STUDIES,
    data_dir: options.DirectoryOption = None,
    stack: options.StackOption = None,
    on: options.OnOption = "local",
    watch: Annotated[bool, options.of_runs("--watch", help=WATCH)] = False,
    dry_run: options.DryOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compare initializations on your own data; rerun the command to resume.

    [dim]stiefel-init train --data digits --scheme all --depth 5,10,50 --seeds 5 --lr auto --out DIR[/dim]

    [dim]stiefel-init train --data customers.csv --target churn --scheme recipe,he --depth 30[/dim]

    [dim]stiefel-init train --data photos.zip --network cnn --depth 20 --scheme recipe,he --augment crop-flip[/dim]
    """
    from ..data import load
    from ..data.user import Columns, user_data, words
    from ..progress import counted, show_plan
    from ..report.tables import summary
    from ..study import files, plan
    from ..study import page as study_page
    from ..study.plan import rates
    from ..train.cluster import ClusterSpec
    from ..train.runner import foresee, run
    from ..train.watched import Watching

    columns = Columns(target, task, words(drop), words(category), group, time, decimal, words(number))
    datasets = user_data(data, columns)
    name = next(iter(datasets), data)
    if epochs is None:
        epochs = plan.usual_epochs(datasets.get(name) or load(name, directory=data_dir), batch, shots)
    cells = plan.grid(
        name, scheme, depth, activation, width=width, epochs=epochs, batch=batch,
        optimizer=optimizer, shots=shots, alpha=alpha, precision=precision, decay=decay, dropout=dropout,
        schedule=schedule, ends=edge_lr, network=network, groups=groups, clip=clip,
        smoothing=smoothing, augment=augment, warmup=warmup,
    )  # fmt: skip
    study = plan.plan(cells, seeds, rates(lr), datasets, data_dir)
    if dry_run:
        show_plan(foresee(study.foreseen(), out, device, study.datasets, data_dir, stack), [], out, as_json=as_json)
        return
    if watch and ClusterSpec.of(on) is not None:
        raise StiefelError(
            f"--watch sees networks that train on this machine, and --on is {on}; leave one of them out."
        )
    plan.check(study, out, data_dir, device, on)
    if study.dataset.columns and not as_json:
        files.columns_table(study.dataset).show()
    watching = Watching(out / "watch", tell=partial(print, file=sys.stderr)) if watch else None
    train_cells = partial(
        run, out=out, device=device, datasets=study.datasets, directory=data_dir, most=stack, on=on, watching=watching
    )
    outcome = plan.run_study(study, train_cells)
    folder = out / study.name
    content = files.write(outcome, folder)
    told = study_page.sentences(outcome, content)
    title = f"{content['data']['name']}: {counted(len(outcome.records), 'network')}"
    page = study_page.page(outcome, content, folder / files.PAGE, title, told, {})
    if as_json:
        print(json.dumps(content, ensure_ascii=False, indent=1))
        return
    title = f"{content['data']['name']}, {content['metric']['label']}, after {counted(epochs, 'epoch')}"
    summary(outcome.records, title=title).show()
    if study.seeds > 1 or study.rates.searched or files.imbalanced(content):
        files.comparison(content).show()
    print(*told, sep="\n")
    print(f"\n{counted(len(outcome.records), 'network')}: {page}, with results.csv and summary.json beside it.")
    if watch:
        print(f"What was watched: {out / 'watch'}")


def list_studies(
    directory: Annotated[Path, typer.Argument(help="A directory that `train --out` wrote.")] = STUDIES,
    as_json: options.JsonOption = False,
) -> None:
    """List the studies of a directory: data, schemes, who is best, and the page of each."""
    from ..report import tables
    from ..study.files import listing

    with tables.as_json(as_json):
        listing(directory).show()


def diagnose(
    model: Annotated[
        str | None, typer.Argument(help="Your own model as FILE.py:NAME, a module or a function that builds one.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Hidden layers.")] = 100,
    width: Annotated[int, typer.Option(min=1, help="Units per hidden layer.")] = 64,
    scheme: options.SchemeOption = "all",
    activation: Annotated[str, typer.Option(help=ACTIVATIONS_HELP)] = "relu",
    data: Annotated[
        str,
        typer.Option(
            "--data", "--dataset", help="A data set by name, a file, or the shape of one input for noise, as 3x32x32."
        ),
    ] = "digits",
    target: options.TargetOption = None,
    task: options.TaskOption = None,
    drop: options.DropOption = "",
    category: options.CategoryOption = "",
    group: options.GroupOption = None,
    time: options.TimeOption = None,
    decimal: options.DecimalOption = None,
    number: options.NumberOption = "",
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the weights.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", parser=options.folder, metavar="PATH", help="Directory for the picture and the numbers."),
    ] = None,
    data_dir: options.DirectoryOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show what happens to signal and gradient before training, for the initializations or for your own model.

    [dim]stiefel-init diagnose --depth 100 --width 64 --scheme all --data digits --out DIR[/dim]

    [dim]stiefel-init diagnose path/to/file.py:build_model --data mnist[/dim]
    """
    from ..data.user import Columns, words
    from ..study import diagnosis

    columns = Columns(target, task, words(drop), words(category), group, time, decimal, words(number))
    batch = diagnosis.batch(data, columns, data_dir)
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
        if any(each.trial for each in diagnoses.values()):
            print("\nBut 60 steps of Adam at 0.001/√depth teach it nothing of this batch.")
    else:
        title = f"{depth} {activation} layers, {width} wide, on {batch.name}, before training"
        diagnosis.comparison(diagnoses, title).show()
    if written:
        print(f"\nWrote {' and '.join(map(str, written))}.")


def audit(
    model: Annotated[str, typer.Argument(help="Your model as FILE.py:NAME, a module or a function that builds one.")],
    meta: Annotated[bool, typer.Option(help="Also build it on the meta device, and compare.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show the distribution of each parameter of your model, and which look as if nobody had initialized them.

    A function is called twice, in memory full of NaN. The exit code is 1 if something looks wrong, for your CI.

    [dim]stiefel-init audit path/to/file.py:build_model --meta[/dim]
    """
    from torch import nn

    from ...torch import audit as audit_model
    from ...torch.building import audit_built
    from ..plugins import built, load_named

    named = load_named(model)
    if not isinstance(named, nn.Module):
        audited = audit_built(lambda: built(named, model), meta=meta)
    elif meta:
        raise StiefelError(f"--meta builds the model anew, but {model} is one already; name a function that builds it.")
    else:
        audited = audit_model(named)
    print(json.dumps([row._asdict() for row in audited], ensure_ascii=False, indent=1) if as_json else audited)
    if audited.alarms:
        raise typer.Exit(1)


def data_list(data_dir: options.DirectoryOption = None, as_json: options.JsonOption = False) -> None:
    """List the data sets, and where each would come from."""
    from ..data import describe
    from ..report import tables

    rows = [
        [row.name, row.task, f"{row.rows:,}", str(row.features), str(row.classes or "—"), row.where or "not here yet"]
        for row in describe(directory=data_dir)
    ]
    with tables.as_json(as_json):
        tables.Table("", ["name", "task", "rows", "features", "classes", "where"], rows).show()


def data_get(
    name: Annotated[str, typer.Argument(help="A data set, or 'all'.")], data_dir: options.DirectoryOption = None
) -> None:
    """Fetch a data set into the cache and verify it."""
    from ..data import CATALOG, get

    for chosen in (each for each in CATALOG if CATALOG[each].fetched) if name == "all" else (name,):
        print(f"{chosen}: {get(chosen, directory=data_dir)}")
