"""The likelihood: it finds the law that made a number, weighs modes, and lets no single number decide."""

from __future__ import annotations

import math

import numpy as np
import pytest
from paper.protocols.ranking import OUTLIERS, Noise


def noise_of(spread: float, resolution: float = 0.5, cells: int = 40, seeds: int = 5) -> Noise:
    rng = np.random.default_rng(0)
    return Noise.of([90 + spread * rng.standard_normal(seeds) for _ in range(cells)], resolution, 100.0)


def test_it_is_a_density() -> None:
    noise, scores = noise_of(2.0), np.array([88.0, 90.0, 63.0])
    grid = np.arange(-200, 400, 0.05)
    for runs in (1, 3):
        total = sum(noise.density(x, scores, runs) for x in grid) * 0.05
        assert total == pytest.approx(1.0, abs=0.01)


def test_the_width_is_that_of_our_seeds() -> None:
    typical = [float(noise.shares @ noise.widths) for noise in map(noise_of, (0.1, 1.0, 4.0))]
    assert typical == sorted(typical)
    assert typical[0] < 1 < typical[2]


def test_the_true_law_is_likelier_on_average_than_any_other() -> None:
    # Gibbs: E log p(true) ≥ E log p(other). 400 numbers, seeds fixed; a wrong sign, width or mode would fail.
    rng = np.random.default_rng(1)
    noise = noise_of(2.0)
    numbers = 90 + 2 * rng.standard_normal(400)

    def total(shift: float) -> float:
        return sum(noise.log_likelihood(x, 90 + shift + 2 * rng.standard_normal(5)) for x in numbers)

    true = total(0.0)
    assert all(total(shift) < true for shift in (-6.0, -4.0, 4.0, 6.0))


def test_two_modes_count_by_their_seeds() -> None:
    noise = Noise.of([np.array([63.16] * 4)] * 10, 0.88, 100.0)
    mixed = np.array([63.16, 63.16, 63.16, 97.0])
    collapsed, alive, between = (noise.log_likelihood(x, mixed) for x in (63.16, 97.0, 80.0))
    assert collapsed - alive == pytest.approx(math.log(3), abs=0.05)
    assert between < alive - 3


def test_no_single_number_decides() -> None:
    noise, scores = noise_of(0.5), np.array([90.0, 90.5, 89.5])
    worst = noise.log_likelihood(0.0, scores)
    assert worst == pytest.approx(math.log(OUTLIERS / 100))
    assert noise.log_likelihood(90.0, scores) - worst < 8
    assert not noise.explains(60.0, scores)
    assert noise.explains(90.2, scores)


def test_a_mean_of_runs_is_narrower_and_between_the_modes() -> None:
    noise = Noise.of([np.array([60.0] * 4), np.array([90.0] * 4)] * 10, 1.0, 100.0)
    mixed = np.array([60.0, 90.0, 60.0, 90.0])
    one, several = (noise.log_likelihood(75.0, mixed, runs=runs) for runs in (1, 10))
    assert several > one + 2
    assert noise.log_likelihood(60.0, mixed, runs=10) < noise.log_likelihood(60.0, mixed) - 2


def test_networks_that_diverged_support_nothing() -> None:
    noise = noise_of(1.0)
    half = noise.density(90.0, np.array([90.0, math.inf]))
    assert half == pytest.approx(noise.density(90.0, np.array([90.0])) / 2)
    assert noise.log_likelihood(90.0, np.array([math.inf, math.inf])) == pytest.approx(math.log(OUTLIERS / 100))
