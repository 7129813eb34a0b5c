"""Steps of many small square matrices on a CPU: those of `geometry`, computed in memory that is kept between steps.

Their products take so little time that fresh memory, whose pages the system has to clear, would cost as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import geometry


class Squares:
    """Room for up to `count` matrices of n × n. What its methods return is good until the next call.

    >>> from stiefel_init.torch import sample
    >>> w, z = sample(4, 4, batch=2), torch.zeros(2, 4, 4)
    >>> bool(torch.allclose(Squares(2, 4, torch.float32).rotate(w, z), w, atol=1e-6))
    True
    """

    def __init__(self, count: int, n: int, dtype: torch.dtype) -> None:
        self.n = n
        self.rooms = [torch.empty(count, n, n, dtype=dtype) for _ in range(6)]

    @staticmethod
    def serve(device: torch.device, m: int, n: int) -> bool:
        """Whether such matrices are better stepped here."""
        return m == n < geometry.BLOCKED and device.type == "cpu"

    def read(self, tensors: Sequence[Tensor], room: int) -> Tensor:
        """Several matrices in one tensor."""
        out = self.rooms[room][: len(tensors)]
        torch.cat(list(tensors), out=out.view(-1, self.n))
        return out

    def generator(self, w: Tensor, gradient: Tensor) -> Tensor:
        """`geometry.generator`."""
        p, k = (room[: len(w)] for room in self.rooms[2:4])
        torch.baddbmm(p, gradient, w.mT, beta=0, alpha=0.5, out=p)
        p.sub_(p.mean(-1, keepdim=True) - p.mean(-2, keepdim=True).mT)
        return torch.sub(p, p.mT, out=k)

    orthogonalized = staticmethod(geometry.orthogonalized)

    def turn(self, w: Tensor) -> Tensor:
        """Room for a turn that is to be given to `rotate`."""
        return self.rooms[4][: len(w)]

    def rotate(self, w: Tensor, z: Tensor) -> Tensor:
        """`geometry.rotate` by the centred part of the skew Z, which is overwritten."""
        p, q, _, y = (room[: len(w)] for room in self.rooms[2:])
        mean = z.mean(-1, keepdim=True)
        z.sub_(mean).add_(mean.mT)
        torch.bmm(z, z.mT, out=y)
        a, b, c, d, shorter = geometry.rotation(*_spectrum(y), self.n)
        if not d.any():
            # c and the factor of X are ½, so that -(X + Y)/2 can be had in one product.
            torch.baddbmm(y, w, w.mT, beta=-0.5, alpha=-0.5, out=p)
            mean_, norm = _spectrum(p)
            one, factor = geometry.correction(-2 * mean_, 2 * norm, self.n)  # X is at most X + Y
            if (factor == -0.5).all():
                p.addcmul_(z, _tensor(b))
                return self._product(p, a + one, w, q)
        x = torch.bmm(w, w.mT, out=p)
        one, factor = geometry.correction(*_spectrum(x), self.n)
        torch.mul(y, _tensor(-d * shorter), out=q)
        q.diagonal(0, -2, -1).add_(_tensor(b)[..., 0])
        x.mul_(_tensor(factor)).addcmul_(y, _tensor(-c * shorter))
        x.addcmul_(torch.bmm(q, z, out=y), _tensor(shorter**0.5))
        return self._product(x, a + one, w, q)

    @staticmethod
    def _product(factors: Tensor, one: Any, w: Tensor, out: Tensor) -> Tensor:
        """`geometry.aligned` of the product; its means come from products with vectors, before it is computed."""
        n = w.shape[-1]
        factors.diagonal(0, -2, -1).add_(_tensor(one)[..., 0])
        rows = (factors @ w.sum(-1, keepdim=True)).div_(-n)
        columns = (factors.sum(-2, keepdim=True) @ w).div_(-n)
        rows -= rows.mean(-2, keepdim=True) - 1 / n
        return torch.add(rows, columns, out=out).baddbmm_(factors, w)


def _spectrum(x: Tensor) -> tuple[Any, Any]:
    """As `geometry._spectrum`, for NumPy, whose operations on few numbers are quicker."""
    mean, norm = geometry._spectrum(x)
    return mean.numpy(), norm.numpy()


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values))
