"""What the weights are, without a copy of the model: norms, largest singular values, distance from Õ(m,n), biases."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ...recipe.layers import Matrices
from ..diagnosis._weights import _named, _read
from ..initialize.layers import rule
from ._readout import Table
from ._structure import bias_of

_PROBES = 32  # random vectors that measure the distance of weights too wide for a Gram matrix
_WIDE = 512  # from this on
_STACK = 1 << 20  # numbers of a weight from which on it is measured by itself, without a copy


class Spectra:
    """Measures the weights of layers, those of one shape together; keeps a vector of each for the next sample."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[Any, ...], Tensor] = {}
        self._shapes: dict[nn.Module, tuple[int, int, int, float]] = {}
        self._readers: dict[nn.Module, tuple[str, Matrices | None]] = {}

    @torch.no_grad()
    def measure(self, modules: Iterable[nn.Module]) -> tuple[Table, Table, Table]:
        """Of modules: norm and largest singular value; distance from the set; of the biases, mean and std."""
        plain: dict[nn.Module, Tensor] = {}
        scales: dict[nn.Module, float] = {}  # of those whose matrix is the weight as it is
        matrices: dict[nn.Module, Tensor] = {}
        biases: dict[nn.Module, Tensor] = {}
        for module in modules:
            bias = bias_of(module)
            if type(bias) in (Tensor, nn.Parameter) and bias.ndim == 1 and bias.numel():
                biases[module] = bias
            weight, chosen = self._weight(module)
            if weight is None or not weight.numel():
                continue
            plain[module] = weight if weight.ndim == 2 else weight.flatten(1)
            shape: Sequence[int] = plain[module].shape
            if chosen is not None and chosen.whole:
                scales[module] = chosen.scale
            elif chosen is not None:
                matrices[module] = _read(chosen, weight)
                shape = matrices[module].shape[1:]
            self._shapes[module] = len(weight), shape[0], shape[1], scales.get(module, 1.0)
        singular: Table = []
        distance: Table = []
        for key, members, stack in _stacks(plain, scales):
            singular.append((members, self._largest(key, stack)))
            if members[0] in scales:
                distance.append((members, _distance(stack.unsqueeze(1), scales[members[0]])))
        for _, members, stack in _stacks(matrices):
            distance.append((members, _distance(stack)))
        _identity.cache_clear()  # for one sample: no memory is kept between them
        return singular, distance, [(members, _bias_facts(stack)) for _, members, stack in _stacks(biases)]

    def _weight(self, module: nn.Module) -> tuple[Tensor | None, Matrices | None]:
        """A layer's first weight, and how it is read as matrices."""
        if module not in self._readers:
            self._readers[module] = _reader(module, _named(module))
        name, chosen = self._readers[module]
        weight = module._parameters.get(name)
        if type(weight) is nn.Parameter:
            return weight, chosen
        return _named(module).get(name), chosen

    def _largest(self, key: tuple[Any, ...], w: Tensor) -> Tensor:
        """Of (k, m, n): ‖W‖, and ‖Wᵀu‖ and ‖u‖, whose ratio is the largest singular value.

        The power method, two steps at a time; W over its norm in the first, so that nothing overflows in between.
        """
        norm = torch.linalg.vector_norm(w.flatten(1), dim=1)
        square = norm.square()[:, None, None]
        v, rounds = self._vectors.get(key), 1
        if v is None:
            v = torch.randn(len(w), w.shape[-1], 1, generator=torch.Generator().manual_seed(0)).to(w)
            rounds = 4  # from a random vector
        for _ in range(rounds):
            u = w @ (w.mT @ (w @ v) / square)
            v = w.mT @ u
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
            singular = 0.0 if norm == 0 or divisor == 0 else length / divisor
            found[module] = norm / math.sqrt(self._shapes[module][0]), singular
            if not 0 < singular < math.inf:  # start anew: a vector of zeros or NaN would stay one
                self._vectors = {key: v for key, v in self._vectors.items() if module not in key}
        for module, pairs in distances.items():
            *sizes_of_one, scale = self._shapes[module][1:]
            m, n = sorted(sizes_of_one)
            squares = [a * a / m + (b / scale) ** 2 / n for a, b in zip(pairs[::2], pairs[1::2])]
            apart[module] = math.sqrt(sum(squares) / len(squares))
        return found, apart


def _stacks(
    tensors: Mapping[nn.Module, Tensor], kinds: Mapping[nn.Module, Any] = MappingProxyType({})
) -> Iterator[tuple[tuple[Any, ...], list[Any], Tensor]]:
    """The tensors in stacks, those together that are small and of one shape and kind."""
    groups: dict[Hashable, list[nn.Module]] = {}
    for module, tensor in tensors.items():
        alone = module if tensor.numel() > _STACK else None
        groups.setdefault((tensor.shape, tensor.dtype, tensor.device, kinds.get(module), alone), []).append(module)
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


def _distance(stack: Tensor, scale: float = 1.0) -> Tensor:
    """Of (k, count, m, n), over `scale`, m ≤ n or transposed: ‖WWᵀ - I‖ and ‖Wξ_n - ξ_m‖ √n scale, count times."""
    w = stack if stack.shape[-2] <= stack.shape[-1] else stack.mT
    (k, count), (m, n) = w.shape[:2], w.shape[2:]
    w = w.flatten(0, 1)
    if m <= _WIDE:
        error = torch.baddbmm(_identity(m, w.dtype, w.device), w, w.mT, beta=-1, alpha=scale**-2)
    else:
        probes = torch.randn(m, _PROBES, generator=torch.Generator().manual_seed(0)).to(w) / math.sqrt(_PROBES)
        error = torch.baddbmm(probes, w, w.mT @ probes, beta=-1, alpha=scale**-2)
    level = w.sum(-1).sub_(scale * math.sqrt(n / m))
    return torch.stack([torch.linalg.vector_norm(e.flatten(1), dim=1) for e in (error, level)], 1).view(k, 2 * count)


@functools.lru_cache(8)
def _identity(m: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.eye(m, dtype=dtype, device=device)


def _bias_facts(stack: Tensor) -> Tensor:
    """Of (k, m): mean and std."""
    std, mean = torch.std_mean(stack, 1, correction=0)
    return torch.stack((mean, std), 1)
