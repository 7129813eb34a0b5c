"""The six initializations, in place, as `torch.nn.init` has them: same calls, same conventions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from .. import _validate
from .._errors import StiefelError, unknown
from ._sample import DTYPES, WORKING, check_dtype, check_generator, fill_

LEE_VARIANTS = ("product", "direct")


def stiefel_(
    tensor: Tensor,
    gain: float = 1.0,
    *,
    batch_dims: int = 0,
    method: str = "householder",
    member: str = "uniform",
    spread: float = 0.1,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Fill `tensor` with gain · W, W from Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }.

    m = `tensor.shape[0]`, n = the product of the other dimensions. With `batch_dims`, that many
    leading dimensions count independent matrices, as in the stacked weights of experts or of an
    ensemble, and m is the next. `method`, `member` and `spread` as in `stiefel_init.sample`.

    >>> w = stiefel_(torch.empty(2, 3))
    >>> torch.allclose(w.sum(1), torch.tensor(1.5).sqrt())
    True
    """
    _check(tensor, generator)
    gain = _validate.gain(gain)
    batch_dims = _validate.size("batch_dims", batch_dims)
    if batch_dims > tensor.ndim - 2:
        raise StiefelError(
            f"batch_dims={batch_dims} leaves fewer than two of the dimensions {tuple(tensor.shape)} for a matrix; "
            f"give at most {tensor.ndim - 2}."
        )
    matrix = _matrix(tensor, DTYPES, batch_dims)
    fill_(matrix, method, generator, member, spread)
    if gain != 1:
        matrix *= gain
    return _write(tensor, matrix)


def lee_(tensor: Tensor, epsilon: float = 0.1, *, variant: str = "product") -> Tensor:
    r"""Fill `tensor` with the deterministic initialization of Lee et al. (2024).

    `variant="product"`: W = Q_m I_{m×n} Q_nᵀ with Q_k R_k = 11ᵀ + εI_k, diag R_k > 0; the identity
    when m = n, whatever ε. `variant="direct"`: the orthonormal factor of the m × n matrix
    11ᵀ + εI_{m×n} itself (of its transpose when m < n).

    >>> lee_(torch.empty(3, 3)).tolist() == torch.eye(3).tolist()
    True
    """
    _check(tensor)
    if variant not in LEE_VARIANTS:
        raise unknown("variant", variant, LEE_VARIANTS)
    if not (isinstance(epsilon, int | float) and 0 < epsilon < float("inf")):
        raise StiefelError(f"epsilon={epsilon!r} is not a positive number; the paper of Lee et al. uses 0.1.")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    m, n = tensor.shape[0], tensor.numel() // tensor.shape[0]
    p, q = min(m, n), max(m, n)
    if variant == "direct":
        w = _perturbed_ones(q, p, epsilon, tensor.device).mT
    elif p == q:
        w = torch.eye(p, dtype=torch.float64, device=tensor.device)
    else:
        w = _perturbed_ones(p, p, epsilon, tensor.device) @ _perturbed_ones(q, q, epsilon, tensor.device)[:, :p].mT
    return _write(tensor, w if m < n else w.mT)


def he_(tensor: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with N(0, 2/fan_in): `torch.nn.init.kaiming_normal_` for ReLU."""
    if _check(tensor, generator).numel():
        torch.nn.init.kaiming_normal_(tensor, nonlinearity="relu", generator=generator)
    return tensor


def xavier_(tensor: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with U(±√(6/(fan_in + fan_out))): `torch.nn.init.xavier_uniform_`."""
    if _check(tensor, generator).numel():
        torch.nn.init.xavier_uniform_(tensor, generator=generator)
    return tensor


def orthogonal_(tensor: Tensor, gain: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with gain times a Haar semi-orthogonal matrix: `torch.nn.init.orthogonal_`, in any float dtype."""
    _check(tensor, generator)
    return _write(
        tensor, torch.nn.init.orthogonal_(_matrix(tensor, WORKING), _validate.gain(gain), generator=generator)
    )


def random_(tensor: Tensor, std: float = 0.1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with N(0, std²)."""
    _check(tensor, generator)
    if not (isinstance(std, int | float) and 0 <= std < float("inf")):
        raise StiefelError(f"std={std!r} is not a standard deviation; give a finite number ≥ 0.")
    return torch.nn.init.normal_(tensor, 0, std, generator=generator)


SCHEMES: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {
        "stiefel": stiefel_,
        "lee": lee_,
        "he": he_,
        "xavier": xavier_,
        "orthogonal": orthogonal_,
        "random": random_,
    }
)


def _check(tensor: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """`tensor`, if it can be filled; else say why not, before anything is changed."""
    if not isinstance(tensor, Tensor):
        raise StiefelError(f"tensor is a {type(tensor).__name__}; give a torch.Tensor.")
    if tensor.layout != torch.strided:
        raise StiefelError(f"tensor has layout {tensor.layout}; give a dense tensor.")
    if tensor.ndim < 2:
        raise StiefelError(f"tensor has shape {tuple(tensor.shape)}; a weight needs two or more dimensions.")
    check_dtype(tensor, "tensor.dtype")
    if not tensor.is_contiguous() and _overlaps(tensor):
        raise StiefelError(
            f"tensor of shape {tuple(tensor.shape)} has strides {tensor.stride()}, so several of its entries share "
            "memory; pass tensor.clone() or the tensor it was expanded from."
        )
    check_generator(generator, tensor)
    return tensor


def _overlaps(tensor: Tensor) -> bool:
    """Whether two entries may share memory: some stride does not step over all that smaller strides reach."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride <= reach:
            return tensor.numel() > 0
        reach += stride * (size - 1)
    return False


def _matrix(tensor: Tensor, dtypes: tuple[torch.dtype, ...], batch_dims: int = 0) -> Tensor:
    """The m × n matrices of `tensor`, detached: its own memory where shape and dtype allow, else new memory."""
    own = tensor.is_contiguous() and tensor.dtype in dtypes
    if own and tensor.ndim == batch_dims + 2:
        return tensor.detach()
    shape = *tensor.shape[: batch_dims + 1], math.prod(tensor.shape[batch_dims + 1 :])
    if own:
        return tensor.detach().view(shape)
    return torch.empty(shape, dtype=tensor.dtype if tensor.dtype in WORKING else torch.float32, device=tensor.device)


def _write(tensor: Tensor, matrix: Tensor) -> Tensor:
    """Copy `matrix` into `tensor`, unless it is the tensor's own memory."""
    if matrix.data_ptr() != tensor.data_ptr() and not tensor.is_meta:
        tensor.detach().copy_(matrix.reshape(tensor.shape))
    return tensor


def _perturbed_ones(rows: int, columns: int, epsilon: float, device: torch.device) -> Tensor:
    """The orthonormal factor, with a positive diagonal of R, of 11ᵀ + εI (rows ≥ columns)."""
    a = torch.ones(rows, columns, dtype=torch.float64, device=device)
    a.diagonal().add_(epsilon)
    q, r = torch.linalg.qr(a)
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0)
