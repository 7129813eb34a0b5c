r"""Moments of activations of a Gaussian: of the ReLU (Lemma 5), LeakyReLU, PReLU, ELU and SELU.

Everything is computed for y = σ·(α + g), g standard normal and α = mean/std, in units of σ. φ and Φ are the standard
normal density and distribution function, f an activation. `propagate` applies it layer by layer.

Note [closed forms and where they cancel]
    With p = max(y, 0) and n = max(-y, 0), so that y = p - n and pn = 0,

        E p = σ(φ(α) + αΦ(α)),     E n = σ(φ(α) - αΦ(-α)),     Var p = σ²Φ(α) - E p · E n.

    The last is Lemma 5's variance without its cancellation at large α. At α < -2 the terms of E p and of Var p are up
    to α² and α⁴ times their difference. The exponential part of the ELU, q = 1 - e^{-n}, has

        E[e^{ky}; y < 0] = e^{kασ + k²σ²/2} Φ(-α - kσ) = φ(α) Φ(-α - kσ)/φ(α + kσ),

    so its moments are differences of those terms, of which nothing remains as σ → 0, where networks die. In both
    places the integral over the half line is evaluated instead: Gauss–Legendre, every term positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import special
from scipy.special import erfcx, ndtr

from ..core.errors import StiefelError, unknown
from .tailored import tailored_scale, tailored_slope

Array = np.ndarray
ActivationName = Literal["relu", "leaky_relu", "prelu", "elu", "selu"] | str
"""One of `ACTIVATIONS`, or a name given to `register_activation`."""

_TAIL = -2.0  # below this α the ReLU's moments come from the half line
_SMALL_STD = 0.5  # below this σ the ELU's do
REACH = 9.4  # standard deviations: exp(-9.4²/2) is below 1e-19
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = ((_NODES + 1) / 2) ** 2, (_NODES + 1) / 2 * _WEIGHTS  # on [0, 1], denser at 0


def density(x: Any) -> Any:
    """φ(x), the standard normal density."""
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def half_line(alpha: Any) -> tuple[Array, Array, Array]:
    """x, x + α (which cancels if computed from large x and α) and w with ∫₀^∞ h(x) φ(x + α) dx = Σ w h(x) for smooth h.

    The points lie along a new last axis.
    """
    alpha = np.asarray(alpha)[..., None]
    start = np.maximum(alpha, -REACH)
    width = np.hypot(np.maximum(alpha, 0), REACH) - start
    step = width * _NODES
    return (start - alpha) + step, start + step, width * _WEIGHTS * density(start + step)


def rectified(alpha: Any) -> tuple[Any, Any]:
    """Mean and variance of max(α + g, 0)."""
    above, phi = ndtr(alpha), density(alpha)
    mean = phi + alpha * above
    variance = above - mean * (phi - alpha * ndtr(-alpha))
    tail = np.less(alpha, _TAIL)
    if tail.any():
        x, _, weight = half_line(-np.minimum(alpha, _TAIL))
        tail_mean = np.vecdot(weight, x)
        mean = np.where(tail, tail_mean, mean)
        variance = np.where(tail, np.vecdot(weight, x * x) - tail_mean**2, variance)
    return mean, variance


def tilted(alpha: Any, std: Any, k: int) -> Any:
    """E[e^{ky}; y < 0]."""
    c = alpha + k * std
    scaled = density(alpha) * erfcx(np.maximum(c, 0) / math.sqrt(2)) * math.sqrt(math.pi / 2)
    plain = np.exp(np.minimum(k * std * (alpha + k * std / 2), 0)) * ndtr(-c)
    return np.where(c > 0, scaled, plain)


@dataclass(frozen=True, slots=True)
class TwoSided:
    """scale·y for y > 0; for y ≤ 0 scale·a·y, or scale·a·(e^y - 1) if it bends."""

    a: float
    scale: float = 1.0
    bends: bool = False

    def __call__(self, y: Any) -> Any:
        below = np.expm1(np.minimum(y, 0)) if self.bends else y
        return self.scale * np.where(y > 0, y, self.a * below) + 0.0  # no negative zeros

    def slope(self, y: Any) -> Any:
        below = np.exp(np.minimum(y, 0)) if self.bends else 1.0
        return self.scale * np.where(y > 0, 1.0, self.a * below)

    def moments(self, alpha: Any, std: Any) -> tuple[Any, Any]:
        """(E f/σ, Var f/σ²), with f = scale·(p - a·q), q = n or 1 - e^{-n}, and Cov(p, q) = -E p · E q."""
        mean, variance = rectified(alpha)
        q, q_variance = 0.0, 0.0
        if self.a:
            q, q_variance = _exponential_part(alpha, std) if self.bends else rectified(-alpha)
        spread = variance + self.a**2 * q_variance + 2 * self.a * mean * q
        return self.scale * (mean - self.a * q), self.scale**2 * spread

    def slope_moment(self, alpha: Any, std: Any, k: int) -> Any:
        """E f'^k."""
        below = tilted(alpha, std, k) if self.bends else ndtr(-alpha)
        return self.scale**k * (ndtr(alpha) + self.a**k * below)


