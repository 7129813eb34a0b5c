r"""Signal and gradient layer by layer, before a network exists: `propagate`, and what finite width adds to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..core import validate
from ..core.errors import StiefelError
from ..core.sample import Member, member_scheme
from ..core.text import columns
from ..schemes import Distribution, Lee, Orthogonal, Scheme, SchemeName, Stiefel, get
from . import lee
from .moments import RELU, Activation, ActivationName, backward, deviation, finite, moments, resolve, slopes

_COLUMNS = (
    "layer", "fan_in", "fan_out", "pre_mean", "pre_std", "alpha", "active", "post_mean", "post_std", "variance_ratio",
    "gradient_factor",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Propagation:
    """What `propagate` predicts: one entry per layer in every array.

    >>> propagate([784, 64, 64], mean=0.13, std=0.31)
    <Propagation: stiefel, relu, 2 layers>
    """

    scheme: str
    activation: str
    mean: float
    std: float
    layer: np.ndarray
    """1, 2, …"""
    fan_in: np.ndarray
    fan_out: np.ndarray
    pre_mean: np.ndarray
    pre_std: np.ndarray
    alpha: np.ndarray
    """pre_mean / pre_std; nan where both are 0."""
    active: np.ndarray
    """The fraction of pre-activations above 0."""
    post_mean: np.ndarray
    post_std: np.ndarray
    variance_ratio: np.ndarray
    """post_std² divided by that of the layer before; for the first layer, by the input's."""
    gradient_factor: np.ndarray
    """√( E‖∂L/∂x_{ℓ-1}‖² / E‖∂L/∂x_ℓ‖² ); the product over layers is what reaches the input."""
    chosen: Scheme
    """The scheme itself."""

    def __len__(self) -> int:
        return len(self.layer)

    def to_dict(self) -> dict[str, np.ndarray]:
        """Column name → array, as for `pandas.DataFrame(p.to_dict())`.

        >>> propagate([9, 4], mean=1, std=1).to_dict()["fan_in"]
        array([9])
        """
        return {name: getattr(self, name) for name in _COLUMNS}

    def __repr__(self) -> str:
        return f"<Propagation: {self.scheme}, {self.activation}, {len(self)} layers>"

    def __str__(self) -> str:
        rows = [[*map(str, row[:3]), *(f"{v:.4g}" for v in row[3:])] for row in zip(*self.to_dict().values())]
        lines = columns([name.replace("_", " ") for name in _COLUMNS], rows, left=0)
        return "\n".join([f"{self.scheme}, {self.activation}, input N({self.mean:g}, {self.std:g}²)", *lines])


