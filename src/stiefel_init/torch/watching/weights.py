"""The weights of a watched model: `Structure`, whose they are; `Moves`, how far a step moves them; `Spectra`, what they
are: norms, largest singular values, distance from Õ(m,n), biases. No copy of the model is made."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from ...recipe.layers import Matrices
from ..diagnosis.setup import standardizes
from ..initialize.sharded import is_sharded as is_sharded
from ..initialize.sharded import local as local
from ..initialize.wrappers import unwrapped_names
from ..observe.statistics import Table, stacks
from ..observe.weights import bias_facts, named_weights, reading, weight_layers, weights_of

_BIASES = ("bias", "bias_ih_l0", "bias_ih")
_ROWS = 64  # of inputs that are compared with those of other steps
_FOLLOWED, _KEPT = 4096, 1024  # entries of a weight whose move is compared with the gradient, and with all moves before
_BACK = 0.02  # of the way that weights went: what is left of it once they are set back
_ENTRIES = 1 << 16  # entries of a weight whose move is followed
_PROBES = 32  # random vectors that measure the distance of weights too wide for a Gram matrix
_WIDE = 512  # from this on


MODAL = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)


class Structure:
    """The layers of a model with their names and weights, and the modules around them."""

    def __init__(self, model: nn.Module) -> None:
        modules, self._parts = _parts_of(model)
        self._kinds = [*map(type, self._parts)]
        self.layers = _layers(modules)
        self.names = {module: name for name, module in self.layers}
        self.around = _around(model, set(self.names))
        self.weights = {module: weights_of(module) for module in self.names}
        self.known = {id(weight) for weights in self.weights.values() for weight in weights}
        self.sharded = {module for module, weights in self.weights.items() if any(map(is_sharded, weights))}
        self.biased = {module for module in self.names if bias_of(module) is not None}
        self.modal = any(isinstance(module, MODAL) for _, module in modules)
        """Whether something in it runs otherwise in training than in evaluation."""
        self.standardizes = standardizes(modules)
        self.optimized = False
        self.begun: dict[int, int] = {}
        """How often each optimizer has begun a step since its last one ended: a class may call the step of its base."""
        """Whether one of torch's optimizers was seen to step these weights."""
        self.suspects: tuple[tuple[str, str], ...] | None = None
        """Operations in the loss that may become infinite or NaN, once they were looked for."""
        self._starts: dict[nn.Parameter, Tensor] = {}
        self._vectors: dict[int, Tensor] = {}

    def keys_of(self, inputs: Tensor) -> Tensor | None:
        """A number for each of the first rows: equal for equal ones. None for whole numbers, which are equal often."""
        if inputs.ndim < 2 or not inputs.is_floating_point() or len(inputs) < 2:
            return None
        rows = inputs.detach()[:_ROWS].flatten(1).float()
        if rows.shape[1] not in self._vectors:
            vector = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(0))
            self._vectors = {rows.shape[1]: vector.to(rows.device)}
        keys = (rows * self._vectors[rows.shape[1]]).sum(1)
        return torch.cat([keys, (rows != rows.round()).any().float().unsqueeze(0)])

    def is_back(self, away: float) -> bool:
        """Whether the weights are where they were at first, after they were so far `away`."""
        parts = [(some_of(weight)[:_KEPT] - start).float().square().sum() for weight, start in self._starts.items()]
        return bool(parts) and away > 0 and float(torch.stack(parts).sum().sqrt()) < _BACK * away

    def follow(self, directions: Sequence[tuple[nn.Parameter, Tensor, Tensor]]) -> dict[str, Tensor]:
        """Of some weights, whose parts before the step and whose gradients these are: the cosine of both, least
        of all; and how far the weights are from where they were at first."""
        if not directions:
            return {}
        cosines, away = [], []
        for weight, before, gradient in directions:
            now = some_of(weight)
            start = self._starts.setdefault(weight, before[:_KEPT].clone())
            cosines.append(torch.nn.functional.cosine_similarity((now - before).float(), gradient.float(), 0, 1e-30))
            away.append((now[:_KEPT] - start).float().square().sum())
        return {"uphill": torch.stack(cosines).amin(), "away": torch.stack(away).sum().sqrt()}

    def holds(self, model: nn.Module) -> bool:
        """Whether the model is still what it was: the same modules and parameters, at the same places."""
        _, parts = _parts_of(model)
        same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        return same and all(map(is_, map(type, parts), self._kinds))  # a lazy parameter changes its type


