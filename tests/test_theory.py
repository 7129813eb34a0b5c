"""The theory: moments against arbitrary precision, predictions against exact cases, bounds, and bad input."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import ndtr

import stiefel_init.torch
from stiefel_init import StiefelError, sample
from stiefel_init.theory import (
    ACTIVATIONS,
    FAVOURED_ALPHA,
    SCHEMES,
    activation_moments,
    alignment_optimum,
    berry_esseen_bound,
    finite_width,
    max_entry_bound,
    propagate,
    rectified_moments,
    shift_for_alpha,
    slope_moments,
)
from stiefel_init.theory import _lee as lee

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
# (slope below 0) or (ELU's α, scale)
PIECEWISE = {"relu": 0.0, "leaky_relu": 0.01, "prelu": 0.25}
EXPONENTIAL = {"elu": (1.0, 1.0), "selu": (SELU_ALPHA, SELU_SCALE)}
ALPHAS = np.concatenate((np.linspace(-37, 37, 75), [-2.0001, -1.9999, -1e-8, 1e-8]))
STDS = {True: [1.0, 3.7e-9], False: [1e-9, 1e-3, 0.1, 0.4999, 0.5, 2.0, 30.0, 1000.0]}


def cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def pdf(x):
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
            found = dict(
                zip(
                    worst,
                    [
                        *activation_moments(means, std, activation),
                        *slope_moments(means, std, activation),
                    ],
                )
            )
            for i, mean in enumerate(means):
                truth = exact(mean, std, activation)
                for name in worst:
                    # A mean that changes sign has no relative error at its zero: E|φ| is its scale.
                    scale = truth["size"] if name == "mean" and activation != "relu" else truth[name]
                    worst[name] = max(worst[name], abs(float((mp.mpf(float(found[name][i])) - truth[name]) / scale)))
    assert max(worst.values()) < 1e-12, worst


TORCH = {
    "relu": torch.relu,
    "leaky_relu": torch.nn.LeakyReLU(),
    "prelu": torch.nn.PReLU(dtype=torch.float64),
    "elu": torch.nn.ELU(),
    "selu": torch.nn.SELU(),
}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def quadrature(mean: float, std: float) -> tuple[torch.Tensor, np.ndarray]:
    """Points y and weights of N(mean, std²): 40 to a panel, panels that end at 0 and are short where e^y bends."""
    low, high = mean - 12 * std, mean + 12 * std
    edges = np.unique(np.concatenate((np.linspace(low, high, 61), np.arange(-40.0, 1.0))).clip(low, high))
    half = np.diff(edges)[:, None] / 2
    y = (edges[:-1, None] + half * (1 + NODES)).ravel()
    return torch.from_numpy(y), (half * WEIGHTS).ravel() * stats.norm(mean, std).pdf(y)


def value_and_slope(activation: str, y: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    """PyTorch's own."""
    y = y.detach().requires_grad_()
    x = TORCH[activation](y)
    (slope,) = torch.autograd.grad(x.sum(), y)
    return x.detach(), slope.numpy()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("mean", "std"), [(-3.0, 1.0), (0.4, 0.7), (-0.2, 0.05), (5.0, 2.0), (-1.0, 50.0)])
def test_the_exact_formulas_are_the_integrals_they_stand_for(activation: str, mean: float, std: float) -> None:
    """φ taken from PyTorch, its law integrated numerically: nothing here is shared with the product."""
    y, weight = quadrature(mean, std)
    x, slope = value_and_slope(activation, y)
    x = x.numpy()
    m, s = activation_moments(mean, std, activation)
    first, second = slope_moments(mean, std, activation)
    assert weight @ x == pytest.approx(float(m), rel=1e-11)
    assert weight @ (x - float(m)) ** 2 == pytest.approx(float(s) ** 2, rel=1e-11)
    assert weight @ slope == pytest.approx(float(first), rel=1e-11)
    assert weight @ slope**2 == pytest.approx(float(second), rel=1e-11)