def propagate(
    widths: Any,
    *,
    mean: Any,
    std: Any,
    scheme: SchemeName | Scheme = "stiefel",
    activation: ActivationName = "relu",
    member: Member = "uniform",
    **parameters: float,
) -> Propagation:
    r"""Predict mean, spread, active fraction and gradient through y_ℓ = W_ℓ x_{ℓ-1}, x_ℓ = f(y_ℓ), before training.

    `widths` = (N₀, …, N_L) gives L layers, all treated alike: drop the last row if no activation follows your output
    layer. Biases are zero. With μ and σ the mean and std of a layer's input and m × n its weight, y is taken as
    Gaussian with

        stiefel     mean √(n/m)·μ,  std √min(n/m, 1)·σ
        he, xavier, orthogonal, random
                    mean 0,  std √(n·v)·√(μ² + σ²),  v = Var W_ij = 2/n, 2/(m+n), 1/max(m,n), 0.01
        lee         its own matrix (ε = 0.1), unit by unit; where m = n the identity

    and the activation gives the next μ and σ. A mean or std in the result is that of one coordinate, pooled over the
    layer's units, the inputs and the draws of the network; `finite_width` says how far off one network may be. A
    signal beyond float64's range is nan.

    Args:
        widths: N₀, …, N_L.
        mean: Mean of an input's coordinates, which are taken as independent; or an array with each input's own mean,
            `x.mean(1)`. The array is more accurate for data that are not noise, such as images: except under `"lee"`,
            the weights single out no direction but the all-ones one, so nothing else about an input matters.
        std: Likewise, `x.std(1)`.
        scheme: A name of `stiefel_init.schemes`. `"permutation"` and `"identity"`, where they are not uniform, keep a
            non-negative signal as it is: under ReLU, from the second layer on, only the shape of a layer changes
            anything. They are predicted for ReLU only, and rotations not at all.
        activation: As in `activation_moments`.
        member: Member of the set for `scheme="stiefel"`; another way to name these schemes.
        parameters: Of the activation.

    >>> p = propagate([784, 64, 64], mean=0.13, std=0.31)
    >>> p.alpha.round(3).tolist(), p.active.round(3).tolist()
    ([1.468, 1.597], [0.929, 0.945])
    """
    sizes = _widths(widths)
    chosen = get(scheme)
    if member != "uniform":
        if chosen != Stiefel():
            raise StiefelError(f"member={member!r} belongs to scheme='stiefel'; leave it out for {str(scheme)!r}.")
        chosen = member_scheme(member, 0.1)
    if isinstance(chosen, Lee) and chosen != Lee():
        raise StiefelError(f"scheme={str(chosen)!r} has no prediction; 'lee' (the product form, ε = 0.1) has one.")
    inputs = _inputs(finite("mean", mean), deviation("std", std), chosen)
    function = resolve(activation, parameters)
    distributions = []
    if not isinstance(chosen, Lee):
        distributions = [chosen.distribution(m, n) for n, m in pairwise(sizes)]
        if activation != "relu" and any(each.non_negative for each in distributions):
            raise StiefelError(f"scheme={str(chosen)!r} is predicted for activation='relu', not {activation!r}.")
        distributions[0] = distributions[0]._replace(non_negative=False)  # its input may be negative
    start_mean, start_std = map(float, _pooled(*inputs))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        rows = (
            _follow(distributions, sizes, *inputs, function)
            if distributions
            else lee.rows(sizes, start_mean, start_std, function)
        )
        pre_mean, pre_std, active, post_mean, post_std, factor = rows.T
        before = np.concatenate(([start_std], post_std[:-1]))
        return Propagation(
            str(chosen), activation, start_mean, start_std,
            np.arange(1, len(sizes)), np.array(sizes[:-1]), np.array(sizes[1:]),
            pre_mean, pre_std, pre_mean / pre_std, active, post_mean, post_std, (post_std / before) ** 2, factor,
            chosen,
        )  # fmt: skip


