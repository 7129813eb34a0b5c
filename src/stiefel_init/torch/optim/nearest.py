"""The nearest member of the set to any weight: `project`, `project_`, and `aligned`, a weight that always is one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ...core import geometry, validate
from ...core.errors import StiefelError
from ...recipe.layers import Matrices
from ..initialize.layers import rule as rule_of
from ..sampling import tensors


class Projection(NamedTuple):
    """What `project` returns."""

    weight: Tensor
    """The nearest members, of the shape and dtype of the weight."""
    distance: Tensor
    """‖A - W‖_F of each matrix, in float64, of the shape of the batch."""


def project(tensor: Tensor, *, batch_dims: int = 0) -> Projection:
    r"""argmin_W ‖A - W‖_F over Õ(m,n), for each matrix A of a weight.

    W = ξ_m ξ_nᵀ + the polar factor of the centred A. It is unique if the centred A has rank min(m,n) - 1.

    Args:
        tensor: A weight. Its first dimension are the rows; the others, as of a convolution, are read as the columns.
        batch_dims: Number of leading dimensions that index matrices: 1 for stacked weights of shape (layers, m, n).

    Raises:
        StiefelError: if the tensor is no weight, holds NaN or infinity, or its nearest member is not unique.

    >>> weight, distance = project(2 * torch.eye(3))
    >>> bool(torch.allclose(weight, torch.eye(3), atol=1e-6)), round(float(distance), 4)  # √3
    (True, 1.7321)
    """
    tensors.check(tensor)
    if tensor.is_meta:
        raise StiefelError("tensor is on the meta device and has no values; materialize it first.")
    shape = tensors.matrices(tensor.detach(), batch_dims).shape
    members, distance = nearest(tensor.detach().reshape(shape), "tensor")
    return Projection(members.view(tensor.shape), distance)


def project_(tensor: Tensor, *, batch_dims: int = 0) -> Tensor:
    r"""Replace the matrices of a weight by their nearest members of Õ(m,n), in place; return the distances ‖A - W‖_F.

    Args:
        tensor, batch_dims: As in `project`.

    >>> weight = torch.eye(3) + 0.1
    >>> round(float(project_(weight)), 4), bool(torch.allclose(weight, torch.eye(3), atol=1e-6))
    (0.3, True)
    """
    weight, distance = project(tensor, batch_dims=batch_dims)
    with torch.no_grad():
        tensor.copy_(weight)
    return distance


def nearest(matrices: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The nearest members to matrices of shape (…, m, n) and their distances; refuses, naming the tensor `name`."""
    exact = matrices.double()
    if not exact.numel():
        return matrices.clone(), exact.new_zeros(matrices.shape[:-2])
    if not torch.isfinite(exact).all():
        raise StiefelError(f"{name} holds NaN or infinity, which no member is nearest to; initialize it first.")
    members, condition = geometry.nearest(exact, torch.linalg.svd)
    m, n = matrices.shape[-2:]
    if condition.min() <= max(m, n) * torch.finfo(matrices.dtype).eps:
        raise StiefelError(
            f"{name} holds a {m}×{n} matrix that has rank below {min(m, n) - 1} once centred (σ_min/σ_max = "
            f"{float(condition.min()):.1e}), so that no one member is nearest; initialize it, as with stiefel_."
        )
    return members.to(matrices.dtype), torch.linalg.matrix_norm(exact - members)


def aligned(module: nn.Module, name: str = "weight", *, batch_dims: int | None = None) -> nn.Module:
    r"""Parametrize a weight as the nearest member of Õ(m,n) to a free matrix of the same shape.

    W = ξ_m ξ_nᵀ + polar(C_m A C_n), C = I - ξξᵀ. Any optimizer may train A. The weight is computed whenever it is used,
    by a singular value decomposition; the optimizers of this package cost much less. A weight that is not in the set
    becomes its nearest member.

    Args:
        module: The layer, which is changed in place and returned.
        name: Its parameter.
        batch_dims: Number of leading dimensions that index matrices. By default as the layer reads its weight: one
            matrix of a linear layer, three of attention's `in_proj_weight`, one a group of a convolution.

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
    tensors.check(weight)
    if batch_dims is None:
        rule = rule_of(module, name, tuple(weight.shape), "flatten")
        count = rule.count if isinstance(rule, Matrices) else 1
        shape: tuple[int, ...] = (count, weight.shape[0] // count, -1)
    else:
        batch_dims = validate.size("batch_dims", batch_dims)
        shape = tuple(tensors.matrices(weight, batch_dims).shape)
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
        work = free if free.dtype in tensors.WORKING else free.float()
        centred = geometry.centre(work.mT if wide else work)
        size = min(free.shape[-2:]) - 1
        u, s, v = torch.linalg.svd(centred, full_matrices=False)
        u, s, v = u[..., :size], s[..., :size], v[..., :size, :]  # without the ones, whose singular value is 0
        ctx.save_for_backward(u, s, v)
        ctx.wide = wide
        member = geometry.aligned(u @ v)
        return (member.mT if wide else member).to(free.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        u, s, v = ctx.saved_tensors
        given = gradients[0].mT if ctx.wide else gradients[0]
        g = given.to(u.dtype) @ v.mT  # columns in the basis of H
        inner = u.mT @ g
        y = (inner - inner.mT) / (s.unsqueeze(-1) + s.unsqueeze(-2))
        back = (u @ y + (g - u @ inner) / s.unsqueeze(-2)) @ v
        back = geometry.centre(back)
        return (back.mT if ctx.wide else back).to(gradients[0].dtype)
