"""How long a first line takes: `import stiefel_init` and `stiefel-init --help`, beside NumPy's import.

python benchmarks/startup.py [--write]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path

from _timing import in_turns, machine, write_record

COMMANDS = {
    "import numpy": [sys.executable, "-c", "import numpy"],
    "import stiefel_init": [sys.executable, "-c", "import stiefel_init"],
    "stiefel-init --help": [str(Path(sys.executable).with_name("stiefel-init")), "--help"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    runs = {
        name: partial(subprocess.run, command, check=True, capture_output=True) for name, command in COMMANDS.items()
    }
    seconds = in_turns(runs)
    for name, value in seconds.items():
        print(f"{name:22} {value:.2f} s")
    if options.write:
        write_record("startup", {"machine": machine("cpu"), "seconds": seconds})


if __name__ == "__main__":
    main()
