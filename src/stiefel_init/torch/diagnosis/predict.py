r"""What the theory predicts for the linear layers that `diagnose` saw: `predictions`.

A run of linear layers, each fed by nothing but the activations of the one before, starts at its measured input: the
mean μ and std σ, over coordinates, of each of at most 256 inputs. A layer computes y_i = Σ_j W_ij x_j + b_i, so with
row sums r_i = Σ_j W_ij

    mean of y = μ · mean(r) + mean(b),      var of y = σ² · mean_i Σ_j W_ij² + μ² · var(r) + var(b)

for independent coordinates, if biases and row sums are uncorrelated. For a member of Õ(m,n) that is √(n/m)·μ and
min(n/m, 1)·σ². Weights drawn with mean zero get the mean and variance of r under that law, 0 and mean_i Σ_j W_ij²: the
mean-field map. Then y is taken as Gaussian, as in `propagate`. If all weights of a run are Lee's, it uses
`propagate(scheme="lee")`. After a non-negative member ReLU clips nothing: the output is the input's, and a unit that
sums k others is off only if all of them are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from torch import nn

from ...theory import propagate
from ...theory.moments import Activation, backward, moments, resolve, slopes
from ..observe.observer import Seen
from ..observe.weights import Map, Weights
from .backward import Gradients


class Prediction(NamedTuple):
    """One layer; None where the theory does not reach, as after a layer without an activation."""

    pre_mean: float
    pre_std: float
    alpha: float | None
    active: float | None = None
    post_mean: float | None = None
    post_std: float | None = None
    gradient: float | None = None


def _finite(alpha: float) -> float | None:
    """A signal that does not vary has no ratio of mean to deviation."""
    return float(alpha) if np.isfinite(alpha) else None


def predictions(
    seen: Sequence[Seen], gradients: Sequence[Gradients], weights: Mapping[nn.Module, Weights]
) -> dict[int, Prediction]:
    """What the theory says of each call of a linear layer, by its id, as far as it reaches."""
    lengths = {id(layer): gradient.output for layer, gradient in zip(seen, gradients)}
    result: dict[int, Prediction] = {}
    for run in _runs(seen):
        of_run = [weights[layer.module] for layer in run]
        maps = [weight.map for weight in of_run if weight.map is not None]
        if run[0].start is not None and len(maps) == len(run):
            is_lee = all(weight.scheme == "lee" for weight in of_run)
            rows = _predict(run, run[0].start.cpu().numpy(), maps, is_lee, lengths[id(run[-1])])
            result.update(zip(map(id, run), rows))
    return result


def _runs(seen: Sequence[Seen]) -> Iterator[list[Seen]]:
    """The linear layers, cut where one is not fed by the activations of the one before."""
    following = {id(layer.before): layer for layer in seen if layer.before is not None}
    for layer in seen:
        if layer.start is not None:
            run = [layer]
            while (after := following.get(id(run[-1]))) is not None:
                run.append(after)
            yield run


def _predict(
    run: Sequence[Seen], start: np.ndarray, maps: Sequence[Map], is_lee: bool, gradient: float | None
) -> list[Prediction]:
    """The run's predictions, as far as they are finite; the gradient starts from the one measured at its last layer."""
    if not np.isfinite(start).all():
        return []
    activations = {_key(layer) for layer in run if layer.activation is not None}
    lee = is_lee and len(activations) < 2 and all(m.var_b == m.mean_b == 0 for m in maps)
    rows, factors = _by_lee(run, start, maps) if lee else _by_moments(run, start, maps)
    if len(rows) < len(run) or gradient is None:
        return rows
    square = gradient**2
    values: list[float | None] = [None]
    for factor, (layer, _), above in zip(reversed(factors), reversed(list(pairwise(run))), reversed(maps)):
        if layer.forked:
            break
        square *= factor * above.energy
        values.append(square**0.5)
    values += [None] * (len(rows) - len(values))
    return [row._replace(gradient=value) for row, value in zip(rows, reversed(values))]


