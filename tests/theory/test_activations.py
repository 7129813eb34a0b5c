"""Activations of one's own: registered by name, their moments by quadrature, followed by `propagate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import PAPER_SCHEMES, assert_refused

from stiefel_init.theory import (
    ACTIVATIONS,
    activation_moments,
    activations,
    finite_width,
    propagate,
    register_activation,
    slope_moments,
)
from stiefel_init.theory import moments as _moments


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(_moments, "_REGISTRY", dict(_moments._REGISTRY))


@pytest.fixture
def own() -> None:
    """The hyperbolic tangent; the ReLU, which bends at 0, and the ELU once more; and a constant."""
    register_activation("hyperbolic", lambda y, xp: xp.tanh(y), lambda y, xp: 1 - xp.tanh(y) ** 2)
    register_activation("my_relu", lambda y, xp: xp.where(y > 0, y, 0 * y), lambda y, xp: 1.0 * (y > 0))
    register_activation(
        "my_elu",
        lambda y, xp: xp.where(y > 0, y, xp.expm1(xp.where(y > 0, 0 * y, y))),
        lambda y, xp: xp.exp(xp.where(y > 0, 0 * y, y)),
    )
    register_activation("three", lambda y, xp: 3 + 0 * y, lambda y, xp: 0 * y)


@pytest.mark.parametrize("known", ["relu", "elu"])
@pytest.mark.usefixtures("own")
def test_quadrature_gives_what_the_closed_forms_give(known: str) -> None:
    """To 1e-12 of σ or of 1 for |α| ≤ 9: further out the mass that the ReLU sees is less than rounding."""
    alpha = np.linspace(-9, 9, 37)
    for std in (1e-3, 0.4, 1.0, 7.0):
        expected = [*activation_moments(alpha * std, std, known), *slope_moments(alpha * std, std, known)]
        name = f"my_{known}"
        found = [*activation_moments(alpha * std, std, name), *slope_moments(alpha * std, std, name)]
        for a, b, scale in zip(found, expected, (std, std, 1, 1)):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * scale)


@pytest.mark.usefixtures("own")
def test_constants_numbers_without_spread_and_arrays() -> None:
    mean, std = activation_moments([-2.0, 0.0, 5.0], 1.0, "three")
    np.testing.assert_allclose(mean, 3, rtol=1e-12)
    np.testing.assert_allclose(std, 0, atol=1e-7)
    np.testing.assert_array_equal(slope_moments([-2.0, 0.0, 5.0], 1.0, "three"), 0)
    y = np.array([-3.0, 0.0, 0.5])
    np.testing.assert_array_equal(activation_moments(y, 0.0, "hyperbolic"), (np.tanh(y), 0 * y))
    slope = 1 - np.tanh(y) ** 2
    np.testing.assert_allclose(slope_moments(y, 0.0, "hyperbolic"), (slope, slope**2))
    mean, std = activation_moments(np.zeros((3, 1)), np.array([0.5, 1.0, 2.0, 0.0]), "hyperbolic")
    assert mean.shape == std.shape == (3, 4)
    alone = [float(activation_moments(0.0, s, "hyperbolic")[1]) for s in (0.5, 1.0, 2.0, 0.0)]
    np.testing.assert_allclose(std, np.tile(alone, (3, 1)))
    assert all(moment.shape == (3, 4) for moment in slope_moments(np.zeros((3, 1)), np.ones(4), "hyperbolic"))


@pytest.mark.parametrize("scheme", [scheme for scheme in PAPER_SCHEMES if scheme != "lee"])
@pytest.mark.usefixtures("own")
def test_propagate_follows_it_as_it_follows_the_products_own(scheme: str) -> None:
    widths = [30, 20, 20, 40]
    for mean, std in ((0.4, 0.9), (np.array([0.1, 0.7]), np.array([1.0, 0.3]))):
        own, known = (
            propagate(widths, mean=mean, std=std, scheme=scheme, activation=name) for name in ("my_relu", "relu")
        )
        for name, column in known.to_dict().items():
            np.testing.assert_allclose(getattr(own, name), column, rtol=1e-9, err_msg=name)
    p = propagate(widths, mean=0.4, std=0.9, scheme=scheme, activation="hyperbolic")
    np.testing.assert_allclose(
        (p.post_mean, p.post_std), activation_moments(p.pre_mean, p.pre_std, "hyperbolic"), rtol=1e-9, atol=1e-15
    )
    assert str(p).startswith(f"{scheme}, hyperbolic, input N(0.4, 0.9²)")


def test_names_are_known_once_registered_and_the_last_definition_counts() -> None:
    before = activations()
    assert before[: len(ACTIVATIONS)] == ACTIVATIONS
    assert "doubled" not in before
    register_activation("doubled", lambda y, xp: 3 * y, lambda y, xp: 3 + 0 * y)
    register_activation("doubled", lambda y, xp: 2 * y, lambda y, xp: 2 + 0 * y)
    assert activations() == (*before, "doubled")
    mean, std = activation_moments(0.5, 1.5, "doubled")
    assert (float(mean), float(std)) == pytest.approx((1.0, 3.0), rel=1e-12)


@pytest.mark.parametrize("name", ["tanh", "gelu", "silu"])
def test_smooth_activations_are_those_of_pytorch_in_both_namespaces(name: str) -> None:
    function: Any = _moments.resolve(name, {})
    y = torch.linspace(-12, 12, 97, dtype=torch.float64, requires_grad=True)
    expected = getattr(torch.nn.functional, name)(y)
    (slope,) = torch.autograd.grad(expected.sum(), y)
    points = y.detach()
    for xp, here in ((np, points.numpy()), (torch, points)):
        np.testing.assert_allclose(function(here, xp), expected.detach(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(function.slope(here, xp), slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["", "two words", "1st", "a-b", "a.b", None, 3, *ACTIVATIONS, "tanh", "gelu", "silu"])
def test_names_that_are_no_words_or_taken_are_refused(name: Any) -> None:
    before = activations()
    assert_refused(lambda: register_activation(name, lambda y, xp: y, lambda y, xp: 1 + 0 * y), [f"name={name!r}"])
    assert activations() == before
    assert name not in before or float(activation_moments(-1.0, 0.0, name)[0]) != -1.0


@pytest.mark.usefixtures("own")
def test_a_registered_activation_is_refused_as_the_others_are() -> None:
    for call, words in (
        (lambda: activation_moments(0, 1, "hyperbolic", a=1), ["a=1", "'hyperbolic'", "it takes none"]),
        (lambda: activation_moments(0, 1, "unheard"), ["activation='unheard'", "'relu'", "'hyperbolic'"]),
        (lambda: propagate([4, 4], mean=0, std=1, scheme="identity", activation="hyperbolic"), ["'hyperbolic'"]),
        (lambda: finite_width(propagate([4, 4], mean=0, std=1, activation="hyperbolic")), ["'hyperbolic'", "'relu'"]),
    ):
        assert_refused(call, words)
