"""What the weights are, without a copy of the model: norms, largest singular values, distance from Õ(m,n), biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...recipe._matrices import Matrices
from ..diagnosis._weights import _named, _read
from ..initialize._layers import rule

_ITERATIONS = 2  # of the power method; it goes on from the vector of the sample before
_PROBES = 32  # random vectors that measure the distance of weights too wide for a Gram matrix
_WIDE = 512  # from this on
BIASES = ("bias", "bias_ih_l0", "bias_ih")
_STACK = 1 << 20  # numbers of a weight from which on it is measured by itself, without a copy


class Spectra:
    """Measures the weights of layers, those of one shape together; keeps a vector for each."""

    def __init__(self) -> None:
        self._vectors: dict[Hashable, Tensor] = {}
        self._readers: dict[nn.Module, tuple[str, Callable[[Tensor], Tensor] | None]] = {}

    def matrices(self, module: nn.Module) -> tuple[Tensor, Tensor | None] | None:
        """A layer's first weight as out × in, and the matrices (count, m, n) to compare with the set."""
        named = _named(module)
        if module not in self._readers:
            self._readers[module] = _reader(module, named)
        name, read = self._readers[module]
        weight = named.get(name)
        if weight is None or not weight.numel():
            return None
        return weight.flatten(1), None if read is None else read(weight)

    def measure(self, modules: Sequence[nn.Module]) -> list[list[float] | None]:
        """Of each module: norm, largest singular value, distance, mean and std of the biases; NaN if there is none."""
        held = [self.matrices(module) for module in modules]
        plain = [None if pair is None else pair[0].unsqueeze(0) for pair in held]
        singular = self._apply(plain, self._largest)
        distance = self._apply([None if pair is None else pair[1] for pair in held], _distance)
        return [
            None if size is None else [*size, *(apart or [math.nan]), *(bias or [math.nan, math.nan])]
            for size, apart, bias in zip(singular, distance, _biases(modules))
        ]

    def _apply(
        self, tensors: Sequence[Tensor | None], compute: Callable[[Hashable, Tensor], Tensor]
    ) -> list[list[float] | None]:
        """Rows of `compute` for (count, m, n) tensors, stacked where they are small and of one shape."""
        groups: dict[Hashable, list[int]] = {}
        for at, tensor in enumerate(tensors):
            if tensor is not None:
                alone = at if tensor.numel() > _STACK else -1
                groups.setdefault((tuple(tensor.shape), tensor.dtype, tensor.device, alone), []).append(at)
        rows: list[list[float] | None] = [None] * len(tensors)
        for key, places in groups.items():
            chosen: list[Any] = [tensors[at] for at in places]
            stack = torch.stack(chosen) if len(chosen) > 1 else chosen[0].unsqueeze(0)
            for at, row in zip(places, compute((key, len(places)), stack.float()).tolist()):
                rows[at] = row
        return rows

    def _largest(self, key: Hashable, stack: Tensor) -> Tensor:
        """Of (k, 1, m, n): the norm per unit and the largest singular value."""
        w = stack[:, 0]
        v = self._vectors.get(key)
        if v is None or not bool(v.isfinite().all()):
            source = torch.Generator().manual_seed(0)
            v = torch.randn(len(w), w.shape[-1], 1, generator=source).to(w)
            steps = 4 * _ITERATIONS  # from a random vector
        else:
            steps = _ITERATIONS
        length = w.new_zeros(len(w))
        for _ in range(steps):
            u = w @ v
            v = w.mT @ (u / torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp_(min=1e-30))
            length = torch.linalg.vector_norm(v, dim=(1, 2))
            v = v / length[:, None, None].clamp(min=1e-30)
        self._vectors[key] = v
        norm = torch.linalg.vector_norm(w, dim=(1, 2)) / math.sqrt(w.shape[1])
        return torch.stack((norm, length), 1)


def _reader(module: nn.Module, named: dict[str, Tensor]) -> tuple[str, Callable[[Tensor], Tensor] | None]:
    """The weight to look at, and how it is read as matrices; a kernel as `diagnose` reads it at this time."""
    for name, weight in named.items():
        chosen = rule(module, name, tuple(weight.shape), "delta")
        if isinstance(chosen, Matrices):
            if chosen.tap and int(_read(chosen, weight).count_nonzero()) < int(weight.count_nonzero()):
                chosen = rule(module, name, tuple(weight.shape), "flatten")
            if isinstance(chosen, Matrices):
                return name, lambda weight, chosen=chosen: _read(chosen, weight)
    return next(iter(named), ""), None


def _distance(key: Hashable, stack: Tensor) -> Tensor:
    """Of (k, count, m, n): √(‖WWᵀ - I‖² / m + ‖Wξ - ξ‖²), m ≤ n, the root mean square over count."""
    w = stack if stack.shape[-2] <= stack.shape[-1] else stack.mT
    m, n = w.shape[-2:]
    if m <= _WIDE:
        gram = w @ w.mT
        gram.diagonal(dim1=-2, dim2=-1).sub_(1)
        square = torch.linalg.vector_norm(gram, dim=(-2, -1)).square_() / m
    else:
        probes = torch.randn(m, _PROBES, generator=torch.Generator().manual_seed(0)).to(w)
        square = (w @ (w.mT @ probes) - probes).square().sum((-2, -1)) / (m * _PROBES)
    level = (w.sum(-1) / math.sqrt(n) - 1 / math.sqrt(m)).square().sum(-1)
    return (square + level).mean(1, keepdim=True).sqrt_()


def _biases(modules: Sequence[nn.Module]) -> list[list[float] | None]:
    """Mean and std of each bias, those of one length together."""
    groups: dict[Hashable, list[tuple[int, Tensor]]] = {}
    for at, module in enumerate(modules):
        for name in BIASES:
            bias = module._parameters.get(name)
            if bias is not None and type(bias) in (Tensor, nn.Parameter) and bias.ndim == 1 and bias.numel():
                groups.setdefault((bias.shape, bias.dtype, bias.device), []).append((at, bias.detach()))
                break
    result: list[list[float] | None] = [None] * len(modules)
    for members in groups.values():
        std, mean = torch.std_mean(torch.stack([bias for _, bias in members]).float(), 1, correction=0)
        for (at, _), row in zip(members, torch.stack((mean, std), 1).tolist()):
            result[at] = row
    return result
