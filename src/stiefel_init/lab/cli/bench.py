"""The command `bench`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..._errors import StiefelError, unknown
from ..options import Device, DeviceOption


def bench(
    name: Annotated[str, typer.Argument(help="sampler, engine, initialize, diagnose, …")] = "sampler",
    device: DeviceOption = Device.auto,
    write: Annotated[bool, typer.Option("--write", help="Save the numbers under benchmarks/records/.")] = False,
) -> None:
    """Run a benchmark from the source tree: our times and every peer's, in one run."""
    from ..train.runner import pick_device

    folder = Path(__file__).parents[4] / "benchmarks"
    script = folder / f"{name}.py"
    names = sorted(path.stem for path in folder.glob("[!_]*.py"))
    if not names:
        raise StiefelError("The benchmarks are part of the source tree; clone it and run `make bench`.")
    if name not in names:
        raise unknown("name", name, names)
    sys.argv = [str(script), "--device", pick_device(device.value).type, *(["--write"] if write else [])]
    sys.path.insert(0, str(folder))
    runpy.run_path(str(script), run_name="__main__")
