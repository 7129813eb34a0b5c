"""The layers that have weights, and those weights as the matrices they are: `weight_layers` and `survey`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ...core.check import errors, tolerance
from ...recipe.layers import Leave, Matrices
from ...schemes import Lee
from ..initialize.layers import rule
from .statistics import Gatherer, on_host

_LAYERS = (
    nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase,
    nn.Embedding, nn.EmbeddingBag,
)  # fmt: skip
_NOT_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU)


class Map(NamedTuple):
    """What a linear layer does to the mean and std of its input, by its row sums r_i = Σ_j W_ij and biases b_i."""

    mean_r: float
    var_r: float
    energy: float
    """mean_i Σ_j W_ij²: also the gain of Wᵀ on the square of a gradient in a random direction."""
    mean_b: float
    var_b: float
    groups: int = 0
    """Of a non-negative member of Õ(m,n) without biases: the inputs that a unit sums, at least 1; else 0."""


class Weights(NamedTuple):
    """What is known about a layer's weights; the errors are the worst of its matrices."""

    shape: str
    """Of the first matrix, outputs × inputs."""
    zero: bool
    """Whether all entries are 0."""
    scheme: str | None = None
    """`"stiefel"` for members of Õ(m,n), `"lee"`, `"orthogonal"`, or `"other"`; None if there is no matrix."""
    orthogonality_error: float | None = None
    alignment_error: float | None = None
    map: Map | None = None
    """Of a linear layer."""
    row_norm: float | None = None
    """√(mean_i Σ_j W_ij²), the largest of the layer's matrices."""
    level: float | None = None
    """Of the first matrix: the share of its square that reads the common level, Σ_i (Σ_j W_ij)² / (n Σ_ij W_ij²)."""
    bias_mean: float | None = None
    bias_std: float | None = None


def weight_layers(modules: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """The modules that are layers: torch's own, and the user's that hold a weight of ≥ 2 dimensions.

    A user's module with layers inside is not a layer: what it holds itself, such as a table of positions, acts among
    them.
    """
    layers = []
    for name, module in modules:
        if "parametrizations" in name.split("."):
            continue
        if isinstance(module, _LAYERS) or (
            _holds_weight(module) and not any(map(_is_layer, list(module.modules())[1:]))
        ):
            layers.append((name, module))
    return layers


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, _LAYERS) or _holds_weight(module)


def _holds_weight(module: nn.Module) -> bool:
    return not isinstance(module, (*_NOT_LAYERS, parametrize.ParametrizationList)) and bool(named_weights(module))


def named_weights(module: nn.Module) -> dict[str, Tensor]:
    """The module's own weights of two or more dimensions, parametrized ones as computed."""
    weights: dict[str, Any] = dict(module._parameters)
    steps: Any = module._modules.get("parametrizations") or ()
    for name in steps:
        weights[name] = getattr(module, name)
    if "weight" not in weights:
        weights["weight"] = vars(module).get("weight")  # computed by the hooks of the old weight norm and the like
    return {
        name: weight.detach()
        for name, weight in weights.items()
        if type(weight) in (Tensor, nn.Parameter) and weight.ndim >= 2 and weight.is_floating_point()
    }


def own_weights(module: nn.Module) -> list[nn.Parameter]:
    """The parameters whose gradient is that of the layer's weights."""
    parameters = module.parameters() if module._modules else module._parameters.values()
    return [p for p in parameters if p is not None and p.requires_grad and p.ndim >= 2]


def survey(modules: Iterable[nn.Module]) -> dict[nn.Module, Weights]:
    """Compare the weights of layers with Õ(m,n), weights of one shape together."""
    gatherer, biases = (Gatherer(compute, torch.float64) for compute in (_facts, _bias_facts))
    keys = itertools.count()
    held: dict[nn.Module, tuple[dict[str, Tensor], list[tuple[int, Tensor]]]] = {}
    for module in modules:
        named = named_weights(module)
        if isinstance(module, nn.MultiheadAttention):
            named["out_proj.weight"] = module.out_proj.weight.detach()
        matrices = [
            (next(keys), matrix)
            for name, weight in named.items()
            if (matrix := _matrices(module, name, weight)) is not None
        ]
        bias = module._parameters.get("bias")
        for key, matrix in matrices:
            gatherer.add(key, on_host(matrix))
            if bias is not None and bias.ndim == 1 and bias.numel():
                biases.add(key, on_host(bias.detach()))
        held[module] = named, matrices
    facts, of_bias = gatherer.results(), biases.results()
    facts = {key: [*row, *of_bias.get(key, (math.nan, math.nan))] for key, row in facts.items()}
    return {module: _told(module, named, matrices, facts) for module, (named, matrices) in held.items()}


def _facts(stack: Tensor) -> Tensor:
    """Of (…, count, m, n): worst errors, first and least entry, mean and variance of row sums, mean square of a row."""
    orthogonality, forward, backward, _ = errors(stack)
    sums = stack.sum(-1).flatten(1)
    var, mean = torch.var_mean(sums, 1, correction=0)
    corner, least = stack[:, 0, 0, 0].clone(), stack.amin((1, 2, 3))
    energy = stack.square_().sum((1, 2, 3)) / sums.shape[1]
    alignment = torch.maximum(forward, backward).amax(1)
    return torch.stack((orthogonality.amax(1), alignment, corner, least, mean, var, energy), 1)


def _bias_facts(stack: Tensor) -> Tensor:
    """Of (…, m): mean and variance."""
    variance, mean = torch.var_mean(stack, 1, correction=0)
    return torch.stack((mean, variance), 1)


