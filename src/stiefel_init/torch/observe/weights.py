"""The layers that have weights, and those weights as the matrices they are: `weight_layers` and `survey`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ...core.check import errors, tolerance
from ...recipe.layers import Leave, Matrices, Rule
from ...schemes import Lee
from ..initialize.layers import rule
from .statistics import measured, on_host

_LAYERS = (
    nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase,
    nn.Embedding, nn.EmbeddingBag,
)  # fmt: skip
_NOT_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU)


class Weights(NamedTuple):
    """What is known about a layer's weights; the errors are the worst of its matrices."""

    shape: str  # of the first matrix, outputs × inputs
    zero: bool  # whether all entries are 0
    scheme: str | None = None
    """`"stiefel"` for members of Õ(m,n), `"lee"`, `"orthogonal"`, or `"other"`; None if there is no matrix."""
    orthogonality_error: float | None = None
    alignment_error: float | None = None
    row_norm: float | None = None  # √(mean_i Σ_j W_ij²), the largest of the layer's matrices
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


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that are weights of a layer."""
    parameters = module.parameters() if module._modules else module._parameters.values()
    known = [p for p in parameters if p is not None and not is_lazy(p) and not p.is_meta]
    return [p for p in known if p.ndim >= 2 and p.is_floating_point()]


def own_weights(module: nn.Module) -> list[nn.Parameter]:
    """Those of them that are trained."""
    return [weight for weight in weights_of(module) if weight.requires_grad]


def survey(modules: Iterable[nn.Module]) -> dict[nn.Module, Weights]:
    """Compare the weights of layers with Õ(m,n), weights of one shape together."""
    weights: dict[int, Tensor] = {}
    biases: dict[int, Tensor] = {}
    held: dict[nn.Module, tuple[dict[str, Tensor], dict[int, Tensor]]] = {}
    for module in modules:
        named = named_weights(module)
        if isinstance(module, nn.MultiheadAttention):
            named["out_proj.weight"] = module.out_proj.weight.detach()
        found = {name: _matrices(module, name, weight) for name, weight in named.items()}
        matrices = {len(weights) + at: m for at, m in enumerate(m for m in found.values() if m is not None)}
        weights |= {key: on_host(matrix) for key, matrix in matrices.items()}
        bias = module._parameters.get("bias")
        if bias is not None and bias.ndim == 1 and bias.numel():
            biases |= dict.fromkeys(matrices, on_host(bias.detach()))
        held[module] = named, matrices
    facts, of_bias = (measured(f, of, torch.float64) for f, of in ((_facts, weights), (bias_facts, biases)))
    known = {key: [*row, *of_bias.get(key, (None, None))] for key, row in facts.items()}
    return {module: _told(module, named, matrices, known) for module, (named, matrices) in held.items()}


def _facts(stack: Tensor) -> Tensor:
    """Of (…, count, m, n): worst errors, first entry, mean and variance of row sums, mean square of a row."""
    orthogonality, forward, backward, _ = errors(stack)
    sums = stack.sum(-1).flatten(1)
    var, mean = torch.var_mean(sums, 1, correction=0)
    corner = stack[:, 0, 0, 0].clone()
    energy = stack.square_().sum((1, 2, 3)) / sums.shape[1]
    alignment = torch.maximum(forward, backward).amax(1)
    return torch.stack((orthogonality.amax(1), alignment, corner, mean, var, energy), 1)


def bias_facts(stack: Tensor) -> Tensor:
    """Of (…, units): mean and std."""
    std, mean = torch.std_mean(stack, 1, correction=0)
    return torch.stack((mean, std), 1)


def _told(
    module: nn.Module, named: dict[str, Tensor], matrices: dict[int, Tensor], facts: dict[int, list[Any]]
) -> Weights:
    if not matrices:
        sizes = next(iter(named.values())).shape if named else ()
        return Weights("×".join(map(str, sizes)), bool(named) and not any(bool(w.any()) for w in named.values()))
    rows, weights = [facts[key] for key in matrices], list(matrices.values())
    tolerances = [_tolerance(w.shape, w.dtype) for w in weights]
    if not all(row[0] <= limit for row, limit in zip(rows, tolerances)):
        scheme = "other"
    elif all(_is_lee(matrix, row[2]) for matrix, row in zip(weights, rows)):
        scheme = "lee"
    else:
        scheme = "stiefel" if all(row[1] <= limit for row, limit in zip(rows, tolerances)) else "orthogonal"
    orthogonality, alignment = (
        math.nan if any(map(math.isnan, errors)) else max(errors) for errors in zip(*(row[:2] for row in rows))
    )
    *_, bias_mean, bias_std = rows[0]
    return Weights(
        "×".join(map(str, weights[0].shape[-2:])),
        all(row[5] == 0 for row in rows),
        scheme,
        orthogonality,
        alignment,
        math.nan if any(math.isnan(row[5]) for row in rows) else math.sqrt(max(row[5] for row in rows)),
        _level(rows[0], weights[0].shape[-1]),
        bias_mean,
        bias_std,
    )


@lru_cache(maxsize=64)  # layer shapes repeat
def _tolerance(shape: torch.Size, dtype: torch.dtype) -> float:
    return tolerance(shape[-2], shape[-1], torch.finfo(dtype).eps)


def _level(facts: list[float], n: int) -> float | None:
    mean_r, var_r, energy = facts[3:6]
    return (mean_r**2 + var_r) / (n * energy) if 0 < energy < math.inf else None


def _is_lee(batch: Tensor, first: float) -> bool:
    m, n = batch.shape[-2:]
    if m == n and first != 1:  # not the identity, without looking further
        return False
    exact = torch.from_numpy(Lee().matrix(m, n)).to(batch)
    return bool(((batch - exact).abs() <= 4 * torch.finfo(batch.dtype).eps).all())


def _matrices(module: nn.Module, name: str, weight: Tensor) -> Tensor | None:
    """The matrices of a weight, (count, m, n); None if it is not a matrix, as in an embedding."""
    if 0 in weight.shape:
        return None
    if type(module) is nn.Linear:  # most layers
        return weight.unsqueeze(0)
    attention = isinstance(module, nn.MultiheadAttention) and name == "out_proj.weight"
    chosen = None if attention else reading(module, name, weight)
    if isinstance(chosen, Matrices):
        found: Tensor = chosen.read(weight)
        return found
    if isinstance(chosen, Leave) or (isinstance(module, _LAYERS) and not attention):
        return None
    return weight.flatten(1).unsqueeze(0)


def reading(module: nn.Module, name: str, weight: Tensor) -> Rule | None:
    """How a weight is read as matrices.

    A kernel that is zero off its centre is the matrix there. Any other kernel is out × in·|kernel|, times √|kernel|,
    which is how `initialize_(conv="flatten")` makes it a member.
    """
    shape = tuple(weight.shape)
    chosen = rule(module, name, shape, "delta")
    if isinstance(chosen, Matrices) and chosen.tap:
        used, entries = int(chosen.read(weight).count_nonzero()), int(weight.count_nonzero())
        return chosen if used == entries else rule(module, name, shape, "flatten")
    return chosen