def test_lemma_5_as_printed() -> None:
    mu, sigma = np.meshgrid(np.linspace(-3, 3, 13), [0.5, 1.0, 4.0])
    a = mu / sigma
    phi, big = stats.norm.pdf(a), ndtr(a)
    mean, std = rectified_moments(mu, sigma)
    np.testing.assert_allclose(mean, sigma * phi + mu * big, rtol=1e-12)
    variance = (mu**2 + sigma**2) * big + mu * sigma * phi - (sigma * phi + mu * big) ** 2
    np.testing.assert_allclose(std**2, variance, rtol=1e-10)


def test_half_of_a_centred_gaussian() -> None:
    mean, std = rectified_moments(0.0, 1.0)
    assert mean == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-15)
    assert std == pytest.approx(math.sqrt(0.5 - 0.5 / math.pi), rel=1e-15)


def test_far_out_the_relu_is_the_identity_or_zero() -> None:
    for alpha in (40.0, 1e8, 1e200):
        assert rectified_moments(alpha, 1.0) == (alpha, 1.0)
        assert rectified_moments(-alpha, 1.0) == (0.0, 0.0)


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


def test_positive_and_negative_part_make_up_the_gaussian() -> None:
    """y = p - n: E p - E n = μ and Var p + Var n + 2 E p E n = σ²."""
    (p, sp), (n, sn) = rectified_moments(ALPHAS, 1.0), rectified_moments(-ALPHAS, 1.0)
    np.testing.assert_allclose(p - n, ALPHAS, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(sp**2 + sn**2 + 2 * p * n, 1, rtol=1e-13)


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


def test_the_schemes_are_those_of_the_torch_package() -> None:
    assert list(stiefel_init.torch.SCHEMES) == list(SCHEMES)


def test_importing_the_theory_imports_no_framework() -> None:
    code = "import sys, stiefel_init.theory; print(sorted({'torch', 'jax', 'pandas', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 9), (9, 5), (6, 6)], ids=str)
def test_a_stiefel_layer_has_exactly_the_predicted_mean_and_average_variance(shape: tuple[int, int]) -> None:
    """For any member W and input N(μ, σ²I): E Wx = √(n/m)·μ·1 and tr Cov Wx / m = σ²·min(n/m, 1)."""
    m, n = shape
    W = sample(m, n, seed=0)
    p = propagate([n, m], mean=0.7, std=1.3)
    np.testing.assert_allclose(W @ np.full(n, 0.7), p.pre_mean[0], rtol=1e-13)
    assert 1.3**2 * np.trace(W @ W.T) / m == pytest.approx(p.pre_std[0] ** 2, rel=1e-13)
    assert np.trace(W @ W.T) / m * p.active[0] == pytest.approx(p.gradient_factor[0] ** 2, rel=1e-13)


@pytest.mark.parametrize("scheme", ["he", "xavier", "orthogonal", "random"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (40, 60), (60, 40)], ids=str)
def test_zero_mean_schemes_have_the_variance_of_the_weights_they_stand_for(scheme: str, shape: tuple[int, int]) -> None:
    """E y² = n·E W_ij²·(μ² + σ²), with E W_ij² from drawn weights: 5 standard errors, false alarm 1e-6 each."""
    m, n = shape
    count = min(200_000 // (m * n), 2000)
    generator = torch.Generator().manual_seed(0)
    initialize = stiefel_init.torch.SCHEMES[scheme]
    square = torch.stack(
        [initialize(torch.empty(m, n, dtype=torch.float64), generator=generator).square().mean() for _ in range(count)]
    )
    p = propagate([n, m], mean=0.7, std=1.3, scheme=scheme)
    assert p.pre_mean[0] == 0
    expected = p.pre_std[0] ** 2 / (n * (0.7**2 + 1.3**2))
    assert abs(float(square.mean()) - expected) < 5 * float(square.std()) / math.sqrt(count) + 1e-12
    assert p.gradient_factor[0] ** 2 == pytest.approx(n * expected / 2)


def test_he_keeps_the_mean_square_and_the_gradient() -> None:
    p = propagate([50, 70, 30, 30, 10], mean=0.4, std=0.9, scheme="he")
    np.testing.assert_allclose(np.hypot(p.post_mean, p.post_std), math.hypot(0.4, 0.9), rtol=1e-14)
    np.testing.assert_allclose(np.cumprod(p.gradient_factor**2 * p.fan_out / p.fan_in)[-1], 10 / 50)
    np.testing.assert_array_equal(p.active, 0.5)


def test_columns_follow_from_each_other() -> None:
    for scheme in SCHEMES:
        p = propagate([30, 20, 20, 40, 10], mean=0.4, std=0.9, scheme=scheme)
        np.testing.assert_array_equal(p.layer, [1, 2, 3, 4])
        np.testing.assert_array_equal(p.fan_in, [30, 20, 20, 40])
        np.testing.assert_array_equal(p.fan_out, [20, 20, 40, 10])
        np.testing.assert_allclose(p.alpha, p.pre_mean / p.pre_std)
        before = np.concatenate(([0.9], p.post_std[:-1]))
        np.testing.assert_allclose(p.variance_ratio, (p.post_std / before) ** 2)
        if scheme != "lee":
            np.testing.assert_allclose(p.active, ndtr(p.alpha), rtol=1e-14)
            np.testing.assert_allclose((p.post_mean, p.post_std), rectified_moments(p.pre_mean, p.pre_std), rtol=1e-14)


def test_under_stiefel_signal_and_gradient_fall_with_the_logarithm_of_depth_only() -> None:
    """α → √(2 log ℓ), units off → 1/(2ℓ log ℓ), std → mean/√(2 log ℓ), E‖gradient‖² ∝ 1/√log ℓ."""
    p = propagate([64] * 10_001, mean=0.0, std=1.0)
    assert (np.diff(p.alpha) > 0).all()
    assert (np.diff(p.post_mean) > 0).all()
    assert (np.diff(p.post_std) < 0).all()
    log = np.log(p.layer)[[99, 999, 9999]]
    np.testing.assert_allclose(p.alpha[[99, 999, 9999]], np.sqrt(2 * log), rtol=0.03)
    np.testing.assert_allclose((1 - p.active)[9999] * 2 * 10_000 * log[-1], 1, rtol=0.03)
    np.testing.assert_allclose(p.post_std[9999], p.post_mean[9999] / np.sqrt(2 * log[-1]), rtol=0.03)
    gradient = np.cumprod(p.gradient_factor**2)[[99, 999, 9999]]
    np.testing.assert_allclose(gradient * np.sqrt(log), gradient[-1] * np.sqrt(log[-1]), rtol=0.03)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (2, 7), (7, 2), (10, 64), (64, 10), (5, 5)], ids=str)
