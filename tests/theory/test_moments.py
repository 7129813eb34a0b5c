"""Moments of activations against arbitrary precision, and against PyTorch integrated numerically."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from conftest import quadrature, value_and_slope
from scipy import stats

from stiefel_init.theory import ACTIVATIONS, activation_moments, rectified_moments, slope_moments

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
# (slope below 0) or (ELU's α, scale)
PIECEWISE = {"relu": 0.0, "leaky_relu": 0.01, "prelu": 0.25}
EXPONENTIAL = {"elu": (1.0, 1.0), "selu": (SELU_ALPHA, SELU_SCALE)}
ALPHAS = np.concatenate((np.linspace(-37, 37, 75), [-2.0001, -1.9999, -1e-8, 1e-8]))
STDS = {True: [1.0, 3.7e-9], False: [1e-9, 1e-3, 0.1, 0.4999, 0.5, 2.0, 30.0, 1000.0]}


def cdf(x: mp.mpf) -> mp.mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def pdf(x: mp.mpf) -> mp.mpf:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def exact(mean: float, std: float, activation: str) -> dict[str, mp.mpf]:
    """Moments in 80 digits; `size` is E|φ|."""
    mu, s = mp.mpf(mean), mp.mpf(std)
    a = mu / s
    p, n = s * (pdf(a) + a * cdf(a)), s * (pdf(a) - a * cdf(-a))
    var_p = s**2 * ((1 + a**2) * cdf(a) + a * pdf(a)) - p**2
    if activation in PIECEWISE:
        slope = mp.mpf(PIECEWISE[activation])
        var_n = s**2 * ((1 + a**2) * cdf(-a) - a * pdf(a)) - n**2
        mean_, size, var = p - slope * n, p + slope * n, var_p + slope**2 * var_n + 2 * slope * p * n
        first, second = cdf(a) + slope * cdf(-a), cdf(a) + slope**2 * cdf(-a)
    else:
        alpha, scale = map(mp.mpf, EXPONENTIAL[activation])
        t1, t2 = (mp.exp(k * mu + k**2 * s**2 / 2) * cdf(-a - k * s) for k in (1, 2))
        q = cdf(-a) - t1
        var_q = cdf(a) + t2 - (cdf(a) + t1) ** 2 if a < 0 else cdf(-a) - 2 * t1 + t2 - q**2
        mean_, size = scale * (p - alpha * q), scale * (p + alpha * q)
        var = scale**2 * (var_p + alpha**2 * var_q + 2 * alpha * p * q)
        first, second = scale * (cdf(a) + alpha * t1), scale**2 * (cdf(a) + alpha**2 * t2)
    return {"mean": mean_, "size": size, "std": mp.sqrt(var), "first": first, "second": second}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_moments_are_within_1e_12_of_the_exact_ones_out_to_37_deviations(activation: str) -> None:
    worst = dict.fromkeys(("mean", "std", "first", "second"), 0.0)
    with mp.workdps(80):
        for std in STDS[activation in PIECEWISE]:
            means = ALPHAS * std
            given = means, std, activation
            found = dict(zip(worst, [*activation_moments(*given), *slope_moments(*given)]))
            for i, mean in enumerate(means):
                truth = exact(mean, std, activation)
                for name in worst:
                    # A mean that changes sign has no relative error at its zero: E|φ| is its scale.
                    scale = truth["size"] if name == "mean" and activation != "relu" else truth[name]
                    worst[name] = max(worst[name], abs(float((mp.mpf(float(found[name][i])) - truth[name]) / scale)))
    assert max(worst.values()) < 1e-12, worst


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("mean", "std"), [(-3.0, 1.0), (0.4, 0.7), (-0.2, 0.05), (5.0, 2.0), (-1.0, 50.0)])
def test_the_exact_formulas_are_the_integrals_they_stand_for(activation: str, mean: float, std: float) -> None:
    """φ taken from PyTorch, its law integrated numerically: nothing here is shared with the product."""
    y, weight = quadrature(mean, std)
    value, slope = value_and_slope(activation, y)
    x = value.numpy()
    m, s = activation_moments(mean, std, activation)
    first, second = slope_moments(mean, std, activation)
    assert weight @ x == pytest.approx(float(m), rel=1e-11)
    assert weight @ (x - float(m)) ** 2 == pytest.approx(float(s) ** 2, rel=1e-11)
    assert weight @ slope == pytest.approx(float(first), rel=1e-11)
    assert weight @ slope**2 == pytest.approx(float(second), rel=1e-11)


def test_far_out_the_relu_is_the_identity_or_zero() -> None:
    for alpha in (40.0, 1e8, 1e200):
        assert [float(moment) for moment in rectified_moments(alpha, 1.0)] == [alpha, 1.0]
        assert [float(moment) for moment in rectified_moments(-alpha, 1.0)] == [0.0, 0.0]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_without_spread_the_activation_is_applied_to_a_number(activation: str) -> None:
    """And its slope at the kink is the one PyTorch has."""
    y = torch.tensor([-30.0, -1.0, -1e-9, 0.0, 1e-9, 2.0], dtype=torch.float64)
    value, slope = value_and_slope(activation, y)
    mean, std = activation_moments(y, 0.0, activation)
    np.testing.assert_allclose(mean, value, rtol=1e-12)
    np.testing.assert_array_equal(std, 0)
    first, second = slope_moments(y, 0.0, activation)
    np.testing.assert_allclose(first, slope, rtol=1e-12)
    np.testing.assert_allclose(second, slope**2, rtol=1e-12)
    tiny = activation_moments(y, 1e-12, activation)
    np.testing.assert_allclose(tiny[0], mean, atol=2e-12)


@pytest.mark.parametrize("activation", PIECEWISE)
def test_piecewise_linear_activations_scale(activation: str) -> None:
    mean, std = activation_moments(ALPHAS, 1.0, activation)
    for scale in (1e-300, 1e-5, 1e300):
        scaled = activation_moments(ALPHAS * scale, scale, activation)
        keep = mean * scale > 1e-307  # below, float64 has fewer digits
        np.testing.assert_allclose(scaled[0][keep], (mean * scale)[keep], rtol=1e-12)
        keep = std * scale > 1e-307
        np.testing.assert_allclose(scaled[1][keep], (std * scale)[keep], rtol=1e-12)


def test_special_parameters_give_the_activations_they_contain() -> None:
    for found, expected in (
        (activation_moments(ALPHAS, 1.0, "leaky_relu", negative_slope=0), rectified_moments(ALPHAS, 1.0)),
        (activation_moments(ALPHAS, 1.0, "prelu", a=1.0), (ALPHAS, np.ones_like(ALPHAS))),
        (activation_moments(ALPHAS, 1.0, "elu", alpha=0), rectified_moments(ALPHAS, 1.0)),
        (activation_moments(ALPHAS, 1.0, "prelu", a=0.01), activation_moments(ALPHAS, 1.0, "leaky_relu")),
    ):
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-13)
    mean, std = activation_moments(ALPHAS, 1.0, "prelu", a=-1.0)  # |y|, a folded Gaussian
    folded = stats.foldnorm(np.abs(ALPHAS))
    np.testing.assert_allclose(mean, folded.mean(), rtol=1e-12)
    np.testing.assert_allclose(std, folded.std(), rtol=1e-10)


def test_arguments_broadcast() -> None:
    mean, std = activation_moments(np.zeros((3, 1)), np.ones(4), "elu")
    assert mean.shape == std.shape == (3, 4)
    assert rectified_moments([], 1.0)[0].shape == (0,)
    assert isinstance(float(rectified_moments(1, 2)[0]), float)
