"""Figure 2 of the paper: a coordinate of Wx becomes Gaussian as the layer widens, though the input is χ²(3).

    python examples/figure2.py                          # a million vectors for each width; writes figure2.png
    python examples/figure2.py --samples 10000 out.png

Prints the Kolmogorov–Smirnov distance of the first coordinate of Wx from N(3, 6).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy import stats

from stiefel_init import sample

WIDTHS = (5, 10, 100)
DEGREES = 3
GAUSSIAN = stats.norm(DEGREES, np.sqrt(2 * DEGREES))  # the mean and variance of χ²(3), which W with m = n keeps
CHUNK = 20_000  # vectors drawn at once: 16 MB at width 100


def first_coordinate(width: int, samples: int, seed: int = 0) -> np.ndarray:
    """(Wx)₁ for one W ∈ Õ(width, width) and `samples` vectors x of independent χ²(3) coordinates."""
    rng = np.random.default_rng(seed)
    row = sample(width, width, seed=rng)[0]
    sizes = [CHUNK] * (samples // CHUNK) + [samples % CHUNK]
    return np.concatenate([rng.chisquare(DEGREES, (size, width)) @ row for size in sizes])


def picture(values: dict[int, np.ndarray], path: Path) -> None:
    """Densities against that of the input (dashed) and the Gaussian (dash-dotted)."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    low, high = -7.0, 14.0
    edges = np.linspace(low, high, 106)
    x = np.linspace(low, high, 1001)
    style = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}
    with plt.rc_context(style):
        figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
        for (width, found), colour in zip(values.items(), ("#d98e04", "#c1666b", "#0b6e4f")):
            height = np.histogram(found, edges)[0] / (len(found) * np.diff(edges))
            axis.plot((edges[1:] + edges[:-1]) / 2, height, color=colour, lw=1.8, label=f"(Wx)₁, n = m = {width}")
        axis.plot(x, stats.chi2(DEGREES).pdf(x), "--", color="#1f5fa8", lw=1.5, label="input, χ²(3)")
        axis.plot(x, GAUSSIAN.pdf(x), "-.", color="black", lw=1.5, label="Gaussian, N(3, 6)")
        axis.set(xlabel="value", ylabel="density", xlim=(low, high), ylim=(0, None))
        axis.set_title("One coordinate of Wx, W drawn from Õ(n,n)")
        axis.legend(frameon=False)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, nargs="?", default=Path("figure2.png"))
    parser.add_argument("--samples", type=int, default=1_000_000, help="vectors for each width (default: a million)")
    arguments = parser.parse_args()
    if arguments.samples < 1:
        parser.error(f"--samples {arguments.samples} draws nothing; give 1 or more")
    values = {width: first_coordinate(width, arguments.samples) for width in WIDTHS}
    picture(values, arguments.output)
    for width, found in values.items():
        distance = stats.kstest(found, GAUSSIAN.cdf).statistic
        print(f"n = m = {width:<4} distance from the Gaussian {distance:.4f}, mean {found.mean():.3f}, ", end="")
        print(f"variance {found.var():.3f}, skewness {stats.skew(found):+.3f}")
    print(f"{arguments.samples:,} vectors each; picture: {arguments.output}")


if __name__ == "__main__":
    main()
