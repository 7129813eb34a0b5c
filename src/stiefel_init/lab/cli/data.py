"""Commands about the data sets: `data list`, `data get` and `data where`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import DirectoryOption, JsonOption


def data_list(data_dir: DirectoryOption = None, as_json: JsonOption = False) -> None:
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
    name: Annotated[str, typer.Argument(help="A data set, or 'all'.")], data_dir: DirectoryOption = None
) -> None:
    """Fetch a data set into the cache and verify it."""
    from ..data import NAMES, get

    for chosen in NAMES if name == "all" else (name,):
        print(f"{chosen}: {get(chosen, directory=data_dir)}")


def data_where(name: Annotated[str, typer.Argument(help="A data set.")], data_dir: DirectoryOption = None) -> None:
    """Show where a data set would come from, without using the network."""
    from ..data import where

    print(where(name, directory=data_dir) or f"not on this machine; fetch it with: stiefel-init data get {name}")