Pointwise = Callable[[Any, Any], Any]  # (y, the array namespace of y) -> an array like y


@dataclass(frozen=True, slots=True)
class Function:
    """Any f and its slope; the moments by quadrature over both half lines, so that f may bend at 0."""

    f: Pointwise
    df: Pointwise

    def __call__(self, y: Any, xp: Any = np) -> Any:
        return self.f(y, xp)

    def slope(self, y: Any, xp: Any = np) -> Any:
        return self.df(y, xp)

    def moments(self, alpha: Any, std: Any) -> tuple[Any, Any]:
        mean = _expected(self, alpha, std)
        return mean / std, _expected(lambda y: (self(y) - np.asarray(mean)[..., None]) ** 2, alpha, std) / std**2

    def slope_moment(self, alpha: Any, std: Any, k: int) -> Any:
        return _expected(lambda y: self.slope(y) ** k, alpha, std)


Activation = TwoSided | Function
"""f, its slope, and the moments of both for y = σ(α + g): (E f/σ, Var f/σ²) and E f'^k."""


def _expected(function: Callable[[Any], Any], alpha: Any, std: Any) -> Any:
    """E h(σ(α + g))."""
    scale = np.asarray(std)[..., None]
    (x, _, w), (x_below, _, w_below) = half_line(-np.asarray(alpha)), half_line(alpha)
    return np.vecdot(w, function(scale * x)) + np.vecdot(w_below, function(-scale * x_below))


def _exponential_part(alpha: Any, std: Any) -> tuple[Any, Any]:
    """(E q/σ, Var q/σ²) of q = 1 - e^{min(y, 0)}."""
    small = np.less(std, _SMALL_STD)
    if small.all():
        return _exponential_part_small(alpha, std)
    above, below = ndtr(alpha), ndtr(-alpha)
    first, second = tilted(alpha, std, 1), tilted(alpha, std, 2)
    mean = (below - first) / std
    # Var q = Var(1 - q): of the two, the one whose terms are small.
    variance = np.where(
        alpha < 0, above + second - (above + first) ** 2, below - 2 * first + second - (below - first) ** 2
    )
    variance = variance / std**2
    if small.any():
        small_mean, small_variance = _exponential_part_small(alpha, np.minimum(std, _SMALL_STD))
        mean, variance = np.where(small, small_mean, mean), np.where(small, small_variance, variance)
    return mean, variance


def _exponential_part_small(alpha: Any, std: Any) -> tuple[Any, Any]:
    """The same for small σ, over the half line y = -σx < 0."""
    x, g, weight = half_line(alpha)
    s = np.asarray(std)[..., None]
    mean = -np.vecdot(weight, np.expm1(-s * x)) / std
    # 1 - q is e^{-σx} below 0 and 1 above. Divided by its value at the bulk of y, and less 1, it keeps its spread.
    bulk = np.maximum(-np.asarray(alpha), 0)
    lower = np.expm1(-s * np.where(bulk[..., None] > 0, g, x)) / s
    upper = np.expm1(std * np.minimum(bulk, 40)) / std  # further out nothing is above 0
    above = ndtr(alpha)
    centre = np.vecdot(weight, lower) + above * upper
    spread = np.vecdot(weight, (lower - centre[..., None]) ** 2) + above * (upper - centre) ** 2
    return mean, np.exp(-2 * std * bulk) * spread


