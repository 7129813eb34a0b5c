"""Predictions layer by layer against exact cases, for every scheme and activation; and their table."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from conftest import ALL_SCHEMES, PAPER_SCHEMES, assert_refused, quadrature, value_and_slope
from scipy.special import ndtr

from stiefel_init import sample
from stiefel_init.schemes import Lee, Orthogonal
from stiefel_init.theory import ACTIVATIONS, finite_width, propagate, rectified_moments


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 9), (9, 5), (6, 6)], ids=str)
def test_a_stiefel_layer_has_exactly_the_predicted_mean_and_average_variance(shape: tuple[int, int]) -> None:
    """For any member W and input N(μ, σ²I): E Wx = √(n/m)·μ·1 and tr Cov Wx / m = σ²·min(n/m, 1)."""
    m, n = shape
    W = sample(m, n, seed=0)
    p = propagate([n, m], mean=0.7, std=1.3)
    np.testing.assert_allclose(W @ np.full(n, 0.7), p.pre_mean[0], rtol=1e-13)
    assert 1.3**2 * np.trace(W @ W.T) / m == pytest.approx(p.pre_std[0] ** 2, rel=1e-13)
    assert np.trace(W @ W.T) / m * p.active[0] == pytest.approx(p.gradient_factor[0] ** 2, rel=1e-13)


UNPREDICTED = ("rotation 0.1", "rotation 1", "lee direct", "idinit", "torch", "zero", "sinusoidal")


@pytest.mark.parametrize("scheme", [scheme for scheme in ALL_SCHEMES if scheme not in UNPREDICTED])
def test_every_scheme_is_predicted(scheme: str) -> None:
    p = propagate([30, 10, 10], mean=0.3, std=1.0, scheme=scheme)
    assert p.scheme == scheme
    assert np.isfinite(p.post_std).all()
    assert np.isfinite(finite_width(p).std).all()


@pytest.mark.parametrize("scheme", UNPREDICTED)
def test_or_says_that_it_is_not(scheme: str) -> None:
    assert_refused(lambda: propagate([30, 10, 10], mean=0.3, std=1.0, scheme=scheme), ["has no prediction"])


def test_a_scheme_and_its_parameters_are_in_the_prediction() -> None:
    by_name, by_value = (propagate([30, 10], mean=0.3, std=1.0, scheme=s) for s in ("orthogonal 2", Orthogonal(2.0)))
    assert by_name.scheme == by_value.scheme == "orthogonal 2"
    np.testing.assert_array_equal(by_name.post_std, by_value.post_std)
    plain, doubled = (propagate([30, 40], mean=0.3, std=1.0, scheme=s) for s in ("orthogonal", "orthogonal 2"))
    assert doubled.pre_std[0] == pytest.approx(2 * plain.pre_std[0])
    assert doubled.gradient_factor[0] == pytest.approx(2 * plain.gradient_factor[0])
    small = propagate([30, 40], mean=0.3, std=1.0, scheme="random 0.02")
    assert small.pre_std[0] == pytest.approx(0.02 * math.sqrt(30 * (0.3**2 + 1)))


def test_columns_follow_from_each_other() -> None:
    for scheme in PAPER_SCHEMES:
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


@pytest.mark.parametrize("n", [30, 5, 1])
def test_lee_is_followed_unit_by_unit_and_exactly(n: int) -> None:
    mean, std, m = 0.4, 0.9, 12
    W = Lee().matrix(m, n)
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


@pytest.mark.parametrize("scheme", PAPER_SCHEMES)
def test_tiny_widths_give_finite_numbers(scheme: str) -> None:
    for activation, widths in itertools.product(ACTIVATIONS, ((1, 1, 1), (1, 5), (5, 1), (3, 1, 4), (2, 2, 2))):
        p = propagate(widths, mean=-0.2, std=1.0, scheme=scheme, activation=activation)
        assert len(p) == len(widths) - 1
        assert all(np.isfinite(column).all() for column in p.to_dict().values()), (activation, widths)


@pytest.mark.parametrize("scheme", PAPER_SCHEMES)
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
    for scheme in (scheme for scheme in PAPER_SCHEMES if scheme != "lee"):
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
        p.alpha = p.alpha  # type: ignore[misc]


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