def _by_moments(run: Sequence[Seen], start: np.ndarray, maps: Sequence[Map]) -> tuple[list[Prediction], list[float]]:
    mean, std = start
    entered: list[Any] = []
    left: list[Any] = []  # of every layer and input: mean and std before the activation, and after it
    known: dict[object, Activation] = {}
    same: dict[object, list[int]] = {}  # the layers of each activation
    kept: list[int] = []  # those that clip nothing
    with np.errstate(all="ignore"):
        for at, (layer, m) in enumerate(zip(run, maps)):
            std = np.sqrt(m.energy * std * std + m.var_r * mean * mean + m.var_b)
            mean = mean * m.mean_r + m.mean_b
            entered.append((mean, std))
            if layer.parameters is not None:
                if (key := _key(layer)) not in known:
                    known[key], same[key] = resolve(layer.activation, layer.parameters), []
                same[key].append(at)
                if m.groups and left and layer.activation == "relu" == run[at - 1].activation:
                    kept.append(at)
                else:
                    mean, std = _activate(known[key], mean, std)
                left.append((mean, std))
        before, after = (np.array(table).reshape(-1, 2, len(mean)) for table in (entered, left))
        pre_mean, pre_std = _pooled(before)
        post_mean, post_std = _pooled(after)
        alphas = pre_mean / pre_std
        acting = before[: len(left)]
        shares = ndtr(acting[:, 0] / np.maximum(acting[:, 1], 1e-300))  # of active units
        squares = np.empty_like(shares)  # E f'²
        for key, activation in known.items():
            squares[same[key]] = _slopes(activation, *before[same[key]].transpose(1, 0, 2))
        for at in kept:
            shares[at] = 1 - (1 - shares[at - 1]) ** maps[at].groups
        for at in kept:  # the gradient has already passed this mask when it reaches the layer before
            squares[at - 1], squares[at] = shares[at - 1] / np.maximum(shares[at], 1e-300), shares[at]
        active, finite = shares.mean(1), np.isfinite(before).all((1, 2))
    rows = []
    for at, layer in enumerate(run):
        if not finite[at]:
            break
        if layer.parameters is None:
            beyond: tuple[float, ...] = ()
        else:
            beyond = float(active[at]), float(post_mean[at]), float(post_std[at])
        rows.append(Prediction(float(pre_mean[at]), float(pre_std[at]), _finite(alphas[at]), *beyond))
    return rows, backward(list(squares[: len(run) - 1]), np.full(len(mean), 1 / len(mean)))


def _key(layer: Seen) -> object:
    return layer.activation, *(layer.parameters or {}).values()


def _activate(activation: Activation, mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of f, for every input's Gaussian; without `moments`' checks where none is needed, for speed."""
    alpha = mean / std
    if not np.isfinite(alpha).all():
        return moments(activation, mean, std)
    unit_mean, unit_variance = activation.moments(alpha, std)
    return std * unit_mean, std * np.sqrt(unit_variance)


def _slopes(activation: Activation, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E f'², likewise."""
    alpha = mean / std
    return activation.slope_moment(alpha, std, 2) if np.isfinite(alpha).all() else slopes(activation, mean, std)[1]


def _pooled(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std, of each layer, of an equal mixture of the inputs' laws; squares must not underflow."""
    scale = np.maximum(np.abs(table).max((1, 2), initial=0), 1e-300)
    mean, std = (table / scale[:, None, None]).transpose(1, 0, 2)
    return scale * mean.mean(1), scale * np.sqrt(mean.var(1) + (std * std).mean(1))


def _by_lee(run: Sequence[Seen], start: np.ndarray, maps: Sequence[Map]) -> tuple[list[Prediction], list[float]]:
    mean, std = (float(value[0]) for value in _pooled(start[None]))
    sizes: list[Any] = [run[0].module.in_features, *(layer.module.out_features for layer in run)]
    name: Any
    parameters: Any
    name, parameters = next(
        ((layer.activation, layer.parameters) for layer in run if layer.parameters is not None), ("relu", {})
    )
    whole = propagate(sizes, mean=mean, std=std, scheme="lee", activation=name, **parameters)
    rows = []
    for at, layer in enumerate(run):
        row = Prediction(float(whole.pre_mean[at]), float(whole.pre_std[at]), _finite(whole.alpha[at]))
        if layer.parameters is not None:
            row = row._replace(
                active=float(whole.active[at]),
                post_mean=float(whole.post_mean[at]),
                post_std=float(whole.post_std[at]),
            )
        rows.append(row)
    if len(run) == 1:
        return rows, []
    below = propagate(sizes[:-1], mean=mean, std=std, scheme="lee", activation=name, **parameters)
    return rows, [float(f) ** 2 / m.energy for f, m in zip(below.gradient_factor, maps)]
