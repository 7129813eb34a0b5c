"""The options of the command line that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .study.own import Columns


def folder(name: str | Path) -> Path:
    """A directory to write into; without a name it would be the current one, which nobody means."""
    if not str(name).strip():
        raise typer.BadParameter(f"{name!r} is no name of a directory; give one, or . for this one.")
    return Path(name)


Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        exists=False,
        help="A Python file that registers your own schemes, data sets, activations or experiments.",
    ),
]


class Device(StrEnum):
    """Where to train."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Task(StrEnum):
    """What the target of a file is."""

    classification = "classification"
    regression = "regression"


class Optimizer(StrEnum):
    """The optimizer."""

    adam = "adam"
    sgd = "sgd"
    stiefel_adam = "stiefel-adam"
    stiefel_sgd = "stiefel-sgd"
    stiefel_muon = "stiefel-muon"
    orthogonal_adam = "orthogonal-adam"
    gain_adam = "gain-adam"


class Schedule(StrEnum):
    """How the learning rate changes over the steps."""

    constant = "constant"
    cosine = "cosine"
    release = "release"


class Precision(StrEnum):
    """Precision of matrix products."""

    float32 = "float32"
    tf32 = "tf32"


SchemeOption = Annotated[
    str,
    typer.Option(
        help="Comma-separated: 'all' for recipe, which is what initialize_ does, and the paper's six; also "
        "looks-linear, torch and others."
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        parser=folder,
        metavar="PATH",
        help="Directory for records and pictures; rerun with the same one to resume.",
    ),
]
DeviceOption = Annotated[Device, typer.Option(help="auto uses a GPU if there is one.")]
DataOption = Annotated[
    str,
    typer.Option(
        "--data", "--dataset", help="A data set by name (stiefel-init data list), or a file: CSV, Parquet, compressed."
    ),
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory of data files; by default STIEFEL_INIT_DATA, cache, network."),
]
TargetOption = Annotated[str | None, typer.Option(help="Of a file, the column to predict.")]
TaskOption = Annotated[Task | None, typer.Option(help="Of a file, whether the target is a class or a quantity.")]
DropOption = Annotated[str, typer.Option(help="Of a file, columns to leave out, comma-separated.")]
CategoryOption = Annotated[str, typer.Option(help="Of a file, columns to take as categories, comma-separated.")]
GroupOption = Annotated[str | None, typer.Option(help="Of a file, a column whose equal values are not split.")]
TimeOption = Annotated[str | None, typer.Option(help="Of a file, a column by which the last fifth tests.")]
DecimalOption = Annotated[str | None, typer.Option(help="Of a file, the decimal mark, if it does not tell.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
StackOption = Annotated[
    int | None, typer.Option("--stack", min=1, help="Networks to train at once; by default as many as fit in memory.")
]
OnOption = Annotated[
    str, typer.Option("--on", help="local; ray or ray://HOST:PORT for a Ray cluster, one task per stack.")
]
MinutesOption = Annotated[
    float | None, typer.Option("--minutes", min=0.01, help="Stop training after so many; rerun to resume.")
]
ResultsOption = Annotated[Path | None, typer.Option(help="Directory of records; by default our published ones.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only print what would run and how long it would take.")]


_COLUMNS: dict[str, tuple[Any, Any]] = {
    "target": (TargetOption, None),
    "task": (TaskOption, None),
    "drop": (DropOption, ""),
    "category": (CategoryOption, ""),
    "group": (GroupOption, None),
    "time": (TimeOption, None),
    "decimal": (DecimalOption, None),
}
"""The options about a file's columns and their defaults."""


def takes_columns(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command with an option for each field of `Columns`, in the place of its argument `columns`."""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.name != "columns":
            parameters.append(parameter)
            continue
        parameters += [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=option)
            for name, (option, default) in _COLUMNS.items()
        ]

    def command(**options: Any) -> None:
        function(columns=_columns(**{name: options.pop(name) for name in _COLUMNS}), **options)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _columns(*, task: Task | None, drop: str, category: str, **others: Any) -> Columns:
    from .study.own import Columns

    left, categories = (tuple(filter(None, map(str.strip, text.split(",")))) for text in (drop, category))
    return Columns(task=None if task is None else task.value, drop=left, category=categories, **others)
