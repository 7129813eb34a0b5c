"""The nearest member of the set to any weight: `project` and `project_`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...core import geometry as _on_set
from ...core.errors import StiefelError
from ..sampling import _tensors


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

    Returns:
        The nearest members and their distances.

    Raises:
        StiefelError: if the tensor is no weight, holds NaN or infinity, or its nearest member is not unique.

    >>> weight, distance = project(2 * torch.eye(3))
    >>> bool(torch.allclose(weight, torch.eye(3), atol=1e-6)), round(float(distance), 4)  # √3
    (True, 1.7321)
    """
    _tensors.check(tensor)
    if tensor.is_meta:
        raise StiefelError("tensor is on the meta device and has no values; materialize it first.")
    shape = _tensors.matrices(tensor.detach(), batch_dims).shape
    members, distance = nearest(tensor.detach().reshape(shape), "tensor")
    return Projection(members.view(tensor.shape), distance)


def project_(tensor: Tensor, *, batch_dims: int = 0) -> Tensor:
    r"""Replace the matrices of a weight by their nearest members of Õ(m,n), in place.

    Args:
        tensor: As in `project`.
        batch_dims: As in `project`.

    Returns:
        The distances ‖A - W‖_F.

    Raises:
        StiefelError: as `project`; the tensor is then unchanged.

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
    members, condition = _on_set.nearest(exact, torch.linalg.svd)
    m, n = matrices.shape[-2:]
    if condition.min() <= max(m, n) * torch.finfo(matrices.dtype).eps:
        raise StiefelError(
            f"{name} holds a {m}×{n} matrix that has rank below {min(m, n) - 1} once centred (σ_min/σ_max = "
            f"{float(condition.min()):.1e}), so that no one member is nearest; initialize it, as with stiefel_."
        )
    return members.to(matrices.dtype), torch.linalg.matrix_norm(exact - members)
