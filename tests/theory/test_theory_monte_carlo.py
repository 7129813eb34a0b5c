"""The predictions against real networks: isotropic Gaussian input, 64 wide, 100 deep, drawn by the product's schemes.

At every layer the prediction must be within 3 standard errors of a mean over 200 networks, plus the finite-width term
that `finite_width` states. More than 200 networks are drawn, so that the comparison itself is less noisy than that:
3 standard errors of 200 are 4.7 of 500 and 4.2 of 400. A right prediction then fails with probability below 1 % in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from conftest import PAPER_SCHEMES, value_and_slope

from stiefel_init.schemes import Lee
from stiefel_init.theory import ACTIVATIONS, FiniteWidth, Propagation, finite_width, propagate
from stiefel_init.torch import draw_, lee_, sample

ZERO_MEAN = ("he", "xavier", "orthogonal", "random")
NETWORKS = {"stiefel": 300, "lee": 600, "he": 500, "xavier": 600, "orthogonal": 400, "random": 500}
STANDARD_ERRORS, OF = 3, 200
CHUNK = 50
DEPTH, WIDTH, INPUT = 100, 64, 128  # a first layer that is not square: the factor √(n/m) counts


@cache
def lee(m: int, n: int) -> torch.Tensor:
    return lee_(torch.empty(m, n, dtype=torch.float64))


def draw(scheme: str, count: int, m: int, n: int, generator: torch.Generator) -> torch.Tensor:
    """`count` independent weights of the scheme, drawn in float32, as networks have them, and followed in float64."""
    if scheme == "lee":
        return lee(m, n).expand(count, m, n)
    if scheme == "stiefel":
        return sample(m, n, batch=count, dtype=torch.float32, generator=generator).double()
    return draw_(torch.empty(count, m, n), scheme, batch_dims=1, generator=generator).double()


@dataclass
class Measured:
    """Of every layer and network, over units and inputs; the gradient's squared length relative to the top's."""

    pre_mean: np.ndarray
    pre_std: np.ndarray
    active: np.ndarray
    post_mean: np.ndarray
    post_std: np.ndarray
    gradient: np.ndarray


def measure(
    scheme: str, widths: list[int], mean: float, std: float, networks: int, inputs: int, activation: str = "relu"
) -> Measured:
    generator = torch.Generator().manual_seed(PAPER_SCHEMES.index(scheme))
    parts = []
    for start in range(0, networks, CHUNK):
        count = min(CHUNK, networks - start)
        x = mean + std * torch.randn(count, inputs, widths[0], generator=generator, dtype=torch.float64)
        rows, tape = [], []
        for n, m in pairwise(widths):
            weights = draw(scheme, count, m, n, generator)
            y = x @ weights.mT
            x, at_y = value_and_slope(activation, y)
            tape.append((weights, torch.from_numpy(at_y)))
            active = (y > 0).double().mean((1, 2))
            rows.append([y.mean((1, 2)), y.flatten(1).std(1), active, x.mean((1, 2)), x.flatten(1).std(1)])
        gradient = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        top = gradient.square().sum((1, 2))
        for row, (weights, slope) in zip(reversed(rows), reversed(tape)):
            gradient = (gradient * slope) @ weights
            row.append(gradient.square().sum((1, 2)) / top)
        parts.append(torch.stack([torch.stack(row) for row in rows], 1))
    return Measured(*torch.cat(parts, 2).numpy())


def beyond(values: np.ndarray, expected: np.ndarray, term: np.ndarray) -> np.ndarray:
    """By how many standard errors, of 200 networks, the mean over networks misses the prediction beyond the term."""
    error = np.maximum(np.abs(values.mean(1) - expected) - term, 0)
    return np.divide(error, values.std(1, ddof=1) / np.sqrt(OF), where=error > 0, out=np.zeros_like(error))


def misses(found: Measured, p: Propagation, term: FiniteWidth) -> dict[str, float]:
    """The worst layer of every quantity, in standard errors."""
    shift, layers = term.log_shift, np.arange(len(p))
    if p.scheme in ZERO_MEAN:
        relative, before = term.std / p.post_std, np.concatenate(([0], shift[:-1]))
        gradient = np.log(np.cumprod(p.gradient_factor[::-1])[::-1])
        result = {
            "pre_mean": beyond(found.pre_mean / found.pre_std, p.pre_mean, term.active),
            "pre_std": beyond(np.log(found.pre_std), np.log(p.pre_std) + before, relative),
            "active": beyond(found.active, p.active, term.active),
            "post_mean": beyond(np.log(found.post_mean), np.log(p.post_mean) + shift, relative),
            "post_std": beyond(np.log(found.post_std), np.log(p.post_std) + shift, relative),
            "gradient": beyond(np.log(found.gradient) / 2, gradient + shift[-1] - before, relative[-1 - layers]),
        }
    else:
        gradient = np.cumprod(p.gradient_factor[::-1] ** 2)[::-1]
        result = {
            name: beyond(getattr(found, name), getattr(p, name), getattr(term, name.rpartition("_")[2]))
            for name in ("pre_mean", "pre_std", "active", "post_mean", "post_std")
        }
        result["gradient"] = beyond(found.gradient, gradient, term.active[-1])  # the part along x, 1/N, is not cut
    return {name: float(value.max()) for name, value in result.items()}


def inputs_of(scheme: str) -> int:
    """One input a network where the scale belongs to network and input; else enough to tell inputs apart."""
    return 1 if scheme in ZERO_MEAN else 16


@pytest.mark.parametrize(
    "scheme", [pytest.param(name, marks=() if name in ("lee", "he") else pytest.mark.slow) for name in PAPER_SCHEMES]
)
def test_every_layer_is_as_predicted(scheme: str) -> None:
    widths = [INPUT] + [WIDTH] * DEPTH
    p = propagate(widths, mean=0.3, std=1.0, scheme=scheme)
    found = measure(scheme, widths, 0.3, 1.0, NETWORKS[scheme], inputs_of(scheme))
    worst = misses(found, p, finite_width(p))
    assert max(worst.values()) < STANDARD_ERRORS, worst


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (-0.5, 2.0), (3.0, 1.0)])
def test_stiefel_is_as_predicted_for_other_inputs_and_for_layers_that_narrow_and_widen(mean: float, std: float) -> None:
    widths = [48, 96, 64, 64, 32, 64, 64, 64, 64]
    p = propagate(widths, mean=mean, std=std)
    worst = misses(measure("stiefel", widths, mean, std, 600, 16), p, finite_width(p))
    assert max(worst.values()) < STANDARD_ERRORS, worst


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "stiefel without √(n/m)": ("stiefel", {"widths": [WIDTH] * 21}),
    "stiefel with Φ(-α)": ("stiefel", {"mean": -0.3}),
    "he with variance 1/n": ("he", {"scheme": "orthogonal", "widths": [WIDTH] * 21}),
    "xavier with variance 1/n": ("xavier", {"scheme": "orthogonal"}),
    "orthogonal with variance 2/n": ("orthogonal", {"scheme": "he"}),
    "random with std 0.11": ("random", {"widths": [int(1.21 * INPUT)] + [WIDTH] * 20}),
    "lee as a member of the set": ("lee", {"scheme": "stiefel"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_prediction_is_noticed(name: str) -> None:
    scheme, change = WRONG[name]
    widths = [INPUT] + [WIDTH] * 20
    options: dict[str, Any] = {"widths": widths, "mean": 0.3, "std": 1.0, "scheme": scheme}
    p = propagate(**options | change)
    found = measure(scheme, widths, 0.3, 1.0, OF, inputs_of(scheme))
    assert max(misses(found, p, finite_width(p)).values()) > 2 * STANDARD_ERRORS


def test_what_the_prediction_misses_under_stiefel_vanishes_like_one_over_the_width() -> None:
    """N·(measured - predicted) is the same at N = 16 and 64, to 5 standard errors, and not zero."""
    scaled = []
    for width, networks in ((16, 1600), (64, 400)):
        widths = [width] * 31
        p = propagate(widths, mean=0.3, std=1.0)
        found = measure("stiefel", widths, 0.3, 1.0, networks, 16).post_std[-1]
        scaled.append((width * (found.mean() - p.post_std[-1]), width * found.std() / np.sqrt(networks)))
    (narrow, narrow_error), (wide, wide_error) = scaled
    assert abs(narrow - wide) < 5 * np.hypot(narrow_error, wide_error) + 0.1 * narrow  # the next order is 1/N of it
    assert wide > 5 * wide_error


def test_a_typical_he_network_is_smaller_than_the_mean_square_one_by_the_stated_factor() -> None:
    """log ‖x‖ has drift -D and variance D; both are found within 4 standard errors, false alarm below 1e-3."""
    widths, networks = [WIDTH] * 41, 800
    p = propagate(widths, mean=0.3, std=1.0, scheme="he")
    found = measure("he", widths, 0.3, 1.0, networks, 1)
    log = np.log(np.hypot(found.post_mean[-1], found.post_std[-1] * np.sqrt(1 - 1 / WIDTH)))  # its std divides by N - 1
    expected = np.log(np.hypot(p.post_mean[-1], p.post_std[-1]))
    d = -finite_width(p).log_shift[-1]
    second = 2 * (1 + d) / WIDTH
    assert abs(log.mean() - expected + d) < 4 * np.sqrt(d / networks) + second
    assert abs(log.var() - d) < 4 * d * np.sqrt(2 / networks) + second


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("scheme", PAPER_SCHEMES)
def test_every_activation_under_every_scheme(scheme: str, activation: str) -> None:
    """One wide layer after another: 300 to 256 to 256 to 200, within 5 standard errors plus 4/N of the std."""
    widths = [300, 256, 256, 200] if scheme != "lee" else [300, 256, 256, 256]
    p = propagate(widths, mean=0.3, std=1.0, scheme=scheme, activation=activation)
    found = measure(scheme, widths, 0.3, 1.0, 24, 8, activation)
    slack = 4 / 200
    for name in ("pre_mean", "pre_std", "active", "post_mean", "post_std"):
        values, expected = getattr(found, name), getattr(p, name)
        scale = 1 if name == "active" else getattr(p, f"{name[: name.index('_')]}_std")
        error = np.abs(values.mean(1) - expected) - slack * scale
        assert (error < 5 * values.std(1, ddof=1) / np.sqrt(24)).all(), name
    length = np.cumprod(p.gradient_factor[::-1] ** 2)[::-1]
    error = np.abs(found.gradient.mean(1) - length) - 2 * slack * length
    assert (error < 5 * found.gradient.std(1, ddof=1) / np.sqrt(24)).all()


def test_with_every_inputs_own_mean_and_std_correlated_inputs_are_predicted_too() -> None:
    """Inputs with a common pattern and unequal brightness: pooled numbers are far off, each input's own are not."""
    generator = torch.Generator().manual_seed(3)
    widths = [196] + [WIDTH] * 20
    pattern = torch.rand(196, generator=generator, dtype=torch.float64)
    brightness = 0.2 + torch.rand(200, 1, generator=generator, dtype=torch.float64)
    x = inputs = brightness * (pattern + 0.3 * torch.rand(200, 196, generator=generator, dtype=torch.float64))
    pooled = propagate(widths, mean=float(x.mean()), std=float(x.std()))
    own = propagate(widths, mean=x.mean(1), std=x.std(1, correction=0))
    stds = []
    for _ in range(40):
        x, row = inputs, []
        for n, m in pairwise(widths):
            x = torch.relu(x @ sample(m, n, dtype=torch.float64, generator=generator).T)
            row.append(float(x.std()))
        stds.append(row)
    found = np.mean(stds, 0)
    assert (np.abs(found / own.post_std - 1) < 0.02).all()
    assert (np.abs(found / pooled.post_std - 1) > 0.3).all()


