"""The options of the command line that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

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


class Precision(StrEnum):
    """Precision of matrix products."""

    float32 = "float32"
    tf32 = "tf32"


OutOption = Annotated[
    Path, typer.Option("--out", help="Directory for records and pictures; rerun with the same one to resume.")
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


def columns_of(
    target: str | None, task: Task | None, drop: str, category: str, group: str | None, time: str | None,
    decimal: str | None,
) -> Any:  # fmt: skip
    """The options about a file's columns."""
    from .studies.own import Columns

    left, categories = (tuple(filter(None, map(str.strip, text.split(",")))) for text in (drop, category))
    mark: Any = decimal  # from_file says what it may be
    return Columns(target, None if task is None else task.value, left, categories, group, time, mark)