def _told(
    module: nn.Module, named: dict[str, Tensor], matrices: list[tuple[int, Tensor]], facts: dict[int, list[float]]
) -> Weights:
    if not matrices:
        sizes = next(iter(named.values())).shape if named else ()
        return Weights("×".join(map(str, sizes)), bool(named) and not any(bool(w.any()) for w in named.values()))
    rows = [facts[key] for key, _ in matrices]
    tolerances = [_tolerance(w.shape, w.dtype) for _, w in matrices]
    if not all(row[0] <= limit for row, limit in zip(rows, tolerances)):
        scheme = "other"
    elif all(_is_lee(matrix, row[2]) for (_, matrix), row in zip(matrices, rows)):
        scheme = "lee"
    else:
        scheme = "stiefel" if all(row[1] <= limit for row, limit in zip(rows, tolerances)) else "orthogonal"
    orthogonality, alignment = (
        math.nan if any(map(math.isnan, errors)) else max(errors) for errors in zip(*(row[:2] for row in rows))
    )
    *_, mean_b, var_b = rows[0]
    biasless = math.isnan(mean_b) and module._parameters.get("bias") is None
    return Weights(
        "×".join(map(str, matrices[0][1].shape[-2:])),
        all(row[6] == 0 for row in rows),
        scheme,
        orthogonality,
        alignment,
        _map(module, scheme, rows[0], tolerances[0]) if isinstance(module, nn.Linear) else None,
        math.nan if any(math.isnan(row[6]) for row in rows) else math.sqrt(max(row[6] for row in rows)),
        _level(rows[0], matrices[0][1].shape[-1]),
        *([None, None] if biasless else [mean_b, math.sqrt(var_b)]),
    )


@lru_cache(maxsize=64)  # layer shapes repeat
def _tolerance(shape: torch.Size, dtype: torch.dtype) -> float:
    return tolerance(shape[-2], shape[-1], torch.finfo(dtype).eps)


def _level(facts: list[float], n: int) -> float | None:
    mean_r, var_r, energy = facts[4:7]
    return (mean_r**2 + var_r) / (n * energy) if 0 < energy < math.inf else None


def _map(module: nn.Linear, scheme: str, facts: list[float], limit: float) -> Map:
    """The layer's map, without the noise of weights that were drawn with mean zero.

    Row sums of independent weights of mean 0 and variance v have mean 0 and variance nv, up to chance. Over 100 layers
    that chance would add up, though the network's own signal does not depend on the row sums.
    """
    mean_r, var_r, energy = facts[4:7]
    mean_b, var_b = facts[7:] if module.bias is not None else (0.0, 0.0)
    exact = Map(mean_r, var_r, energy, mean_b, var_b)
    if max(facts[:2]) <= limit and facts[3] >= -limit and mean_b == var_b == 0:
        return exact._replace(groups=max(module.in_features // module.out_features, 1))
    m = module.out_features
    drawn = abs(mean_r) < 4 * math.sqrt(energy / m) and abs(var_r / (energy or 1) - 1) < 4 * math.sqrt(2 / m)
    return exact._replace(mean_r=0.0, var_r=energy) if scheme in ("other", "orthogonal") and drawn else exact


def _is_lee(batch: Tensor, first: float) -> bool:
    m, n = batch.shape[-2:]
    if m == n and first != 1:  # not the identity, without looking further
        return False
    exact = torch.from_numpy(Lee().matrix(m, n)).to(batch)
    return bool(((batch - exact).abs() <= 4 * torch.finfo(batch.dtype).eps).all())


def _matrices(module: nn.Module, name: str, weight: Tensor) -> Tensor | None:
    """The matrices of a weight, (count, m, n); None if it is not a matrix, as in an embedding.

    A kernel that is zero off its centre is the matrix there. Any other kernel is out × in·|kernel|, times √|kernel|,
    which is how `initialize_(conv="flatten")` makes it a member.
    """
    if type(module) is nn.Linear and weight.numel():  # most layers
        return weight.unsqueeze(0)
    attention = isinstance(module, nn.MultiheadAttention) and name == "out_proj.weight"
    chosen = None if attention else rule(module, name, tuple(weight.shape), "delta")
    if isinstance(chosen, Leave) or 0 in weight.shape:
        return None
    if not isinstance(chosen, Matrices):
        if isinstance(module, _LAYERS) and not attention:
            return None
        return weight.flatten(1).unsqueeze(0)
    matrices = read_matrices(chosen, weight)
    if chosen.tap and int(matrices.count_nonzero()) < int(weight.count_nonzero()):
        chosen = rule(module, name, tuple(weight.shape), "flatten")
        assert isinstance(chosen, Matrices)
        matrices = read_matrices(chosen, weight)
    return matrices


def read_matrices(chosen: Matrices, weight: Tensor) -> Tensor:
    """The matrices in a weight that was laid out by these."""
    if chosen.count == chosen.scale == 1 and not chosen.tap and not chosen.order:
        return weight.reshape(1, chosen.m, chosen.n)
    blocks = weight.unflatten(0, (chosen.count, -1))
    for place in reversed(chosen.tap):
        blocks = blocks.select(-1, place)
    if chosen.order:
        blocks = blocks.permute(0, *(1 + dimension for dimension in chosen.order))
    matrices = blocks.reshape(chosen.count, chosen.m, chosen.n)
    return matrices if chosen.scale == 1 else matrices / chosen.scale
