"""The options of the command line that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .train.family import DeviceName

OF_TABLES, OF_RUNS = "A table of your own", "How it runs"
"""Groups of options in --help."""
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
        rich_help_panel=OF_RUNS,
    ),
]
DeviceOption = Annotated[DeviceName, typer.Option(help="auto uses a GPU if there is one.", rich_help_panel=OF_RUNS)]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Directory of data files; by default STIEFEL_INIT_DATA, cache, network.",
        rich_help_panel=OF_RUNS,
    ),
]
TargetOption = Annotated[str | None, typer.Option(help="The column to predict.", rich_help_panel=OF_TABLES)]
TaskOption = Annotated[
    TargetKind | None, typer.Option(help="Whether the target is a class or a quantity.", rich_help_panel=OF_TABLES)
]
DropOption = Annotated[str, typer.Option(help="Columns to leave out, comma-separated.", rich_help_panel=OF_TABLES)]
CategoryOption = Annotated[
    str, typer.Option(help="Columns to take as categories, comma-separated.", rich_help_panel=OF_TABLES)
]
GroupOption = Annotated[
    str | None, typer.Option(help="A column whose equal values are not split.", rich_help_panel=OF_TABLES)
]
TimeOption = Annotated[
    str | None,
    typer.Option(help="The time column; the latest fifth of the rows is the test set.", rich_help_panel=OF_TABLES),
]
DecimalOption = Annotated[
    Literal[".", ","] | None,
    typer.Option(help="The decimal mark, if it cannot be inferred.", rich_help_panel=OF_TABLES),
]
NumberOption = Annotated[
    str, typer.Option(help="Quantities that look like codes, comma-separated.", rich_help_panel=OF_TABLES)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.", rich_help_panel=OF_RUNS)]
StackOption = Annotated[
    int | None,
    typer.Option(
        "--stack",
        min=1,
        help="Networks to train at once; by default as many as fit in memory.",
        rich_help_panel=OF_RUNS,
    ),
]
OnOption = Annotated[
    str,
    typer.Option(
        "--on", help="local; ray or ray://HOST:PORT for a Ray cluster, one task per stack.", rich_help_panel=OF_RUNS
    ),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only print what would run.", rich_help_panel=OF_RUNS)]
