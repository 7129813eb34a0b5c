"""How long a first line takes: `import stiefel_init` and `stiefel-init --help`, beside NumPy's import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from . import timing
from .timing import Record

COMMANDS = {
    "import numpy": [sys.executable, "-c", "import numpy"],
    "import stiefel_init": [sys.executable, "-c", "import stiefel_init"],
    "stiefel-init --help": [str(Path(sys.executable).with_name("stiefel-init")), "--help"],
}


def measure(device: str) -> Iterator[Record]:
    runs = {name: partial(subprocess.run, words, check=True, capture_output=True) for name, words in COMMANDS.items()}
    yield {"machine": timing.machine("cpu"), "seconds": timing.in_turns(runs)}


def tables(record: Record) -> list[str]:
    rows = [[f"`{name}`", f"{value:.2f}"] for name, value in record["seconds"].items()]
    return [f"{timing.where(record)}:", "", *timing.markdown(["command", "seconds"], rows)]