@pytest.mark.parametrize(
    "widths", [[13, 64, 64, 64, 2], [8, 32, 16, 4], [64, 10, 64, 10], [3, 50, 50, 7], [40, 20, 10, 5]], ids=str
)
@pytest.mark.parametrize("mean", [0.3, -0.2])
def test_lees_units_are_followed_through_any_shape(widths: list[int], mean: float) -> None:
    """After a widening layer most units are equal, which a prediction by independent units misses by half."""
    draw = np.random.default_rng(1)
    x, layers = mean + draw.standard_normal((40_000, widths[0])), []
    for n, m in pairwise(widths):
        w = Lee().matrix(m, n)
        y = x @ w.T
        x = y.clip(0)
        layers.append((w, y, x))
    p = propagate(widths, mean=mean, std=1.0, scheme="lee")
    gradient, factors = draw.standard_normal(x.shape), []
    for w, y, _ in reversed(layers):
        back = (gradient * (y > 0)) @ w
        factors.append(np.linalg.norm(back) / np.linalg.norm(gradient))
        gradient = back
    measured = [(y.mean(), y.std(), (y > 0).mean(), x.mean(), x.std()) for _, y, x in layers]
    predicted = p.pre_mean, p.pre_std, p.active, p.post_mean, p.post_std
    np.testing.assert_allclose(np.transpose(predicted), measured, atol=0.01)
    np.testing.assert_allclose(p.gradient_factor, factors[::-1], atol=0.01)