def test_lees_matrix_in_closed_form_is_the_one_by_factorization(shape: tuple[int, int]) -> None:
    W = stiefel_init.torch.lee_(torch.empty(shape, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(lee.matrix(*shape), W, atol=1e-12)


@pytest.mark.parametrize("n", [30, 5, 1])
def test_lee_is_followed_unit_by_unit_and_exactly(n: int) -> None:
    mean, std, m = 0.4, 0.9, 12
    W = lee.matrix(m, n)
    means, stds = mean * W.sum(1), std * np.linalg.norm(W, axis=1)
    assert np.ptp(means) > 0.01  # the units have different means
    p = propagate([n, m, m, m], mean=mean, std=std, scheme="lee")
    post, spread = rectified_moments(means, stds)
    assert p.pre_mean[0] == pytest.approx(means.mean(), rel=1e-12)
    assert p.pre_std[0] == pytest.approx(math.sqrt((stds**2).mean() + means.var()), rel=1e-12)
    np.testing.assert_allclose(p.active, ndtr(means / stds).mean(), rtol=1e-12)
    np.testing.assert_allclose(p.post_mean, post.mean(), rtol=1e-12)
    np.testing.assert_allclose(p.post_std, math.sqrt((spread**2).mean() + post.var()), rtol=1e-12)
    np.testing.assert_allclose(p.pre_std[1:], p.post_std[0], rtol=1e-12)
    np.testing.assert_allclose(p.gradient_factor**2, [min(n / m, 1), 1, p.active[0]], rtol=1e-12)


def test_lees_units_keep_their_means_from_one_rectangular_layer_to_the_next() -> None:
    """The mean of y is Wμ exactly, unit by unit, when x is followed unit by unit."""
    first, second = lee.matrix(12, 30), lee.matrix(4, 12)
    post, spread = rectified_moments(0.4 * first.sum(1), 0.9)
    p = propagate([30, 12, 4], mean=0.4, std=0.9, scheme="lee")
    means, variances = second @ post, second**2 @ spread**2
    assert p.pre_mean[1] == pytest.approx(means.mean(), rel=1e-12)
    assert p.pre_std[1] == pytest.approx(math.sqrt(variances.mean() + means.var()), rel=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("mean", "std"), [(0.3, 1.0), (-2.0, 0.1), (0.5, 60.0)])
def test_under_lee_square_layers_apply_the_activation_again_and_again(activation: str, mean: float, std: float) -> None:
    """φ∘φ∘φ of a Gaussian and the product of its slopes, PyTorch's φ integrated numerically."""
    p = propagate([7] * 4, mean=mean, std=std, scheme="lee", activation=activation)
    y, weight = quadrature(mean, std)
    slopes = []
    for layer in range(3):
        y, slope = value_and_slope(activation, y)
        slopes.append(slope**2)
        x = y.numpy()
        assert p.post_mean[layer] == pytest.approx(weight @ x, rel=1e-10, abs=1e-12 * std)
        assert p.post_std[layer] == pytest.approx(math.sqrt(weight @ (x - weight @ x) ** 2), rel=1e-10)
    # SELU's slope just below 0 is 1.76, so that of three in a row is steep there: 7 digits.
    digits = 1e-7 if activation == "selu" else 1e-10
    assert np.prod(p.gradient_factor**2) == pytest.approx(weight @ np.prod(slopes, axis=0), rel=digits)
    assert p.gradient_factor[-1] ** 2 == pytest.approx(weight @ slopes[-1], rel=1e-10)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(1, 1), (1, 1, 1), (1, 5), (5, 1), (3, 1, 4), (2, 2, 2)], ids=str)