def _parts_of(model: nn.Module) -> tuple[list[tuple[str, nn.Module]], list[Any]]:
    modules = list(model.named_modules())
    parts: list[Any] = []
    for _, module in modules:
        parts.append(module)
        parts += module._parameters.values()
    return modules, parts


def _layers(modules: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    plain = unwrapped_names(modules)
    layers = weight_layers(modules)
    inside = {below for _, layer in layers for below in list(layer.modules())[1:]}
    return [(plain.get(name, name) or "model", layer) for name, layer in layers if layer not in inside]


def _around(model: nn.Module, layers: set[nn.Module]) -> list[nn.Module]:
    """The model, and what has layers in it without being one."""
    found = {model: None}

    def has_layers(module: nn.Module) -> bool:
        if module in layers:
            return True
        below = [has_layers(child) for child in module.children()]
        if any(below):
            found[module] = None
        return any(below)

    has_layers(model)
    return list(found)


def bias_of(module: nn.Module) -> Any:
    """A layer's first bias, None if it has none."""
    return next((bias for name in _BIASES if (bias := module._parameters.get(name)) is not None), None)


class Moves:
    """Parts of weights, those of one shape as the rows of one tensor."""

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        groups: dict[Hashable, tuple[list[nn.Parameter], list[Tensor]]] = {}
        for weight in weights:
            part = _part(weight)
            chosen, parts = groups.setdefault((part.shape, part.dtype, part.device), ([], []))
            chosen.append(weight)
            parts.append(part)
        self._groups = [(chosen, torch.stack(parts).flatten(1)) for chosen, parts in groups.values()]

    def table(self) -> Table:
        """By the id of a weight: norms of its move and of itself before, and the product of both."""
        found: Table = []
        for weights, parts in self._groups:
            before = parts.float()
            move = torch.stack([_part(weight) for weight in weights]).flatten(1).float().sub_(before)
            size, length = (torch.linalg.vector_norm(values, dim=1) for values in (before, move))
            product = move.mul_(before).sum(1)
            found.append(([*map(id, weights)], torch.stack((length, size, product), 1)))
        return found


def some_of(weight: Tensor) -> Tensor:
    """Some of its entries, as a vector."""
    flat = weight.detach().reshape(-1)
    return flat if len(flat) <= _FOLLOWED else flat[:: math.ceil(len(flat) / _FOLLOWED)]


def _part(weight: nn.Parameter) -> Tensor:
    values = weight if type(weight) is nn.Parameter else local(weight)
    return values if values.numel() <= _ENTRIES else values.reshape(-1)[:: math.ceil(values.numel() / _ENTRIES)]


def moved(moves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """A layer's update, and how much of it points inward."""
    if len(moves) == 1:
        move, size, product = moves[0]
    else:
        move, size = (math.hypot(*(one[at] for one in moves)) for at in (0, 1))
        product = sum(one[2] for one in moves)
    if not size > 0:
        return math.nan, math.nan
    return move / size, -product / (move * size) if move > 0 else math.nan


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
                matrices[module] = chosen.read(weight)
                shape = matrices[module].shape[1:]
            self._shapes[module] = len(weight), shape[0], shape[1], scales.get(module, 1.0)
        singular: Table = []
        distance: Table = []
        for group, members, stack in stacks(plain, scales):
            stack = stack.float()
            singular.append((members, self._largest((group, *members), stack)))
            if members[0] in scales:
                distance.append((members, _distance(stack.unsqueeze(1), scales[members[0]])))
        for _, members, stack in stacks(matrices):
            distance.append((members, _distance(stack.float())))
        _identity.cache_clear()  # for one sample: no memory is kept between them
        return singular, distance, [(members, bias_facts(stack.float())) for _, members, stack in stacks(biases)]

    def _weight(self, module: nn.Module) -> tuple[Tensor | None, Matrices | None]:
        if module not in self._readers:
            self._readers[module] = _reader(module, named_weights(module))
        name, chosen = self._readers[module]
        weight = module._parameters.get(name)
        if type(weight) is nn.Parameter:
            return weight, chosen
        return named_weights(module).get(name), chosen

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


def _reader(module: nn.Module, named: dict[str, Tensor]) -> tuple[str, Matrices | None]:
    """The weight to look at, and how it is read as matrices; a kernel as `diagnose` reads it at this time."""
    for name, weight in named.items():
        if isinstance(chosen := reading(module, name, weight), Matrices):
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
