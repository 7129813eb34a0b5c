"""What the weights are, without a copy of the model: norms, largest singular values, distance from Õ(m,n), biases."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...recipe._matrices import Matrices
from ..diagnosis._weights import _named, _read
from ..initialize._layers import rule
from ._readout import Table
from ._structure import bias_of

_PROBES = 32  # random vectors that measure the distance of weights too wide for a Gram matrix
_WIDE = 512  # from this on
_STACK = 1 << 20  # numbers of a weight from which on it is measured by itself, without a copy


class Spectra:
    """Measures the weights of layers, those of one shape together; keeps a vector of each for the next sample."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[Any, ...], Tensor] = {}
        self._shapes: dict[nn.Module, tuple[int, int, int]] = {}
        self._readers: dict[nn.Module, tuple[str, Matrices | None]] = {}

    def measure(self, modules: Iterable[nn.Module]) -> tuple[Table, Table, Table]:
        """Of modules: norm and largest singular value; distance from the set; of the biases, mean and std."""
        plain: dict[nn.Module, Tensor] = {}
        matrices: dict[nn.Module, Tensor] = {}
        biases: dict[nn.Module, Tensor] = {}
        for module in modules:
            bias = bias_of(module)
            if type(bias) in (Tensor, nn.Parameter) and bias.ndim == 1 and bias.numel():
                biases[module] = bias.detach()
            weight, chosen = self._weight(module)
            if weight is not None and weight.numel():
                plain[module] = weight if weight.ndim == 2 else weight.flatten(1)
                shape = weight.shape
                if chosen is not None:
                    matrices[module] = weight if _as_it_is(chosen, weight) else _read(chosen, weight)
                    shape = matrices[module].shape
                self._shapes[module] = len(weight), shape[-2], shape[-1]
        singular: Table = []
        distance: Table = []
        for key, members, stack in _stacks(plain):
            singular.append((members, self._largest(key, stack)))
            if all(matrices.get(module) is plain[module] for module in members):
                distance.append((members, _distance(stack.unsqueeze(1))))
                for module in members:
                    del matrices[module]
        for _, members, stack in _stacks(matrices):
            distance.append((members, _distance(stack if stack.ndim == 4 else stack.unsqueeze(1))))
        return singular, distance, [(members, _bias_facts(stack)) for _, members, stack in _stacks(biases)]

    def _weight(self, module: nn.Module) -> tuple[Tensor | None, Matrices | None]:
        """A layer's first weight, and how it is read as matrices."""
        if module not in self._readers:
            self._readers[module] = _reader(module, _named(module))
        name, chosen = self._readers[module]
        weight = module._parameters.get(name)
        if type(weight) is nn.Parameter:
            return weight.detach(), chosen
        return _named(module).get(name), chosen

    def _largest(self, key: tuple[Any, ...], w: Tensor) -> Tensor:
        """Of (k, m, n): ‖W‖, and ‖Wᵀu‖ / ‖W‖² and ‖u‖, whose ratio is the largest singular value over ‖W‖².

        The power method on W over its norm: since σ/‖W‖ ≥ 1/√n, two steps need no normalization between them.
        """
        norm = torch.linalg.vector_norm(w.flatten(1), dim=1)
        square = norm.square().clamp_(min=1e-30)[:, None, None]
        v, rounds = self._vectors.get(key), 1
        if v is None:
            v = torch.randn(len(w), w.shape[-1], 1, generator=torch.Generator().manual_seed(0)).to(w)
            rounds = 4  # from a random vector
        for _ in range(rounds):
            u = w @ (w.mT @ (w @ v) / square)
            v = w.mT @ u / square
            length = torch.linalg.vector_norm(v, dim=1, keepdim=True)
            v = v / length
        self._vectors[key] = v
        return torch.stack((norm, length.flatten(), torch.linalg.vector_norm(u, dim=1).flatten()), 1)

    def facts(
        self, sizes: Mapping[nn.Module, Sequence[float]], distances: Mapping[nn.Module, Sequence[float]]
    ) -> tuple[dict[nn.Module, tuple[float, float]], dict[nn.Module, float]]:
        """What was measured, as read: the norm per unit and the largest singular value; the distance."""
        found, apart = {}, {}
        for module, (norm, length, divisor) in sizes.items():
            singular = length * norm * norm / divisor if divisor > 0 else math.nan if math.isnan(divisor) else 0.0
            found[module] = norm / math.sqrt(self._shapes[module][0]), singular
            if not 0 < singular < math.inf:  # start anew: a vector of zeros or NaN would stay one
                self._vectors = {key: v for key, v in self._vectors.items() if module not in key}
        for module, pairs in distances.items():
            m, n = sorted(self._shapes[module][1:])
            squares = [a * a / m + b * b / n for a, b in zip(pairs[::2], pairs[1::2])]
            apart[module] = math.sqrt(sum(squares) / len(squares))
        return found, apart


def _as_it_is(chosen: Matrices, weight: Tensor) -> bool:
    return weight.ndim == 2 and chosen.count == chosen.scale == 1 and not chosen.tap and not chosen.order


def _stacks(tensors: Mapping[nn.Module, Tensor]) -> Iterator[tuple[tuple[Any, ...], list[Any], Tensor]]:
    """The tensors in stacks, those together that are small and of one shape."""
    groups: dict[Hashable, list[nn.Module]] = {}
    for module, tensor in tensors.items():
        alone = module if tensor.numel() > _STACK else None
        groups.setdefault((tensor.shape, tensor.dtype, tensor.device, alone), []).append(module)
    for key, members in groups.items():
        chosen = [tensors[module] for module in members]
        stack = torch.stack(chosen) if len(chosen) > 1 else chosen[0].unsqueeze(0)
        yield (key, *members), members, stack.float()


def _reader(module: nn.Module, named: dict[str, Tensor]) -> tuple[str, Matrices | None]:
    """The weight to look at, and how it is read as matrices; a kernel as `diagnose` reads it at this time."""
    for name, weight in named.items():
        chosen = rule(module, name, tuple(weight.shape), "delta")
        if isinstance(chosen, Matrices):
            if chosen.tap and int(_read(chosen, weight).count_nonzero()) < int(weight.count_nonzero()):
                chosen = rule(module, name, tuple(weight.shape), "flatten")
            if isinstance(chosen, Matrices):
                return name, chosen
    return next(iter(named), ""), None


def _distance(stack: Tensor) -> Tensor:
    """Of (k, count, m, n), m ≤ n or transposed: ‖WWᵀ - I‖ and ‖Wξ_n - ξ_m‖ √n of each of the count, one by one."""
    w = stack if stack.shape[-2] <= stack.shape[-1] else stack.mT
    m, n = w.shape[-2:]
    if m <= _WIDE:
        gram = w @ w.mT
        gram.diagonal(dim1=-2, dim2=-1).sub_(1)
        error = torch.linalg.vector_norm(gram.flatten(2), dim=2)
    else:
        probes = torch.randn(m, _PROBES, generator=torch.Generator().manual_seed(0)).to(w)
        error = torch.linalg.vector_norm((w @ (w.mT @ probes) - probes).flatten(2), dim=2) / math.sqrt(_PROBES)
    level = torch.linalg.vector_norm(w.sum(-1).sub_(math.sqrt(n / m)), dim=2)
    return torch.stack((error, level), 2).flatten(1)


def _bias_facts(stack: Tensor) -> Tensor:
    """Of (k, m): mean and std."""
    std, mean = torch.std_mean(stack, 1, correction=0)
    return torch.stack((mean, std), 1)
