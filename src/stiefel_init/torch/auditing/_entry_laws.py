"""Laws of independent entries: uniform, normal, truncated normal; tested by Kolmogorov and Smirnov's distance.

Note [false alarms]
    Each law is rejected where its p-value is below `FALSE_ALARM`. The bound of a uniform law is the largest entry;
    given that, the others are uniform below it, so the test is exact. The deviation of a normal law is estimated, which
    makes the distance smaller: the test rejects the right law less often than stated. So of parameters that hold one of
    these laws, at most `FALSE_ALARM` are said to hold none. A few entries fit several laws, and then all are named.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special, stats

FALSE_ALARM = 1e-4
"""The probability with which a law is denied to a parameter that has it."""
LEAST = 8
"""Entries needed to tell anything."""
_MOST = 100_000
_CUT = 2.0


class Fit(NamedTuple):
    """A law that the entries may have."""

    text: str
    p: float


def entry_laws(entries: np.ndarray, fan_in: int, fan_out: int) -> list[Fit]:
    """The laws that are not rejected, the most likely one first.

    Args:
        entries: Finite numbers, not all equal.
        fan_in: Of the weight, which names its usual laws.
        fan_out: Likewise.
    """
    x = np.sort(entries.ravel()[:: -(-entries.size // _MOST)])
    if len(x) < LEAST or x[0] == x[-1]:
        return []
    bound, deviation = float(np.abs(x).max()), math.sqrt(float(np.mean(x * x)))
    inner = x[np.abs(x) < bound]
    centre, error = float(x.mean()), float(x.std()) / math.sqrt(len(x))
    fits = [
        Fit(f"uniform ±{bound:.4g}{_uniform_name(bound, len(x), fan_in, fan_out)}", _p(inner / bound, _uniform)),
        Fit(
            f"normal, deviation {deviation:.4g}{_normal_name(deviation, len(x), fan_in, fan_out)}",
            _p_normal(x / deviation),
        ),
        Fit(f"normal, deviation {bound / _CUT:.4g}, cut at ±{bound:.4g}", _p(inner * (_CUT / bound), _truncated)),
    ]
    spread = float(x.std())
    if abs(centre) > 5 * error:
        fits.append(Fit(f"normal, mean {centre:.4g}, deviation {spread:.4g}", _p_normal((x - centre) / spread)))
    return sorted((fit for fit in fits if fit.p >= FALSE_ALARM), key=lambda fit: -fit.p)


def _uniform(x: np.ndarray) -> np.ndarray:
    return (x + 1) / 2


def _truncated(x: np.ndarray) -> np.ndarray:
    low = special.ndtr(-_CUT)
    return (special.ndtr(x) - low) / (1 - 2 * low)


def _p(x: np.ndarray, distribution: object) -> float:
    """The p-value of the Kolmogorov–Smirnov distance of sorted entries from a distribution."""
    return float(stats.kstest(x, distribution, method="asymp").pvalue) if len(x) else 0.0


def _p_normal(x: np.ndarray) -> float:
    """Of the distance and of the largest entry, which tells a law that is cut off: twice the smaller p-value."""
    below = (1 - 2 * special.ndtr(-np.abs(x).max())) ** len(x)
    return min(1.0, 2 * min(_p(x, special.ndtr), 2 * float(min(below, 1 - below))))


def _uniform_name(bound: float, count: int, fan_in: int, fan_out: int) -> str:
    """The usual law with that bound: the largest of `count` entries falls short of it by about bound/count."""
    known = {"torch's own": 1 / fan_in, "xavier": 6 / (fan_in + fan_out), "he, uniform": 6 / fan_in}
    slack = 1 + math.log(1 / FALSE_ALARM) / count
    return _named(known, lambda square: bound * (1 - 1e-6) <= math.sqrt(square) <= bound * slack)


def _normal_name(deviation: float, count: int, fan_in: int, fan_out: int) -> str:
    known = {"he": 2 / fan_in, "lecun": 1 / fan_in, "xavier": 2 / (fan_in + fan_out), "gpt-2": 0.02**2}
    width = 4 / math.sqrt(2 * count)  # four standard errors of an estimated deviation
    return _named(known, lambda square: abs(deviation / math.sqrt(square) - 1) <= width)


def _named(known: dict[str, float], fits: object) -> str:
    names = [name for name, square in known.items() if fits(square)]  # type: ignore[operator]
    return f" ({' or '.join(names)})" if names else ""
