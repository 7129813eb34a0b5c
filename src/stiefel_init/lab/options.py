"""The options of the command line that several commands share."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from .train.family import DeviceName

of_tables = partial(typer.Option, rich_help_panel="A table of your own")
of_runs = partial(typer.Option, rich_help_panel="How it runs")
TargetKind = Literal["classification", "regression"]


def folder(name: str | Path) -> Path:
    """A directory to write into; without a name it would be the current one, which nobody means."""
    if not str(name).strip():
        raise typer.BadParameter(f"{name!r} is no name of a directory; give one, or . for this one.")
    return Path(name)


_PLUGIN = "A Python file that registers your own schemes, data sets, activations or experiments."
Plugin = Annotated[list[Path] | None, typer.Option("--plugin", exists=False, help=_PLUGIN)]
_SCHEMES = (
    "Comma-separated: 'all' for recipe, which is what initialize_ does, and the paper's six; also looks-linear, torch "
    "and others."
)
SchemeOption = Annotated[str, typer.Option(help=_SCHEMES)]
_OUT = "Directory for records and pictures; rerun with the same one to resume."
OutOption = Annotated[Path, of_runs("--out", parser=folder, metavar="PATH", help=_OUT)]
DeviceOption = Annotated[DeviceName, of_runs(help="auto uses a GPU if there is one.")]
_DATA = "Directory of data files; by default STIEFEL_INIT_DATA, cache, network."
DirectoryOption = Annotated[Path | None, of_runs("--data-dir", help=_DATA)]
TargetOption = Annotated[str | None, of_tables(help="The column to predict.")]
TaskOption = Annotated[TargetKind | None, of_tables(help="Whether the target is a class or a quantity.")]
DropOption = Annotated[str, of_tables(help="Columns to leave out, comma-separated.")]
CategoryOption = Annotated[str, of_tables(help="Columns to take as categories, comma-separated.")]
GroupOption = Annotated[str | None, of_tables(help="A column whose equal values are not split.")]
TimeOption = Annotated[str | None, of_tables(help="The time column; the latest fifth of the rows is the test set.")]
DecimalOption = Annotated[Literal[".", ","] | None, of_tables(help="The decimal mark, if it cannot be inferred.")]
NumberOption = Annotated[str, of_tables(help="Quantities that look like codes, comma-separated.")]
JsonOption = Annotated[bool, of_runs("--json", help="Print JSON instead of tables.")]
_STACK = "Networks to train at once; by default as many as fit in memory."
StackOption = Annotated[int | None, of_runs("--stack", min=1, help=_STACK)]
OnOption = Annotated[str, of_runs("--on", help="local; ray or ray://HOST:PORT for a Ray cluster, one task per stack.")]
DryOption = Annotated[bool, of_runs("--dry-run", help="Only print what would run.")]
