"""`python -m paper.zoo`: train what is left of the zoo, or of a part of it, and print the verdicts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stiefel_init import StiefelError

from ..experiment import Options
from .entry import ARMS
from .study import Zoo


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m paper.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="networks; by default all that can be built here")
    parser.add_argument("--half", choices=("choosing", "report"))
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=ARMS)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--quick", action="store_true")
    words = parser.parse_args()
    options = Options(words.out, words.seeds, words.quick, words.device, words.data, minutes=words.minutes)
    try:
        Zoo().run(options, names=words.names, part=words.half, arms=words.arms)
    except StiefelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
