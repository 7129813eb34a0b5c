"""Which parameters an optimizer keeps on the set, and the matrices they are read as."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...core.check import errors, tolerance
from ...recipe.layers import Matrices, Rule
from ..initialize.layers import rule
from ..initialize.sharded import is_sharded
from ..sampling._tensors import DTYPES

Shape = tuple[int, ...]
Batch = tuple[int, int, int]
"""How many matrices a parameter holds, and their m and n."""
SLACK = 10  # trained members carry more rounding than fresh ones


def of_model(model: nn.Module) -> tuple[list[nn.Parameter], dict[int, tuple[Batch, ...]]]:
    """The parameters of a model and, by their `id`, the matrices that each may be read as."""
    readings: dict[int, tuple[Batch, ...]] = {}
    for module in model.modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            shape = tuple(parameter.shape)
            known = rule(module, leaf, shape, "flatten")
            readings.setdefault(id(parameter), any_reading(shape) if known is None else _of_rule(known, shape))
    return list(model.parameters()), readings


def _of_rule(known: Rule, shape: Shape) -> tuple[Batch, ...]:
    """As its layer reads it. The transpose of a member is one, so that a weight may be stored as either."""
    if not isinstance(known, Matrices) or known.tap or known.rows or known.zero_row is not None:
        return ()
    stored = known.count, shape[0] // known.count, math.prod(shape[1:])
    transposed = len(shape) == 2 or known.order == (1, *range(2, len(shape)), 0)
    if known.order and not transposed:
        return ()
    return (stored,)


def any_reading(shape: Shape) -> tuple[Batch, ...]:
    """Of a parameter of no known layer: a stack of matrices (…, m, n), or a kernel m × (the rest)."""
    if len(shape) < 2:
        return ()
    stack, kernel = (math.prod(shape[:-2]), shape[-2], shape[-1]), (1, shape[0], math.prod(shape[1:]))
    return (stack,) if len(shape) == 2 else (stack, kernel)


def whole(tensor: Tensor) -> Tensor:
    """A DTensor gathered, or the tensor itself; detached."""
    return tensor.detach().full_tensor() if is_sharded(tensor) else tensor.detach()  # type: ignore[attr-defined]


def members(tensor: Tensor, readings: Iterable[Batch]) -> Batch | None:
    """The first reading under which all the tensor's matrices are in the set; None if there is none."""
    if tensor.dtype not in DTYPES or tensor.is_meta or not tensor.numel():
        return None
    for batch in readings:
        m, n = batch[1:]
        bound = SLACK * tolerance(m, n, torch.finfo(tensor.dtype).eps)
        *distances, _ = errors(whole(tensor).double().reshape(batch))
        if all(float(distance.max()) <= bound for distance in distances):  # false for a NaN
            return batch
    return None


def items_of(params: Any) -> list[Any]:
    """A group's parameters as a list, each a tensor or, as torch allows, a pair of its name and itself."""
    return [params] if isinstance(params, Tensor) else list(params)


def tensor_of(item: Any) -> Any:
    """The tensor of such an item."""
    return item[1] if isinstance(item, tuple) and len(item) == 2 else item