def test_tiny_widths_give_finite_numbers(scheme: str, activation: str, widths: tuple[int, ...]) -> None:
    p = propagate(widths, mean=-0.2, std=1.0, scheme=scheme, activation=activation)
    assert len(p) == len(widths) - 1
    assert all(np.isfinite(column).all() for column in p.to_dict().values())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_signal_without_spread_is_followed_too(scheme: str) -> None:
    dead = propagate([9, 4, 4], mean=0.0, std=0.0, scheme=scheme)
    assert (dead.post_mean == 0).all()
    assert (dead.active == 0).all()
    assert np.isnan(dead.alpha).all()
    constant = propagate([9, 4, 4], mean=1.0, std=0.0, scheme=scheme)
    assert (constant.post_mean > 0).all()
    if scheme == "stiefel":
        np.testing.assert_allclose(constant.post_mean, 1.5)
        np.testing.assert_array_equal(constant.active, 1)
        np.testing.assert_array_equal(constant.post_std, 0)


def test_a_signal_beyond_the_range_of_numbers_ends_quietly() -> None:
    fades = propagate([64] * 3001, mean=1.0, std=1.0, scheme="xavier")
    assert fades.post_std[-1] < 1e-300
    grows = propagate([4096] * 1001, mean=1.0, std=1.0, scheme="random")
    assert np.isnan(grows.post_std[-1])
    assert np.isfinite(grows.post_std[:400]).all()


