"""The layers that have weights, and those weights as the matrices they are; for `diagnose`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .._check import check
from ..theory import _lee
from ._layers import Leave, Matrices, rule

_LAYERS = (
    nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase,
    nn.Embedding, nn.EmbeddingBag,
)  # fmt: skip
_NOT_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU)


class Weights(NamedTuple):
    """What is told of a layer's weights; the errors are the worst of its matrices."""

    shape: str
    """Of the first matrix, outputs × inputs."""
    zero: bool
    """Whether all entries are 0."""
    scheme: str | None
    """`"stiefel"` for members of Õ(m,n), `"lee"`, `"orthogonal"`, or `"other"`; None where nothing is a matrix."""
    orthogonality_error: float | None = None
    alignment_error: float | None = None


def weight_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules of `model` that are layers: torch's own, and the user's that hold a weight of ≥ 2 dimensions.

    A user's module with further layers inside it is no layer: what it holds itself, a table of positions say, acts
    among them.
    """
    found = []
    for name, module in model.named_modules():
        if "parametrizations" in name.split("."):
            continue
        if isinstance(module, _LAYERS):
            found.append((name, module))
        elif _holds_weight(module) and not any(map(_is_layer, list(module.modules())[1:])):
            found.append((name, module))
    return found


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, _LAYERS) or _holds_weight(module)


def _holds_weight(module: nn.Module) -> bool:
    return not isinstance(module, (*_NOT_LAYERS, parametrize.ParametrizationList)) and bool(_named(module))


def _named(module: nn.Module) -> dict[str, Tensor]:
    """The module's own weights of two or more dimensions, parametrized ones as computed."""
    names = [*module._parameters, *(getattr(module, "parametrizations", None) or ())]
    if isinstance(vars(module).get("weight"), Tensor):  # what weight norm of old and its kin compute
        names.append("weight")
    found = {name: getattr(module, name) for name in names}
    return {k: v.detach() for k, v in found.items() if isinstance(v, Tensor) and _is_matrix(v)}


def _is_matrix(weight: Tensor) -> bool:
    return type(weight) in (Tensor, nn.Parameter) and weight.is_floating_point() and weight.ndim >= 2


def own_weights(module: nn.Module) -> list[nn.Parameter]:
    """The parameters whose gradient is that of the layer's weights."""
    return [p for p in module.parameters() if p.requires_grad and p.ndim >= 2]


def describe(module: nn.Module) -> Weights:
    """Hold the layer's weights against Õ(m,n)."""
    named = _named(module)
    if isinstance(module, nn.MultiheadAttention):
        named["out_proj.weight"] = module.out_proj.weight.detach()
    zero = not any(bool(weight.any()) for weight in named.values())
    batches = [batch for name, weight in named.items() if (batch := _matrices(module, name, weight)) is not None]
    if not batches:
        sizes = next(iter(named.values())).shape if named else ()
        return Weights("×".join(map(str, sizes)), zero and bool(named), None)
    results = [check(batch) for batch in batches]
    shape = "×".join(map(str, batches[0].shape[-2:]))
    if not all(result.orthogonality_error <= result.tolerance for result in results):
        scheme = "other"
    elif all(map(_is_lee, batches)):
        scheme = "lee"
    else:
        scheme = "stiefel" if all(results) else "orthogonal"
    errors = ([r.orthogonality_error for r in results], [r.alignment_error for r in results])
    return Weights(shape, zero, scheme, *(max(e) if all(x == x for x in e) else float("nan") for e in errors))


def _is_lee(batch: Tensor) -> bool:
    m, n = batch.shape[-2:]
    if m == n and float(batch[0, 0, 0]) != 1:  # not the identity, without looking further
        return False
    exact = torch.from_numpy(_lee.matrix(m, n)).to(batch)
    return bool(((batch - exact).abs() <= 4 * torch.finfo(batch.dtype).eps).all())


def _matrices(module: nn.Module, name: str, weight: Tensor) -> Tensor | None:
    """The matrices of a weight, (count, m, n); None where it is none, as in an embedding.

    A kernel with nothing but its centre is that matrix. Any other kernel is out × in·|kernel|, times √|kernel|: the
    reading in which `initialize_(conv="flatten")` makes a member of it.
    """
    attention = isinstance(module, nn.MultiheadAttention) and name == "out_proj.weight"
    chosen = None if attention else rule(module, name, tuple(weight.shape), "stiefel", "delta")
    if isinstance(chosen, Leave) or 0 in weight.shape:
        return None
    if not isinstance(chosen, Matrices):
        if isinstance(module, _LAYERS) and not attention:
            return None
        return weight.flatten(1).unsqueeze(0)
    matrices = _read(chosen, weight)
    if chosen.tap and int(matrices.count_nonzero()) < int(weight.count_nonzero()):
        chosen = rule(module, name, tuple(weight.shape), "stiefel", "flatten")
        assert isinstance(chosen, Matrices)
        matrices = _read(chosen, weight)
    return matrices


def _read(chosen: Matrices, weight: Tensor) -> Tensor:
    """The inverse of `Matrices.write`."""
    blocks = weight.unflatten(0, (chosen.count, -1))
    for place in reversed(chosen.tap):
        blocks = blocks.select(-1, place)
    if chosen.order:
        blocks = blocks.permute(0, *(1 + dimension for dimension in chosen.order))
    return blocks.reshape(chosen.count, chosen.m, chosen.n) / chosen.scale
