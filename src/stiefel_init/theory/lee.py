"""What the initialization of Lee et al. (2024), one fixed matrix per shape, does to a signal.

Note [chains]
    A rectangular layer mixes its inputs; the square layers after it change nothing, so through such a chain a unit is
    one random number to which the activation is applied again and again. Its distribution is followed at quadrature
    points that all units share. The same units stay off, so their gradient is cut once, by the last layer of the chain.
Note [points]
    The units of a widening layer depend on each other, most of them are equal, and what a later layer makes of them
    depends on that; after two narrowing layers units are neither Gaussian nor independent. Such a network, a fixed
    function, is run on points that fill the normal distribution of its inputs evenly, with random signs as the gradient
    of each point's outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..schemes import Lee
from .moments import REACH, Activation, backward, density

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_MOST = 2**25  # numbers to keep for the gradient
_PANEL = 3.0  # standard deviations to 16 points
_BENDS = np.arange(-39.0, 1.0, 3.0)  # further ends of panels: 0, where activations bend, and the scale of e^y


def rows(widths: Sequence[int], mean: float, std: float, activation: Activation) -> np.ndarray:
    """For each layer: pre-activation mean and std, active fraction, post-activation mean and std, gradient factor."""
    shapes = [(m, n) for n, m in pairwise(widths) if m != n]
    if len(shapes) > 2 or any(m > n for m, n in shapes[:-1]):
        return _on_points(widths, mean, std, activation)
    unit_mean, unit_variance = np.full(widths[0], mean), np.full(widths[0], std**2)
    result = np.empty((len(widths) - 1, 6))
    start = 0
    while start < len(result):
        stop = start + 1
        while stop < len(result) and widths[stop] == widths[stop + 1]:
            stop += 1
        n, m = widths[start : start + 2]
        units = min(m, n + 1)  # in a tall matrix all rows after the n-th are equal: one stands for all
        count = np.ones(units, int)
        count[-1] += m - units
        if m != n:
            w = Lee().matrix(m, n)[:units]
            unit_mean, unit_variance = w @ unit_mean, w**2 @ unit_variance
        points, weights = _mixture(unit_mean, np.sqrt(unit_variance))
        values = _chain(points, count / m @ weights, activation, min(n / m, 1.0), result[start:stop])
        unit_mean = weights @ values
        unit_variance = (weights * (values - unit_mean[:, None]) ** 2).sum(1)
        unit_mean, unit_variance = np.repeat(unit_mean, count), np.repeat(unit_variance, count)
        start = stop
    return result


def _on_points(widths: Sequence[int], mean: float, std: float, activation: Activation) -> np.ndarray:
    """`rows` of any network; Note [points]."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    power = max(8, min(13, math.floor(math.log2(_MOST / sum(widths)))))
    points = qmc.Sobol(widths[0], rng=0).random_base2(power)
    values = mean + std * ndtri(points.clip(1e-12, 1 - 1e-12))
    result = np.empty((len(widths) - 1, 6))
    matrices, slopes = [], []
    for row, (n, m) in zip(result, pairwise(widths)):
        matrices.append(None if m == n else Lee().matrix(m, n))
        values = values if matrices[-1] is None else values @ matrices[-1].T
        row[:3] = values.mean(), values.std(), (values > 0).mean()
        slopes.append(activation.slope(values))
        values = activation(values)
        row[3:5] = values.mean(), values.std()
    gradient = np.where(np.random.default_rng(0).random(values.shape) < 0.5, -1.0, 1.0)
    for row, slope, matrix in zip(result[::-1], slopes[::-1], matrices[::-1]):
        before = np.linalg.norm(gradient)
        gradient = gradient * slope
        gradient = gradient if matrix is None else gradient @ matrix
        after = np.linalg.norm(gradient)
        row[5] = after / before if before else math.nan
        gradient /= after or 1.0  # which may fade beyond float64's range
    return result


def _chain(
    values: np.ndarray, weights: np.ndarray, activation: Activation, gain: float, result: np.ndarray
) -> np.ndarray:
    """Fill `result`, the layers of one chain, and return the values after it."""
    slopes = []
    for row in result:
        row[:3] = *_pooled(values, weights), weights @ (values > 0)
        slopes.append(activation.slope(values) ** 2)
        values = activation(values)
        row[3:5] = _pooled(values, weights)
    result[:, 5] = np.sqrt(backward(slopes, weights))
    result[0, 5] *= math.sqrt(gain)
    return values


def _pooled(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    mean = weights @ values
    return mean, math.sqrt(weights @ (values - mean) ** 2)


def _mixture(mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points y and weights, one row a unit, with E h(N(mean_i, std_i²)) = Σ_j weights_ij h(y_j); h may bend at 0."""
    if std.min() <= 1e-12 * np.abs(mean).max():  # no randomness left, to rounding
        return mean, np.eye(len(mean))
    low, high = mean - REACH * std, mean + REACH * std
    order = np.argsort(low)
    low, high = low[order], np.maximum.accumulate(high[order])
    gap = low[1:] > high[:-1]
    step = _PANEL * std.min()
    panels = [
        np.unique(np.concatenate((np.arange(a, b, step), _BENDS, [b])).clip(a, b))
        for a, b in zip(low[np.r_[True, gap]], high[np.r_[gap, True]])
    ]
    start, end = (np.concatenate([edges[cut] for edges in panels])[:, None] for cut in (np.s_[:-1], np.s_[1:]))
    points = ((start + end) / 2 + (end - start) / 2 * _NODES).ravel()
    weights = ((end - start) / 2 * _WEIGHTS).ravel() * density((points - mean[:, None]) / std[:, None])
    return points, weights / std[:, None]