RELU = TwoSided(0.0)
LEAKY_SLOPE, PRELU_START = 0.01, 0.25
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_REGISTRY: dict[str, tuple[Callable[..., Activation], dict[str, float]]] = {
    "relu": (lambda: RELU, {}),
    "leaky_relu": (TwoSided, {"negative_slope": LEAKY_SLOPE}),
    "prelu": (TwoSided, {"a": PRELU_START}),
    "elu": (lambda a: TwoSided(a, bends=True), {"alpha": 1.0}),
    "selu": (lambda: TwoSided(SELU_ALPHA, SELU_SCALE, bends=True), {}),
    "tanh": (lambda: Function(lambda y, xp: xp.tanh(y), lambda y, xp: 1 - xp.tanh(y) ** 2), {}),
    "tat": (lambda depth: _tailored(depth), {"depth": 100.0}),
    "gelu": (lambda: Function(lambda y, xp: y * _special(xp).ndtr(y), _gelu_slope), {}),
    "silu": (lambda: Function(lambda y, xp: y * _special(xp).expit(y), _silu_slope), {}),
}
_BUILT_IN = tuple(_REGISTRY)
ACTIVATIONS: tuple[ActivationName, ...] = ("relu", "leaky_relu", "prelu", "elu", "selu")
"""The paper's activations; parameters and their defaults are named as in PyTorch, PReLU's slope `a`."""


def _special(xp: Any) -> Any:
    """Where the special functions of an array namespace are; NumPy's are SciPy's."""
    return special if xp is np else xp.special


def _gelu_slope(y: Any, xp: Any) -> Any:
    return _special(xp).ndtr(y) + y * xp.exp(-0.5 * y * y) / math.sqrt(2 * math.pi)


def _silu_slope(y: Any, xp: Any) -> Any:
    gate = _special(xp).expit(y)
    return gate * (1 + y * (1 - gate))


def _tailored(depth: float) -> TwoSided:
    """√(2/(1+a²)) · LeakyReLU_a for a network of that depth."""
    a = tailored_slope(int(depth))
    return TwoSided(a, tailored_scale(a))


def register_activation(name: str, f: Pointwise, slope: Pointwise) -> None:
    """Make your own activation available by name, in the theory and in the laboratory.

    Args:
        name: A word.
        f: f(y, xp), where y is a NumPy or PyTorch array and xp its namespace, so that one formula serves both.
        slope: Its derivative, likewise; at a kink, the left one.

    >>> register_activation("doctest_tanh", lambda y, xp: xp.tanh(y), lambda y, xp: 1 - xp.tanh(y) ** 2)
    >>> round(float(activation_moments(0.0, 1.0, "doctest_tanh")[1]), 4)
    0.6279
    >>> _ = _REGISTRY.pop("doctest_tanh")
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise StiefelError(f"name={name!r} cannot name an activation; use letters, digits and '_'.")
    if name in _BUILT_IN:
        raise StiefelError(f"name={name!r} is taken; choose another.")
    _REGISTRY[name] = (lambda: Function(f, slope), {})


def activations() -> tuple[str, ...]:
    """The names of all activations: the paper's, tanh, the tailored one, gelu, silu, then those you registered.

    >>> activations()[:2]
    ('relu', 'leaky_relu')
    """
    return tuple(_REGISTRY)


def resolve(name: Any, parameters: Mapping[str, Any]) -> Activation:
    """The activation of that name, its parameters set."""
    if not isinstance(name, str) or name not in _REGISTRY:
        raise unknown("activation", name, _REGISTRY)
    build, defaults = _REGISTRY[name]
    values = dict(defaults)
    for key, value in parameters.items():
        if key not in values:
            takes = f"it takes {', '.join(map(repr, values))}" if values else "it takes none"
            raise StiefelError(f"{key}={value!r} is not a parameter of activation={name!r}; {takes}.")
        values[key] = float(finite(key, value))
    return build(*values.values())


def finite(name: str, value: Any) -> Array:
    """`value` as a float64 array of finite numbers."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise StiefelError(f"{name}={value!r} is not a number or an array of numbers; give finite floats.") from None
    if not np.isfinite(array).all():
        bad = array[~np.isfinite(array)][0]
        raise StiefelError(f"{name} has the entry {bad}, which is not finite; give finite floats.")
    return array


def deviation(name: str, value: Any) -> Array:
    """`value` as a float64 array of finite numbers ≥ 0."""
    array = finite(name, value)
    if (array < 0).any():
        raise StiefelError(f"{name} has the entry {array[array < 0][0]}, which is negative; a deviation is at least 0.")
    return array


