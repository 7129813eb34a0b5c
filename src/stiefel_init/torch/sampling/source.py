"""`schemes.Source` with PyTorch: from seeded streams, or from torch's own generators."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import construct, stream
from ...schemes import Scheme, Source
from . import householder, rotations
from .householder import Numbers
from .stream import normals, on_gpu, words
from .tensors import WORKING, full_precision, on_device, precision_for

_FEW = 1 << 14  # numbers


def fill_(
    out: Tensor,
    scheme: Scheme,
    *,
    generator: torch.Generator | None = None,
    keys: np.ndarray | None = None,
    places: int = 1,
    memory: rotations.Memory | None = None,
) -> Tensor:
    """Fill the matrices of `out`, of shape (…, m, n) and detached, with independent draws of the scheme.

    `out` may have any memory layout and any dtype that the initializers accept. Numbers come from the generator, on
    `out`'s device, the global one if None; or from stream `keys`, of shape (matrices, 2), or unfolded, (matrices, 4).
    `places` are the kernel's entries among a row's n entries: fan_in is n, fan_out is m · places.
    """
    if out.is_meta or not out.numel():
        return out
    dtype = out.dtype if out.dtype in WORKING else torch.float32
    source = _Fresh(out, dtype, places, generator) if keys is None else _Seeded(out, dtype, places, keys)
    source.memory = rotations.Memory() if memory is None else memory
    with on_device(out):
        drawn = scheme.draw(source)
    if drawn is not source.made:
        drawn = drawn.reshape(out.shape)
        out.copy_(drawn if source.made is None else drawn.clone())  # it may be a view of what was made there
    return out


class _Source(ABC):
    """What both sources share. Semi-orthogonal matrices are made in `out` itself, without a copy."""

    xp: Any = torch
    memory: rotations.Memory

    def __init__(self, out: Tensor, dtype: torch.dtype, places: int) -> None:
        self.out, self.dtype, self.places = out, dtype, places
        self.m, self.n = out.shape[-2:]
        self.count = out.numel() // (self.m * self.n)
        self.fan_out = self.m * places
        self.precision = precision_for(out)
        self.draws = 0
        self.made: Tensor | None = None  # what was drawn in `out` itself

    def _begin(self) -> None:
        """Called before each draw, so that no two share numbers."""
        self.draws += 1

    @abstractmethod
    def _numbers(self, part: slice) -> Numbers:
        """The Gaussian numbers of a part of the batch."""

    @abstractmethod
    def _square(self, size: int, part: slice) -> Tensor:
        """For a part of the batch, matrices that less their transposes have the law of Gaussian ones less theirs."""

    @abstractmethod
    def normals(self, rows: int, columns: int) -> Tensor: ...

    def semi_orthogonal(self, *, aligned: bool) -> Tensor:
        self._begin()
        direct = self.draws == 1 and self.out.dtype == self.dtype
        out = self.out
        if not direct:  # laid out as it is made
            shape = (*out.shape[:-2], *sorted(out.shape[-2:]))
            wide = torch.empty(shape, dtype=self.dtype, device=out.device)
            out = wide if self.m <= self.n else wide.mT
        householder.fill_(out, self._numbers, aligned=aligned, precision=self.precision)
        made = out.reshape(self.count, self.m, self.n)
        if direct:
            self.made = made
        return made

    def rotations(self, size: int, spread: float) -> Tensor:
        self._begin()
        out, axis = self.out, self.array(construct.reflected_axis(size))
        if self.draws > 1 or out.dtype != self.dtype or out.shape[-2:] != (size, size) or not out.is_contiguous():
            out = torch.empty(self.count, size, size, dtype=self.dtype, device=self.out.device)
        else:
            self.made = out = out.view(self.count, size, size)
        rotations.small_(out, partial(self._square, size - 1), axis, spread, self.precision, self.memory)
        return out

    def array(self, values: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(values)
        return tensor.to(self.out.device, self.dtype if tensor.is_floating_point() else None)

    def expm1_skew(self, a: Tensor, norm: float) -> Tensor:
        with full_precision(a.device.type):
            return construct.expm1_skew(a, norm, torch.finfo(a.dtype).eps, rotations.Arrays())

    turn = expm1_skew  # its name in release 0.2

    def erfinv(self, a: Tensor) -> Tensor:
        return torch.erfinv(a)


class _Seeded(_Source):
    """The streams of the given keys."""

    def __init__(self, out: Tensor, dtype: torch.dtype, places: int, keys: np.ndarray) -> None:
        super().__init__(out, dtype, places)
        # The kernels fold keys themselves, which saves a hundred small steps of NumPy.
        keys = keys if on_gpu(out.device) else stream.folded(keys)
        self.keys = self.current = keys.reshape(-1, keys.shape[-1])

    def _begin(self) -> None:
        self.current = stream.fold(stream.folded(self.keys), self.draws) if self.draws else self.keys
        super()._begin()

    def _numbers(self, part: slice) -> Numbers:
        keys = self.current[part]
        return lambda like, start, stop: normals(keys, (start, stop), (start, like.shape[-1]), like.dtype, like.device)

    def _square(self, size: int, part: slice) -> Tensor:
        return normals(self.current[part], (0, size), (0, size), self.dtype, self.out.device)

    def normals(self, rows: int, columns: int) -> Tensor:
        self._begin()
        return normals(self.current, (0, rows), (0, columns), self.dtype, self.out.device)

    def uniforms(self, rows: int, columns: int) -> Tensor:
        self._begin()
        return ((words(self.current, (0, rows), columns, self.out.device).double() + 0.5) * 2.0**-31).to(self.dtype)

    def orders(self, size: int) -> Tensor:
        self._begin()
        return self.array(stream.orders(self.current, size))

    def precise(self) -> Source:
        source = _Seeded(self.out, torch.float64, self.places, self.keys)
        source.draws = self.draws
        return source


class _Fresh(_Source):
    """A torch generator; None for the global one."""

    def __init__(self, out: Tensor, dtype: torch.dtype, places: int, generator: torch.Generator | None) -> None:
        super().__init__(out, dtype, places)
        self.generator = generator

    def semi_orthogonal(self, *, aligned: bool) -> Tensor:
        if householder.is_traced(self.out):
            drawn = householder.without_writing(self.out, self.dtype, self.generator, aligned=aligned)
            return drawn.reshape(self.count, self.m, self.n)
        return super().semi_orthogonal(aligned=aligned)

    def _numbers(self, part: slice) -> Numbers:
        def numbers(like: Tensor, start: int, stop: int) -> Tensor:
            x = like.new_empty((*like.shape[:-2], stop - start, like.shape[-1] - start))
            return x.normal_(construct.NEVER_ZERO, generator=self.generator)

        return numbers

    def _square(self, size: int, part: slice) -> Tensor:
        """Half the numbers do, times √2, where drawing more takes longer than to put them in place."""
        count, low = len(range(self.count)[part]), size // 2
        take = partial(self.memory.take, dtype=self.dtype, device=self.out.device)
        square = take("square", (count, size, size))
        if square.numel() < _FEW:
            return square.normal_(generator=self.generator)
        drawn = take("drawn", (count, size - low, size)).normal_(0, math.sqrt(2), generator=self.generator)
        square[:, :low, low:] = 0
        square[:, low:, :low] = drawn[..., size - low :]
        below = torch.ones(size - low, size - low, dtype=self.dtype, device=self.out.device).tril(-1)
        torch.mul(drawn[..., : size - low], below, out=square[:, low:, low:])
        torch.mul(drawn[:, :low, :low], below.mT[:low, :low], out=square[:, :low, :low])
        return square

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(self.count, *shape, dtype=self.dtype, device=self.out.device)

    def normals(self, rows: int, columns: int) -> Tensor:
        return self._empty(rows, columns).normal_(generator=self.generator)

    def uniforms(self, rows: int, columns: int) -> Tensor:
        return self._empty(rows, columns).uniform_(-1, 1, generator=self.generator)

    def orders(self, size: int) -> Tensor:
        lots = torch.empty(self.count, size, dtype=torch.int64, device=self.out.device)
        return lots.random_(generator=self.generator).argsort(-1)

    def precise(self) -> Source:
        return _Fresh(self.out, torch.float64, self.places, self.generator)
