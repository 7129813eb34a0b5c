"""Weights in place, as `torch.nn.init` has them: same calls, same conventions; and `sample`."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ...core import stream, validate
from ...core.sample import Member, member_scheme
from ...core.validate import Method
from ...schemes import He, Lee, Orthogonal, Random, Scheme, SchemeName, Xavier, get
from ...schemes.deterministic import Variant
from . import tensors
from .householder import by_qr
from .source import fill_


def sample(
    m: int,
    n: int,
    *,
    batch: int | tuple[int, ...] = (),
    method: Method = "householder",
    member: Member = "uniform",
    spread: float = 0.1,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw W from Õ(m,n), a whole batch in one call; see `stiefel_init.sample`.

    Args:
        m: Outputs.
        n: Inputs.
        batch: Shape of a batch of independent matrices; the result is of shape (*batch, m, n).
        method, member, spread: As in `stiefel_init.sample`.
        dtype: torch's default dtype if not given; bfloat16 and float16 are drawn in float32 and rounded.
        device: torch's default device if not given.
        generator: On that device; the global one if not given.

    >>> from stiefel_init import check
    >>> W = sample(64, 784, batch=(3,), generator=torch.Generator().manual_seed(0))
    >>> W.shape, check(W).ok
    (torch.Size([3, 64, 784]), True)
    """
    m, n, batch = validate.size("m", m), validate.size("n", n), validate.shape("batch", batch)
    out = torch.empty(*batch, m, n, dtype=dtype, device=device)
    tensors.check_dtype(out, "dtype")
    tensors.check_generator(generator, out)
    return _member_(out, method, member, spread, generator)


def _member_(out: Tensor, method: Method, member: Member, spread: float, generator: torch.Generator | None) -> Tensor:
    """Fill the matrices of `out` with independent members of Õ(m,n)."""
    scheme = member_scheme(member, spread, method)
    if method == "householder":
        return fill_(out, scheme, generator=generator)
    if not out.is_meta and out.numel():
        wide = out if out.shape[-2] <= out.shape[-1] else out.mT
        wide.copy_(by_qr(wide, method, generator))
    return out


def draw_(
    tensor: Tensor,
    scheme: SchemeName | Scheme = "stiefel",
    *,
    seed: int | None = None,
    name: str = "",
    batch_dims: int = 0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill `tensor` with weights drawn by any scheme, and return it.

    Args:
        tensor: A weight; m = its first dimension, n = the product of the others. The fans of a kernel are those of
            `torch.nn.init`.
        scheme: A name of `stiefel_init.schemes.names()`, or a `Scheme`.
        seed: `None` draws from the generator. With an int the weights belong to (seed, name) and are those of
            `stiefel_init.draw`.
        name: Tells weights with the same seed apart.
        batch_dims: Number of leading dimensions that index independent matrices, as in the stacked weights of experts
            or of an ensemble; m is the next dimension.
        generator: On the tensor's device; the global one if not given.

    >>> draw_(torch.empty(2, 4), "identity")
    tensor([[0.7071, 0.7071, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.7071, 0.7071]])
    """
    chosen = get(scheme)
    tensors.check(tensor, generator)
    matrices = tensors.matrices(tensor, batch_dims)
    keys = None
    if seed is not None:
        count = math.prod(tensor.shape[:batch_dims])
        keys = stream.fold(stream.key(validate.size("seed", seed), name), np.arange(count))
    places = math.prod(tensor.shape[batch_dims + 2 :])
    return tensors.write(tensor, fill_(matrices, chosen, generator=generator, keys=keys, places=places))


def stiefel_(
    tensor: Tensor,
    gain: float = 1.0,
    *,
    batch_dims: int = 0,
    method: Method = "householder",
    member: Member = "uniform",
    spread: float = 0.1,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Fill `tensor` with gain · W, W from Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }, and return it.

    Args:
        tensor: A weight; m = its first dimension, n = the product of the others.
        gain: Factor on W.
        batch_dims: Number of leading dimensions that index independent matrices, as in the stacked weights of experts
            or of an ensemble; m is the next dimension.
        method, member, spread: As in `stiefel_init.sample`.
        generator: On the tensor's device; the global one if not given.

    >>> w = stiefel_(torch.empty(2, 3))
    >>> torch.allclose(w.sum(1), torch.tensor(1.5).sqrt())
    True
    """
    tensors.check(tensor, generator)
    gain = validate.number("gain", gain)
    matrices = _member_(tensors.matrices(tensor, batch_dims), method, member, spread, generator)
    if gain != 1:
        matrices *= gain
    return tensors.write(tensor, matrices)


def lee_(tensor: Tensor, epsilon: float = 0.1, *, variant: Variant = "product") -> Tensor:
    r"""Fill `tensor` with the deterministic initialization of Lee et al. (2024), and return it.

    Args:
        tensor: A weight; m = its first dimension, n = the product of the others.
        epsilon: ε below.
        variant: `"product"`: W = Q_m I_{m×n} Q_nᵀ with Q_k R_k = 11ᵀ + εI_k, diag R_k > 0; the identity when m = n,
            whatever ε. `"direct"`: the orthonormal factor of the m × n matrix 11ᵀ + εI_{m×n} itself (of its transpose
            when m < n). `"lapack"`: the product with the signs of `torch.linalg.qr`, diag R_k < 0 but for its last
            entry.

    >>> lee_(torch.empty(3, 3)).tolist() == torch.eye(3).tolist()
    True
    """
    return draw_(tensor, Lee(variant, epsilon))


def he_(tensor: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with N(0, 2/fan_in): `torch.nn.init.kaiming_normal_` for ReLU; see `draw_`.

    >>> he_(torch.empty(64, 50)).std().round(decimals=1)  # √(2/50)
    tensor(0.2000)
    """
    return draw_(tensor, He(), generator=generator)


def xavier_(tensor: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with U(±√(6/(fan_in + fan_out))): `torch.nn.init.xavier_uniform_`; see `draw_`.

    >>> bool((xavier_(torch.empty(64, 32)).abs() <= 0.25).all())
    True
    """
    return draw_(tensor, Xavier(), generator=generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with gain times a Haar semi-orthogonal matrix: like `torch.nn.init.orthogonal_`, but faster.

    Tensor, generator and refusals are as in `draw_`.

    >>> w = orthogonal_(torch.empty(2, 5, dtype=torch.float64))
    >>> torch.allclose(w @ w.T, torch.eye(2, dtype=torch.float64))
    True
    """
    return draw_(tensor, Orthogonal(gain), generator=generator)


def random_(tensor: Tensor, std: float = 0.1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill `tensor` with N(0, std²); tensor, generator and refusals are as in `draw_`.

    >>> random_(torch.empty(100, 100)).std().round(decimals=1)
    tensor(0.1000)
    """
    return draw_(tensor, Random(std), generator=generator)