def test_every_inputs_own_mean_and_std() -> None:
    """One input twice is that input once; two inputs are their mixture; at layer 1 by hand."""
    one = propagate([30, 20, 20], mean=0.4, std=0.9)
    for scheme in SCHEMES:
        if scheme == "lee":
            continue
        one = propagate([30, 20, 20], mean=0.4, std=0.9, scheme=scheme)
        twice = propagate([30, 20, 20], mean=[0.4, 0.4], std=[0.9, 0.9], scheme=scheme)
        for name, column in one.to_dict().items():
            np.testing.assert_allclose(getattr(twice, name), column, rtol=1e-12, err_msg=name)
    both = propagate([30, 20], mean=[0.0, 1.0], std=[1.0, 0.5])
    root = math.sqrt(30 / 20)
    assert both.std == pytest.approx(math.sqrt((1 + 0.25) / 2 + 0.25))
    assert both.pre_mean[0] == pytest.approx(root / 2)
    assert both.pre_std[0] == pytest.approx(math.sqrt((1 + 0.25) / 2 + root**2 / 4))
    assert both.active[0] == pytest.approx((0.5 + ndtr(2 * root)) / 2)
    blank = propagate([30, 20, 20], mean=[0.0, 1.0], std=[0.0, 0.5])  # an image of zeros among them
    assert np.isfinite(blank.post_std).all()


def test_the_table_reads_and_converts() -> None:
    pandas = pytest.importorskip("pandas")
    p = propagate([784] + [64] * 100, mean=0.13, std=0.31)
    frame = pandas.DataFrame(p.to_dict())
    assert frame.shape == (100, 11)
    assert frame.alpha.iloc[0] == p.alpha[0]
    text = str(p).splitlines()
    assert text[0] == "stiefel, relu, input N(0.13, 0.31²)"
    assert len({len(line) for line in text[1:]}) == 1  # aligned
    assert len(text) == 2 + 12 + 1 + 12
    assert text[-1].split()[:3] == ["100", "64", "64"]
    assert len(str(propagate([3, 3, 3], mean=0, std=1)).splitlines()) == 4
    assert repr(p) == "<Propagation: stiefel, relu, 100 layers>"
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.alpha = p.alpha


def test_finite_width_orders() -> None:
    narrow, wide = (finite_width(propagate([n] * 51, mean=0.3, std=2.0)) for n in (10, 100))
    for name in ("mean", "std", "active"):
        np.testing.assert_allclose(getattr(narrow, name), 10 * getattr(wide, name))
    np.testing.assert_allclose(wide.mean, 2.0 / 100)
    he, orthogonal, lees = (
        finite_width(propagate([100] * 51, mean=0.3, std=2.0, scheme=s)) for s in ("he", "orthogonal", "lee")
    )
    assert he.log_shift[-1] == pytest.approx(-50 * 5 / 400)
    assert orthogonal.log_shift[-1] == pytest.approx(-50 * 3 / 400)
    assert not any(getattr(lees, f.name).any() for f in dataclasses.fields(lees))


def test_the_optimum_is_attained_by_members_only() -> None:
    for m, n in ((1, 1), (3, 8), (8, 3), (6, 6)):
        assert sample(m, n, seed=0).sum() == pytest.approx(alignment_optimum(m, n))
        q = torch.nn.init.orthogonal_(
            torch.empty(m, n, dtype=torch.float64), generator=torch.Generator().manual_seed(0)
        )
        assert float(q.sum()) < alignment_optimum(m, n) + 1e-12


@pytest.mark.parametrize(("m", "n"), [(8, 1000), (1000, 8), (64, 784), (300, 300)], ids=str)
def test_theorem_4_no_entry_exceeds_the_bound_and_the_bound_is_not_idle(m: int, n: int) -> None:
    """At c = 3 a draw exceeds it with probability below 2mn·Φ(-3√log q) < 1e-6; all of 20 reach 40 % of it."""
    bound = max_entry_bound(m, n, 3)
    largest = np.array([np.abs(sample(m, n, seed=seed)).max() for seed in range(20)])
    assert (largest < bound).all()
    assert (largest > 0.4 * bound).all()
    assert bound == max_entry_bound(n, m, 3)