def _follow(
    distributions: list[Distribution], widths: list[int], mean: Any, std: Any, activation: Activation
) -> np.ndarray:
    """For each layer: pre-activation mean and std, active fraction, post-activation mean and std, gradient factor."""
    result = np.full((len(widths) - 1, 6), math.nan)
    gains: list[float] = []
    slope_squares: list[Any] = []
    active = 1.0
    for row, n, m, distribution in zip(result, widths, widths[1:], distributions):
        if distribution.aligned:
            gain = min(n / m, 1.0)
            mean, std = mean * math.sqrt(n / m), std * math.sqrt(gain)
        else:
            gain = n * distribution.variance
            mean, std = mean * 0.0, math.sqrt(gain) * np.hypot(mean, std)
        if not np.isfinite(mean + std).all():
            break
        row[:2] = _pooled(mean, std)
        if distribution.non_negative:
            # A unit that sums k of them is active if one of them is. The gradient has passed this layer's mask when
            # it comes to the one before, which then stops only what it alone would.
            before, active = active, 1 - (1 - active) ** max(n // m, 1)
            slope_squares[-1] = slope_squares[-1] * 0 + before / active
            slope_square = mean * 0 + active
        else:
            active, slope_square = slopes(RELU, mean, std)[0].mean(), slopes(activation, mean, std)[1]
            mean, std = moments(activation, mean, std)
        row[2:5] = active, *_pooled(mean, std)
        gains.append(gain)
        slope_squares.append(slope_square)
    count = np.size(mean)
    result[: len(gains), 5] = np.sqrt(np.multiply(gains, backward(slope_squares, np.full(count, 1 / count))))
    return result


def _pooled(mean: Any, std: Any) -> tuple[Any, Any]:
    """Mean and std of an equal mixture of distributions with those means and stds."""
    if isinstance(mean, float):
        return mean, std
    scale = max(float(std.max()), float(np.abs(mean).max()), 1e-300)  # squares must not underflow
    return mean.mean(), scale * np.sqrt(np.var(mean / scale) + np.mean((std / scale) ** 2))


def _inputs(mean: np.ndarray, std: np.ndarray, scheme: Scheme) -> tuple[Any, Any]:
    if mean.ndim == std.ndim == 0:
        return float(mean), float(std)
    if isinstance(scheme, Lee):
        raise StiefelError("scheme='lee' treats coordinates differently, so give one mean and one std for all inputs.")
    if mean.shape != std.shape or mean.ndim != 1 or not mean.size:
        raise StiefelError(
            f"mean has shape {mean.shape} and std {std.shape}; give two numbers, or two lists of equal length."
        )
    return mean, std


def _widths(widths: Any) -> list[int]:
    try:
        entries = list(widths)
    except TypeError:
        entries = []
    if isinstance(widths, str) or len(entries) < 2:
        raise StiefelError(f"widths={widths!r} has no layer; give two or more sizes, the input's first.")
    return [validate.size(f"widths[{i}]", entry, at_least=1) for i, entry in enumerate(entries)]


@dataclass(frozen=True, slots=True, eq=False)
class FiniteWidth:
    """How far networks of finite width lie from a `Propagation`: one entry per layer in every array.

    >>> finite_width(propagate([64, 64], mean=0.0, std=1.0)).active
    array([0.015625])
    """

    log_shift: np.ndarray
    """E log(scale of one network and input / predicted scale); minus it is the variance of that log."""
    mean: np.ndarray
    """How far the post-activation mean may be off besides, …"""
    std: np.ndarray
    """… the post-activation std, …"""
    active: np.ndarray
    """… and the active fraction."""


def finite_width(propagation: Propagation) -> FiniteWidth:
    r"""The finite-width term of a ReLU prediction: how far layers of width N may be off.

    he, xavier, orthogonal, random: with ‖x_ℓ‖² / ‖x_{ℓ-1}‖² a mean of N_ℓ terms, log ‖x_ℓ‖ is a random walk over the
    layers with drift -D and variance D, where

        D = ¼ Σ_{k≤ℓ} (5/N_k - [orthogonal] 2/max(N_k, N_{k-1})),     5 = E g⁺⁴ / (E g⁺²)² - 1, g⁺ = max(g, 0).

    So E‖x_ℓ‖² is as predicted, but a typical network is smaller by e^{-D}: `log_shift` = -D. The next term is a
    relative 2(1 + D)/N in mean and std. The active fraction is exactly ½.

    stiefel: σ/N in the mean, √(1 + log ℓ)·σ/N in the std, 1/N in the active fraction, σ the input's std and N the
    narrowest layer so far. An input's own level (its mean over units) has variance σ²/N and persists, while the spread
    about it falls with depth like 1/√log ℓ. This assumes that (1 - active)^N, the chance that an input turns a whole
    layer off for good, is small. lee: nothing, for Gaussian input.

    The orders are derived; the constants 2, 1, 1 and 1 come from simulation: see docs/theory.md.

    >>> term = finite_width(propagate([64] * 101, mean=0.3, std=1.0, scheme="he"))
    >>> round(float(term.log_shift[-1]), 3)  # a He network 64 wide and 100 deep: e^-1.95 = 1/7 of the prediction
    -1.953
    """
    p = propagation
    if p.activation != "relu":
        raise StiefelError(f"activation={p.activation!r} has no finite-width term here; propagate with 'relu'.")
    none = np.zeros(len(p))
    scheme = p.chosen
    if isinstance(scheme, Lee):
        return FiniteWidth(none, none, none, none)
    if scheme.distribution(1, 1).aligned:
        order = 1 / np.minimum.accumulate(p.fan_out)
        return FiniteWidth(none, p.std * order, p.std * order * np.sqrt(1 + np.log(p.layer)), order)
    kept = 2 / np.maximum(p.fan_in, p.fan_out) if isinstance(scheme, Orthogonal) else none
    variance = np.cumsum(5 / p.fan_out - kept) / 4
    relative = 2 * (1 + variance) / p.fan_out
    return FiniteWidth(-variance, relative * p.post_mean, relative * p.post_std, none)
