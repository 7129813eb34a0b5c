"""Figure 2: a coordinate of Wx becomes Gaussian as the layer widens, though the inputs are χ²(3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import stats

from stiefel_init import sample
from stiefel_init.lab.files import prepare
from stiefel_init.lab.report import plots

from ..experiment import QUICK_NOTE, Experiment, Options
from ..results import Results

WIDTHS = {5: "#E69F00", 10: "#CC79A7", 100: "#009E73"}
DEGREES = 3
GAUSSIAN = stats.norm(DEGREES, np.sqrt(2 * DEGREES))  # the mean and variance of χ²(3), which W with m = n keeps
_CHUNK = 20_000  # vectors drawn at once: 16 MB at width 100


class Figure2(Experiment):
    """Densities of one coordinate of Wx, drawn afresh: it needs no data and keeps no records."""

    name = "figure2"
    title = "Figure 2: a coordinate becomes Gaussian"
    page = None
    of_paper = True

    def run(self, options: Options) -> None:
        path = prepare(options.out) / f"{self.label(options.quick)}.png"
        for line in draw(path, samples=100_000 if options.quick else 1_000_000):
            print(line)
        print(f"wrote {path}")
        if options.quick:
            print(QUICK_NOTE)

    def evidence(self, results: Results) -> None:
        """None: it is drawn, not kept."""


def first_coordinate(width: int, samples: int, seed: int = 0) -> np.ndarray:
    """(Wx)₁ for one W ∈ Õ(width, width) and `samples` vectors x of independent χ²(3) coordinates."""
    rng = np.random.default_rng(seed)
    row = sample(width, width, seed=rng)[0]
    sizes = [_CHUNK] * (samples // _CHUNK) + [samples % _CHUNK]
    return np.concatenate([rng.chisquare(DEGREES, (size, width)) @ row for size in sizes])


def draw(path: Path, samples: int = 1_000_000) -> Iterator[str]:
    """Write the picture; yield, for each width, the distance from the Gaussian of the same mean and variance."""
    low, high = -7.0, 14.0
    edges, x = np.linspace(low, high, 211), np.linspace(low, high, 1001)
    drawn, axes = plots.figure(1, size=(7.5, 4.4))
    axis = axes[0, 0]
    for width, colour in WIDTHS.items():
        values = first_coordinate(width, samples)
        height = np.histogram(values, edges)[0] / (len(values) * np.diff(edges))
        axis.plot((edges[1:] + edges[:-1]) / 2, height, color=colour, linewidth=1.8, label=f"(Wx)₁, n = m = {width}")
        distance = stats.kstest(values, GAUSSIAN.cdf).statistic
        yield (
            f"n = m = {width:<3}: distance from the Gaussian {distance:.4f} (Kolmogorov–Smirnov), "
            f"mean {values.mean():.3f}, variance {values.var():.3f}, skewness {stats.skew(values):+.3f}"
        )
    axis.plot(x, stats.chi2(DEGREES).pdf(x), "--", color="#0072B2", linewidth=1.4, label="input, χ²(3)")
    axis.plot(x, GAUSSIAN.pdf(x), "-.", color="black", linewidth=1.4, label="Gaussian, N(3, 6)")
    title = f"One coordinate of Wx, W drawn from Õ(n,n); {samples:,} vectors each"
    axis.set(xlabel="value", ylabel="density", xlim=(low, high), ylim=(0, None), title=title)
    axis.legend(frameon=False)
    plots.save(drawn, path)
