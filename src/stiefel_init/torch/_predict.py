r"""What the theory says of the linear layers that `diagnose` saw: `predict`.

A run of linear layers, each fed by nothing but the activations of the one before, starts at its measured input: the
mean μ and std σ over coordinates of each of (at most 256) inputs. A layer has y_i = Σ_j W_ij x_j + b_i, so with row sums
r_i = Σ_j W_ij

    mean of y = mean_i(μ r_i + b_i),      var of y = σ² · mean_i Σ_j W_ij² + var_i(μ r_i + b_i),

exactly, for independent coordinates. For a member of Õ(m,n) that is √(n/m)·μ and min(n/m, 1)·σ²; for the zero-mean
schemes it is their mean-field map with this weight's own variance. Then y is taken as Gaussian, as in `propagate`.
A run in which all weights are Lee's goes by `propagate(scheme="lee")`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..theory import propagate
from ..theory._moments import backward, resolve
from ..theory._propagate import _activate_each, _pooled
from ._observe import Seen


class Prediction(NamedTuple):
    """One layer; None where the theory does not reach, as after a layer without an activation."""

    pre_mean: float
    pre_std: float
    alpha: float
    active: float | None = None
    post_mean: float | None = None
    post_std: float | None = None
    gradient: float | None = None


class _Map(NamedTuple):
    """What a linear layer does to mean and std: moments of its row sums r and biases b."""

    mean_r: float
    var_r: float
    mean_b: float
    var_b: float
    cov: float
    energy: float
    """mean_i Σ_j W_ij²: also the gain of Wᵀ on the square of a gradient in a random direction."""


def linear_map(layer: nn.Linear) -> Tensor:
    """The entries of `_Map`, as one tensor."""
    weight = layer.weight.detach()
    weight = weight.double() if weight.device.type != "mps" else weight.cpu().double()
    sums = weight.sum(1)
    bias = torch.zeros_like(sums) if layer.bias is None else layer.bias.detach().to(sums)
    (var_r, mean_r), (var_b, mean_b) = (torch.var_mean(v, correction=0) for v in (sums, bias))
    cov = ((sums - mean_r) * (bias - mean_b)).mean()
    return torch.stack((mean_r, var_r, mean_b, var_b, cov, weight.square().sum() / len(weight)))


def runs(seen: Sequence[Seen]) -> Iterator[list[Seen]]:
    """The linear layers, cut where one is not fed by the activations of the one before."""
    following = {id(one.before): one for one in seen if one.before is not None}
    for one in seen:
        if one.start is not None:
            run = [one]
            while (after := following.get(id(run[-1]))) is not None:
                run.append(after)
            yield run


def predict(
    run: Sequence[Seen], start: np.ndarray, maps: Sequence[_Map], is_lee: bool, gradient: float | None
) -> list[Prediction]:
    """The run's predictions, as far as they are finite; `gradient` is that measured at its last layer."""
    if not np.isfinite(start).all():
        return []
    activations = {(one.activation, *(one.parameters or {}).values()) for one in run if one.activation}
    lee = is_lee and len(activations) < 2 and all(m.var_b == m.mean_b == 0 for m in maps)
    rows, slopes = _by_lee(run, start, maps) if lee else _by_moments(run, start, maps)
    if len(rows) < len(run) or gradient is None:
        return rows
    square = gradient**2
    values: list[float | None] = [gradient]
    for factor, (one, _), above in zip(reversed(slopes), reversed(list(pairwise(run))), reversed(maps)):
        if one.forked:
            break
        square *= factor * above.energy
        values.append(square**0.5)
    values += [None] * (len(rows) - len(values))
    return [row._replace(gradient=value) for row, value in zip(rows, reversed(values))]


def _by_moments(run: Sequence[Seen], start: np.ndarray, maps: Sequence[_Map]) -> tuple[list[Prediction], list[float]]:
    mean, std = start
    rows: list[Prediction] = []
    squares = []
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        for one, m in zip(run, maps):
            units = mean**2 * m.var_r + 2 * mean * m.cov + m.var_b
            std = np.sqrt(m.energy * std**2 + np.maximum(units, 0))
            mean = mean * m.mean_r + m.mean_b
            if not np.isfinite(mean + std).all():
                break
            pre_mean, pre_std = map(float, _pooled(mean, std))
            row = Prediction(pre_mean, pre_std, float(np.divide(pre_mean, pre_std)))
            if one.activation is not None and one.parameters is not None:
                active, slope_square, mean, std = _activate_each(resolve(one.activation, one.parameters), mean, std)
                row = row._replace(active=float(active))._replace(**_named(*_pooled(mean, std)))
                squares.append(slope_square)
            rows.append(row)
    below = squares[: len(run) - 1]
    return rows, backward(below, np.full(len(mean), 1 / len(mean)))


def _by_lee(run: Sequence[Seen], start: np.ndarray, maps: Sequence[_Map]) -> tuple[list[Prediction], list[float]]:
    mean, std = map(float, _pooled(*start))
    widths = [run[0].module.in_features, *(one.module.out_features for one in run)]  # type: ignore[list-item]
    name, parameters = next(
        ((one.activation, one.parameters) for one in run if one.parameters is not None), ("relu", {})
    )
    assert name is not None
    assert parameters is not None
    whole = propagate(widths, mean=mean, std=std, scheme="lee", activation=name, **parameters)
    rows = []
    for at, one in enumerate(run):
        row = Prediction(float(whole.pre_mean[at]), float(whole.pre_std[at]), float(whole.alpha[at]))
        if one.parameters is not None:
            row = row._replace(active=float(whole.active[at]))
            row = row._replace(**_named(whole.post_mean[at], whole.post_std[at]))
        rows.append(row)
    if len(run) == 1:
        return rows, []
    below = propagate(widths[:-1], mean=mean, std=std, scheme="lee", activation=name, **parameters)
    return rows, [float(f) ** 2 / m.energy for f, m in zip(below.gradient_factor, maps)]


def _named(mean: float, std: float) -> dict[str, float]:
    return {"post_mean": float(mean), "post_std": float(std)}
