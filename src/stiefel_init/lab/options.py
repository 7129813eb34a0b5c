"""The options of the command line that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .train.family import DeviceName

TargetKind = Literal["classification", "regression"]


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
DeviceOption = Annotated[DeviceName, typer.Option(help="auto uses a GPU if there is one.")]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory of data files; by default STIEFEL_INIT_DATA, cache, network."),
]
TargetOption = Annotated[str | None, typer.Option(help="For a file: the column to predict.")]
TaskOption = Annotated[TargetKind | None, typer.Option(help="For a file: whether the target is a class or a quantity.")]
DropOption = Annotated[str, typer.Option(help="For a file: columns to leave out, comma-separated.")]
CategoryOption = Annotated[str, typer.Option(help="For a file: columns to take as categories, comma-separated.")]
GroupOption = Annotated[str | None, typer.Option(help="For a file: a column whose equal values are not split.")]
TimeOption = Annotated[
    str | None, typer.Option(help="For a file: the time column; the latest fifth of the rows is the test set.")
]
DecimalOption = Annotated[
    Literal[".", ","] | None, typer.Option(help="For a file: the decimal mark, if it cannot be inferred.")
]
NumberOption = Annotated[str, typer.Option(help="For a file: quantities that look like codes, comma-separated.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
StackOption = Annotated[
    int | None, typer.Option("--stack", min=1, help="Networks to train at once; by default as many as fit in memory.")
]
OnOption = Annotated[
    str, typer.Option("--on", help="local; ray or ray://HOST:PORT for a Ray cluster, one task per stack.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only print what would run.")]