def test_theorem_5_bounds_the_distance_from_gaussian_of_a_known_law() -> None:
    """m = 1: Wx is the sum of n χ²(3) over √n, so its law is χ²(3n): no simulation is needed."""
    third = 2.1638  # E|z|³ of a standardized χ²(3)
    found, _ = integrate.quad(lambda x: abs((x - 3) / math.sqrt(6)) ** 3 * stats.chi2(3).pdf(x), 0, 200, limit=200)
    assert third == pytest.approx(found, abs=5e-4)
    distance, bound = [], []
    for n in (100, 10_000, 1_000_000):
        x = np.linspace(-5, 5, 20_001)
        distance.append(np.abs(stats.chi2(3 * n).cdf(3 * n + x * math.sqrt(6 * n)) - ndtr(x)).max())
        bound.append(berry_esseen_bound(np.full((1, n), 1 / math.sqrt(n)), third))
    assert (np.array(distance) < bound).all()
    assert bound[-1] < 1
    np.testing.assert_allclose(np.divide(bound[:-1], bound[1:]), 10)
    np.testing.assert_allclose(np.divide(distance[:-1], distance[1:]), 10, rtol=0.02)


def test_theorem_5_constant_and_columns() -> None:
    W = sample(3, 50, seed=0)
    lengths = np.sqrt((W**2).sum(0))
    assert berry_esseen_bound(W, 2.0) == pytest.approx((42 * 3**0.25 + 16) * 2 * (lengths**3).sum())
    assert berry_esseen_bound(W, 2.0) >= 58 * 2 * 3 * math.sqrt(3 / 50)


def test_theorem_5_coordinates_of_a_skewed_input_become_gaussian_at_the_rate_of_its_skewness() -> None:
    """χ²(3), m = 4 fixed: the distance falls like 1/√n at least; sampling error below 0.006 (1e-6)."""
    rng = np.random.default_rng(0)
    distance = []
    for n in (6, 60):
        W = sample(4, n, seed=1)
        z = (rng.chisquare(3, (200_000, n)) @ W.T - 3 * math.sqrt(n / 4)) / math.sqrt(6)
        assert np.abs(np.cov(z.T) - np.eye(4)).max() < 0.05
        distance.append(max(stats.kstest(column, ndtr).statistic for column in z.T))
    assert distance[0] > 0.04
    assert distance[1] < distance[0] / math.sqrt(10) + 0.006


def test_shifted_data_have_the_alpha_asked_for() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(5, 3, (200, 7))
    z = (x - x.mean(0)) / x.std(0)
    for alpha in (-2, 0, FAVOURED_ALPHA, 50):
        shifted = shift_for_alpha(z, alpha)
        assert shifted.mean() / shifted.std() == pytest.approx(alpha, abs=1e-12)
        np.testing.assert_allclose(shifted, z + alpha, atol=1e-12)  # the paper's way: standardize, then add α
    raw = shift_for_alpha(x)
    assert raw.mean() / raw.std() == pytest.approx(2)
    np.testing.assert_allclose(raw - x, (raw - x)[0, 0])
    assert shift_for_alpha(x.astype(np.float32)).dtype == np.float32
    assert shift_for_alpha([[1, 2], [3, 4]]).dtype == np.float64


