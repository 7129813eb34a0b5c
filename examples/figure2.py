"""Figure 2 of the paper: a coordinate of Wx becomes Gaussian as the layer widens, though the input is χ²(3).

    python examples/figure2.py                          # a million vectors for each width; writes figure2.png
    python examples/figure2.py --samples 10000 out.png

Prints the Kolmogorov–Smirnov distance of the first coordinate of Wx from N(3, 6). `stiefel-init reproduce figure2`
draws the same picture.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from paper.figures.figure2 import draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, nargs="?", default=Path("figure2.png"))
    parser.add_argument("--samples", type=int, default=1_000_000, help="vectors for each width (default: a million)")
    arguments = parser.parse_args()
    if arguments.samples < 1:
        parser.error(f"--samples {arguments.samples} draws nothing; give 1 or more")
    for line in draw(arguments.output, arguments.samples):
        print(line)
    print(f"{arguments.samples:,} vectors each; picture: {arguments.output}")


if __name__ == "__main__":
    main()
