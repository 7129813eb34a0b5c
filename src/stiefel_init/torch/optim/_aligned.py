"""`aligned`: a parametrization whose weight is in the set, for any optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ...core import geometry as _on_set
from ...core import validate as _validate
from ...core.errors import StiefelError
from ...recipe.layers import Matrices
from ..initialize.layers import rule as rule_of
from ..sampling import _tensors
from ._project import nearest


def aligned(module: nn.Module, name: str = "weight", *, batch_dims: int | None = None) -> nn.Module:
    r"""Parametrize a weight as the nearest member of Õ(m,n) to a free matrix of the same shape.

    W = ξ_m ξ_nᵀ + polar(C_m A C_n), C = I - ξξᵀ. Any optimizer may train A. The weight is computed whenever it is used,
    by a singular value decomposition; the optimizers of this package cost much less. A weight that is not in the set
    becomes its nearest member.

    Args:
        module: The layer, which is changed in place.
        name: Its parameter.
        batch_dims: Number of leading dimensions that index matrices. By default as the layer reads its weight: one
            matrix of a linear layer, three of attention's `in_proj_weight`, one a group of a convolution.

    Returns:
        The module.

    Raises:
        StiefelError: if there is no such parameter, it is no weight, or its nearest member is not unique; the module is
            then unchanged.

    >>> import stiefel_init
    >>> layer = aligned(nn.Linear(5, 3))
    >>> bool(stiefel_init.check(layer.weight))
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise StiefelError(f"{type(module).__name__} has no parameter {name!r}; give the name of one of its weights.")
    _tensors.check(weight)
    if batch_dims is None:
        rule = rule_of(module, name, tuple(weight.shape), "flatten")
        count = rule.count if isinstance(rule, Matrices) else 1
        shape: tuple[int, ...] = (count, weight.shape[0] // count, -1)
    else:
        batch_dims = _validate.size("batch_dims", batch_dims)
        shape = tuple(_tensors.matrices(weight, batch_dims).shape)
    nearest(weight.detach().reshape(shape), name)  # refuses before anything is changed
    parametrize.register_parametrization(module, name, Aligned(shape))
    return module


class Aligned(nn.Module):
    """The nearest member to a free weight that is read as matrices of `shape`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, free: Tensor) -> Tensor:
        """The weight."""
        if not free.numel():
            return free
        member: Tensor = _Nearest.apply(free.reshape(self.shape))
        return member.reshape(free.shape)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """A free weight for this one: itself, as a member is its own nearest."""
        nearest(weight.detach().reshape(self.shape), "the weight")
        return weight

    def extra_repr(self) -> str:
        """Its matrices."""
        return "×".join(map(str, self.shape))


class _Nearest(torch.autograd.Function):
    """A ↦ ξ_m ξ_nᵀ + polar(C_m A C_n).

    The derivative needs no difference of singular values, which may be equal: with A = UH and G the gradient at U,
    it is U·Y + (I - UUᵀ)·G·H⁻¹, where HY + YH = UᵀG - GᵀU.
    """

    @staticmethod
    def forward(ctx: Any, free: Tensor) -> Tensor:
        wide = free.shape[-2] < free.shape[-1]
        work = free if free.dtype in _tensors.WORKING else free.float()
        centred = _on_set.centre(work.mT if wide else work)
        size = min(free.shape[-2:]) - 1
        u, s, v = torch.linalg.svd(centred, full_matrices=False)
        u, s, v = u[..., :size], s[..., :size], v[..., :size, :]  # without the ones, whose singular value is 0
        ctx.save_for_backward(u, s, v)
        ctx.wide = wide
        member = _on_set.aligned(u @ v)
        return (member.mT if wide else member).to(free.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        u, s, v = ctx.saved_tensors
        given = gradients[0].mT if ctx.wide else gradients[0]
        g = given.to(u.dtype) @ v.mT  # columns in the basis of H
        inner = u.mT @ g
        y = (inner - inner.mT) / (s.unsqueeze(-1) + s.unsqueeze(-2))
        back = (u @ y + (g - u @ inner) / s.unsqueeze(-2)) @ v
        back = _on_set.centre(back)
        return (back.mT if ctx.wide else back).to(gradients[0].dtype)