BAD: list[tuple] = [
    (rectified_moments, (math.nan, 1), {}, ["mean", "nan"]),
    (rectified_moments, ([0, math.inf], 1), {}, ["mean", "inf"]),
    (rectified_moments, (0, -1), {}, ["std", "-1", "negative"]),
    (rectified_moments, (0, [1, math.nan]), {}, ["std", "nan"]),
    (rectified_moments, ("zero", 1), {}, ["mean='zero'"]),
    (rectified_moments, (0, None), {}, ["std", "finite"]),
    (activation_moments, (0, 1, "gelu"), {}, ["activation='gelu'", "'relu'", "'selu'"]),
    (activation_moments, (0, 1, None), {}, ["activation=None"]),
    (activation_moments, (0, 1, "relu"), {"a": 1}, ["a=1", "relu", "none"]),
    (activation_moments, (0, 1, "elu"), {"slope": 1}, ["slope=1", "'alpha'"]),
    (slope_moments, (0, 1, "prelu"), {"a": math.nan}, ["a", "nan"]),
    (propagate, ([64],), {"mean": 0, "std": 1}, ["widths=[64]", "two or more"]),
    (propagate, (64,), {"mean": 0, "std": 1}, ["widths=64"]),
    (propagate, ("64",), {"mean": 0, "std": 1}, ["widths='64'"]),
    (propagate, ([64, 0],), {"mean": 0, "std": 1}, ["widths[1]=0"]),
    (propagate, ([64, -3],), {"mean": 0, "std": 1}, ["widths[1]=-3"]),
    (propagate, ([64, 2.5],), {"mean": 0, "std": 1}, ["widths[1]=2.5"]),
    (propagate, ([2, 2],), {"mean": 0, "std": -1}, ["std", "-1"]),
    (propagate, ([2, 2],), {"mean": math.nan, "std": 1}, ["mean", "nan"]),
    (propagate, ([2, 2],), {"mean": [0, 1], "std": 1}, ["(2,)", "()"]),
    (propagate, ([2, 2],), {"mean": [], "std": []}, ["(0,)"]),
    (propagate, ([2, 2],), {"mean": [0], "std": [1], "scheme": "lee"}, ["'lee'"]),
    (propagate, ([2, 2],), {"mean": 0, "std": 1, "scheme": "kaiming"}, ["scheme='kaiming'", "'he'"]),
    (propagate, ([2, 2],), {"mean": 0, "std": 1, "scheme": ["he"]}, ["scheme=['he']"]),
    (propagate, ([2, 2],), {"mean": 0, "std": 1, "activation": "tanh"}, ["activation='tanh'"]),
    (finite_width, (propagate([2, 2], mean=0, std=1, activation="elu"),), {}, ["'elu'", "'relu'"]),
    (alignment_optimum, (0, 3), {}, ["m=0"]),
    (alignment_optimum, (3, "4"), {}, ["n='4'"]),
    (max_entry_bound, (3, 4, 2), {}, ["c=2", "above 2"]),
    (max_entry_bound, (3, 4, math.inf), {}, ["c=inf"]),
    (max_entry_bound, (3, -4, 3), {}, ["n=-4"]),
    (berry_esseen_bound, (np.ones(3), 2), {}, ["(3,)"]),
    (berry_esseen_bound, (sample(5, 3, seed=0), 2), {}, ["(5, 3)", "m ≤ n"]),
    (berry_esseen_bound, (np.ones((2, 3)), 2), {}, ["orthonormal rows"]),
    (berry_esseen_bound, (np.full((2, 3), np.nan), 2), {}, ["orthonormal rows"]),
    (berry_esseen_bound, ("W", 2), {}, ["str"]),
    (berry_esseen_bound, (np.eye(3), 0.5), {}, ["third_moment=0.5"]),
    (berry_esseen_bound, (np.eye(3), math.nan), {}, ["third_moment=nan"]),
    (shift_for_alpha, ([1.0, 2.0],), {}, ["(2,)", "(samples, features)"]),
    (shift_for_alpha, (np.empty((0, 3)),), {}, ["(0, 3)"]),
    (shift_for_alpha, ([[1.0, math.nan]],), {}, ["missing values"]),
    (shift_for_alpha, ([[3.0, 3.0]],), {}, ["3.0 everywhere"]),
    (shift_for_alpha, ([["a", "b"]],), {}, ["list"]),
    (shift_for_alpha, ([[1.0, 2.0]], math.nan), {}, ["alpha=nan"]),
]


@pytest.mark.parametrize(("call", "arguments", "options", "words"), BAD)
def test_bad_input_is_told_in_one_sentence(call, arguments: tuple, options: dict, words: list[str]) -> None:
    with pytest.raises(StiefelError) as error:
        call(*arguments, **options)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert all(word in text for word in words), text