def standardized(mean: Any, std: Any) -> tuple[Any, Any, Any]:
    """(α, σ, where y is not random): with σ = 0 to float64's range, α = 0 and σ = 1 stand in."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        alpha = np.divide(mean, std)
    fixed = ~np.isfinite(alpha)
    return np.where(fixed, 0.0, alpha), np.where(fixed, 1.0, std), fixed


def moments(activation: Activation, mean: Any, std: Any) -> tuple[Any, Any]:
    """Mean and std of f(N(mean, std²)), without checks."""
    alpha, sigma, fixed = standardized(mean, std)
    with np.errstate(over="ignore"):  # of α² far out, where e^{-α²/2} = 0
        unit_mean, unit_variance = activation.moments(alpha, sigma)
    return (
        np.where(fixed, activation(mean), std * unit_mean)[()],
        np.where(fixed, 0.0, std * np.sqrt(unit_variance))[()],
    )


def slopes(activation: Activation, mean: Any, std: Any) -> tuple[Any, Any]:
    """E f' and E f'² under N(mean, std²), without checks."""
    alpha, sigma, fixed = standardized(mean, std)
    at = activation.slope(mean)
    with np.errstate(over="ignore"):
        first, second = (np.where(fixed, at**k, activation.slope_moment(alpha, sigma, k))[()] for k in (1, 2))
    return first, second


def backward(slope_squares: list[Any], weights: Array) -> list[float]:
    """Each layer's factor on the mean square of a gradient that comes down from the last layer.

    `slope_squares` holds f'² of each layer at points (inputs, or values of a unit) with the given weights. Where the
    layers above have already cut the gradient less is left to cut, so the points are reweighted at each layer.
    """
    factors = []
    for slope_square in reversed(slope_squares):
        weights = weights * slope_square
        factors.append(float(weights.sum()))
        weights = weights / (factors[-1] or 1.0)
    return factors[::-1]


def rectified_moments(mean: Any, std: Any) -> tuple[Array, Array]:
    r"""Mean and standard deviation of max(y, 0) for y ~ N(mean, std²) (Lemma 5), with α = mean/std:

        E = σ(φ(α) + αΦ(α)),     Var = σ²((1 + α²)Φ(α) + αφ(α)) - E².

    For |α| ≤ 37 both have a relative error below 1e-12; for smaller α they underflow.

    Args:
        mean: Of y; a number or an array.
        std: Of y, likewise; the two are broadcast. std = 0 gives (max(mean, 0), 0).

    >>> mean, std = rectified_moments([0.0, 2.0], 1.0)
    >>> mean.round(4).tolist(), std.round(4).tolist()
    ([0.3989, 2.0085], [0.5838, 0.9799])
    """
    return activation_moments(mean, std)


def activation_moments(
    mean: Any, std: Any, activation: ActivationName = "relu", **parameters: float
) -> tuple[Array, Array]:
    r"""Mean and standard deviation of f(y) for y ~ N(mean, std²).

    Closed forms; where they cancel, quadrature with positive terms. For |mean/std| ≤ 37 the standard deviation has a
    relative error below 1e-12 (for slopes and `alpha` ≥ 0), and so has the mean of the ReLU; the other means, which
    change sign, are within 1e-12 · E|f(y)|.

    Args:
        mean: Of y; a number or an array.
        std: Of y, likewise; the two are broadcast.
        activation: `"relu"`, `"leaky_relu"` (`negative_slope=0.01`), `"prelu"` (`a=0.25`), `"elu"` (`alpha=1.0`),
            `"selu"`, or a registered name.
        parameters: Of the activation; names and defaults as in PyTorch.

    >>> mean, std = activation_moments(0.0, 1.0, "elu")
    >>> round(float(mean), 4), round(float(std), 4)
    (0.1605, 0.7869)
    """
    return moments(resolve(activation, parameters), finite("mean", mean), deviation("std", std))


def slope_moments(mean: Any, std: Any, activation: ActivationName = "relu", **parameters: float) -> tuple[Array, Array]:
    r"""E f'(y) and E f'(y)² for y ~ N(mean, std²): what a layer's activation does to the gradient.

    For the ReLU both are Φ(mean/std), the active fraction. Accuracy as in `activation_moments`; at the kink the slope
    is the left one, as in PyTorch. Arguments and refusals are those of `activation_moments`, too.

    >>> first, second = slope_moments(0.0, 1.0, "prelu")
    >>> float(first), float(second)
    (0.625, 0.53125)
    """
    return slopes(resolve(activation, parameters), finite("mean", mean), deviation("std", std))
