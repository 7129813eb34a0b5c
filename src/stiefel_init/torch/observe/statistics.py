"""Statistics of many layers at once: values of one shape are stacked and measured together, which keeps them cheap
compared with the forward pass. `Signal` is about what passes through layers, `measured` about other tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_STACK = 1 << 18  # numbers measured at once: they stay in a processor's cache
_MOST = 64  # matrices in a stack of activations
_ALONE = 1 << 20  # numbers of a tensor from which on it is measured by itself, without a copy
_SAMPLES = 1024  # rows of activations used to detect redundant units
_NUMBERS = 1 << 18  # of a sample: a larger output is cut to fewer inputs before its units are laid out
_KEPT = 1 << 19  # numbers that are kept, about, before they are measured
_EARLY = 2 / 3  # of the layers

Table = list[tuple[list[Any], Tensor]]
"""Keys, and a tensor with a row for each of them."""


def stacks(
    tensors: Mapping[Any, Tensor], kinds: Mapping[Any, Any] = MappingProxyType({}), numbers: int | None = None
) -> Iterator[tuple[tuple[Any, ...], list[Any], Tensor]]:
    """The tensors in stacks of at most so many `numbers`, those together that are small and of one shape and kind."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for key, tensor in tensors.items():
        alone = key if tensor.numel() > _ALONE else None
        groups.setdefault((tensor.shape, tensor.dtype, tensor.device, kinds.get(key), alone), []).append(key)
    for group, keys in groups.items():
        count = len(keys) if numbers is None else max(1, numbers // max(1, group[0].numel()))
        for at in range(0, len(keys), count):
            chosen = [tensors[key] for key in keys[at : at + count]]
            yield group, keys[at : at + count], torch.stack(chosen) if len(chosen) > 1 else chosen[0].unsqueeze(0)


@torch.no_grad()
def measured(
    compute: Callable[[Tensor], Tensor], tensors: Mapping[Any, Tensor], dtype: torch.dtype | None = None
) -> dict[Any, list[float]]:
    """The numbers that `compute` makes of each tensor. It gets copies, in stacks, to do with as it likes."""
    parts = stacks(tensors, numbers=_STACK)
    rows = ((keys, compute(stack.to(dtype or stack.dtype, copy=True)).tolist()) for _, keys, stack in parts)
    return {key: row for keys, table in rows for key, row in zip(keys, table)}


class Signal:
    """Of each layer the mean, std and spread of what enters its activation, the fraction above 0 and how many units are
    above 0 for no sample, and for all; and the mean, std and spread of what leaves it, and its distinct units.

    Without an activation the same values enter and leave; what leaves a ReLU follows from what enters. So of most
    layers one matrix is enough, whole or `most` rows of it, and no other tensor is kept. Measuring takes three times
    the memory of what is measured. In the first layers there is room for it, since the activations of the others are
    still to come; what fills up later waits for the end of the step, if it is little.
    """

    def __init__(self, layers: int, most: int | None = None) -> None:
        self._layers, self.most = layers, most
        self._begun: set[int] = set()
        self._stacks: dict[Hashable, dict[Any, tuple[Tensor, bool]]] = {}
        self._full: list[dict[Any, tuple[Tensor, bool]]] = []
        self._kept = 0
        self._table: Table = []

    def add(self, layer: Any, values: Tensor, part: str = "", *, relu: bool = False) -> Tensor:
        """Keep what passes a layer, or the `part` that "enters" or "leaves" its activation; returned as kept."""
        matrix = self._sample(layer, values)
        self._begun.add(id(layer))
        group = matrix.shape, matrix.dtype, matrix.device
        stack = self._stacks.setdefault(group, {})
        stack[id(layer), part] = matrix, relu
        if len(stack) >= min(max(1, _STACK // max(1, matrix.numel())), _MOST):
            self._full.append(self._stacks.pop(group))
            self._kept += len(stack) * matrix.numel()
            if self._kept >= _KEPT or len(self._begun) < _EARLY * self._layers:
                self._table += map(_measure, self._full)
                self._full, self._kept = [], 0
        return matrix

    def _sample(self, layer: Any, values: Tensor) -> Tensor:
        """A copy of the values or some of them, (samples, units): what follows may work in place."""
        if self.most is None:
            return by_unit(layer, values).clone()
        if layer.ndim == values.ndim == 2 and layer.axis == -1:
            return by_unit(layer, values)[: self.most].clone()  # inputs of a batch come in no order
        if values.ndim > 2 and values.numel() > _NUMBERS and len(values) > 1:
            values = values[:: math.ceil(values.numel() / _NUMBERS)]
        matrix = by_unit(layer, values)
        if layer.ndim == 2 or len(matrix) <= self.most:
            return matrix[: self.most].clone()
        return matrix.index_select(0, _places(len(matrix), self.most, matrix.device))

    def table(self) -> Table:
        self._table += map(_measure, (*self._full, *self._stacks.values()))
        self._full, self._stacks = [], {}
        return self._table

    def numbers(self, seen: Iterable[Any], facts: Mapping[Any, Sequence[float]]) -> dict[int, list[float]]:
        """By the id of a layer: six numbers of what enters its activation and four of what leaves it."""
        found = {}
        for layer in seen:
            both = facts.get((id(layer), ""))
            entering, leaving = facts.get((id(layer), "enters"), both), facts.get((id(layer), "leaves"), both)
            if entering is not None and leaving is not None:
                rows = min(layer.samples, self.most or _SAMPLES, _SAMPLES)
                distinct = ((layer.units - leaving[11]) * rows / max(leaving[12], 1e-30)) ** 2
                found[id(layer)] = [*_sizes(*entering[:4]), *entering[4:7], *_sizes(*leaving[7:11]), distinct]
        return found


def by_unit(layer: Any, values: Tensor) -> Tensor:
    """The values of a call as (samples, units), which it is told."""
    axis = layer.axis if values.ndim == layer.ndim else -1
    values = values.detach()
    matrix = values if values.ndim == 2 and axis == -1 else values.movedim(axis, -1).reshape(-1, values.shape[axis])
    layer.samples, layer.units = matrix.shape
    return matrix


@functools.cache
def _places(length: int, most: int, device: torch.device) -> Tensor:
    return some(torch.arange(length), most).to(device)


def _measure(held: dict[Any, tuple[Tensor, bool]]) -> tuple[list[Any], Tensor]:
    """The numbers of a stack, which is empty then."""
    keys = sorted(held, key=lambda key: not held[key][1])
    relu = sum(is_relu for _, is_relu in held.values())
    matrices = [held[key][0] for key in keys]
    held.clear()
    values = matrices[0].new_empty((len(keys) + relu, *matrices[0].shape))
    torch.stack(matrices, out=values[: len(keys)])
    matrices.clear()
    if relu:
        torch.clamp_min(values[:relu], 0, out=values[len(keys) :])
    return keys, _through(values, relu)


def _through(values: Tensor, relu: int) -> Tensor:
    """Of (k, samples, units), the first `relu` of which enter a ReLU and the last leave it: what `numbers` takes.

    Of what enters, and of what leaves: the largest value; over it, mean and std of the units' means over samples, and
    the mean of their variances. Between them the fraction above 0, the units that never are, and always; at last the
    units that do not vary, whose deviation is below rounding, and the norm of the others' correlations, times samples.
    In few operations, since a GPU waits for each. Values are divided by the largest of their layer, so that float32 is
    enough where squares are out of its range.
    """
    k, samples, units = values.shape
    k -= relu
    values, largest = _scaled(values)
    fired = torch.gt(values[:k], 0, out=torch.empty_like(values[:k])).mean(1)
    mean = values.mean(1)
    variance = values.sub_(mean.unsqueeze(1)).square().mean(1)
    apart, centre = torch.std_mean(mean, 1, correction=0)
    sizes = torch.stack((largest, centre, apart, variance.mean(1)), 1)
    mean, variance = mean[relu:], variance[relu:]
    still = variance <= mean.square_().mul_((64 * torch.finfo(values.dtype).eps) ** 2)
    unit = some(values[relu:], _SAMPLES, 1).mul_(variance.masked_fill_(still, math.inf).rsqrt_().unsqueeze(1))
    gram = unit.mT @ unit if units <= samples else unit @ unit.mT
    correlations = torch.linalg.vector_norm(gram.flatten(1), dim=1)
    entering = torch.stack((fired.mean(1), (fired == 0).sum(1), (fired == 1).sum(1)), 1)
    leaving = torch.stack((still.sum(1), correlations), 1)
    after = torch.cat((sizes[relu:], leaving), 1)
    if 0 < relu < k:  # back to the order of what enters
        after = after.roll(relu, 0)
    return torch.cat((sizes[:k], entering, after), 1)


def _sizes(largest: float, centre: float, apart: float, variance: float) -> tuple[float, float, float]:
    spread = math.sqrt(variance) if variance >= 0 else variance
    return largest * centre, largest * math.hypot(apart, spread), largest * spread


def distinct(values: Tensor) -> Tensor:
    r"""Of (…, samples, units): k² / Σ_ij r_ij², with r the correlations of the k units that vary.

    That is k if all differ, 1 if all are copies of one, 0 if none varies.
    """
    facts = _through(values.clone(), 0)
    rows = min(values.shape[1], _SAMPLES)
    return ((values.shape[2] - facts[:, 11]) * rows / facts[:, 12].clamp(min=1e-30)).square()


def _scaled(values: Tensor) -> tuple[Tensor, Tensor]:
    """The values of each layer over their largest, in float32 (float64 stays), and that largest."""
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    largest = values.abs().flatten(1).amax(1).clamp_(min=torch.finfo(values.dtype).tiny)
    return values.div_(largest[:, None, None]), largest


def bending(before: Tensor, after: Tensor) -> Tensor:
    """Of what enters an activation and what leaves it, (samples, units): how far from linear it acts.

    1 - r², r the correlation of a unit's input and output, over the units that vary; 0 if none does.
    """
    before, after = (
        half - half.mean(1, keepdim=True) for half in _scaled(torch.stack((before, after)))[0].unsqueeze(1)
    )
    squares = before.square().sum(1) * after.square().sum(1)
    varies = squares > torch.finfo(squares.dtype).tiny
    correlation = (before * after).sum(1).square() / torch.where(varies, squares, 1.0)
    return torch.where(varies, (1 - correlation).clamp_(min=0), 0.0).sum() / varies.sum().clamp_(min=1)


def common(gradients: Tensor) -> Tensor:
    """Of (…, units, n): the share of the gradient's square that is the same for all units."""
    gradients, _ = _scaled(gradients)
    whole = gradients.square().sum((1, 2))
    same = gradients.mean(1).square().sum(1) * gradients.shape[1]
    return torch.where(whole > 0, same / whole.clamp(min=1e-30), 0.0).unsqueeze(1)


def on_host(values: Tensor) -> Tensor:
    """On a device with float64: Apple's GPUs have none."""
    return values.cpu() if values.device.type == "mps" else values


def double(values: Tensor) -> Tensor:
    return on_host(values).double()


def some(values: Tensor, most: int, dimension: int = 0) -> Tensor:
    """At most `most` of the values along a dimension, spread evenly and in step with no period, as of image rows."""
    length = values.shape[dimension]
    if length <= most:
        return values
    golden = (math.sqrt(5) - 1) / 2
    places = (torch.arange(most, dtype=torch.float64) * golden).frac().mul_(length).long()
    return values.index_select(dimension, places.to(values.device))


def norms(tensors: Sequence[Tensor]) -> list[float]:
    """Euclidean lengths, of any size that the tensors themselves can have."""
    if not tensors:
        return []
    lengths = list(torch._foreach_norm([*tensors]))
    if len({(value.device, value.dtype) for value in lengths}) > 1:
        lengths = [double(value).cpu() for value in lengths]
    values = double(torch.stack(lengths)).tolist()
    return [
        value
        if 1e-15 < value < 1e15
        else float(torch.linalg.vector_norm(double(tensor)))  # squares may be out of range
        for value, tensor in zip(values, tensors)
    ]


def scalars(values: Mapping[Any, Tensor]) -> Table:
    """Tensors of one number each, those of one device together."""
    groups: dict[torch.device, tuple[list[Any], list[Tensor]]] = {}
    for key, value in values.items():
        keys, members = groups.setdefault(value.device, ([], []))
        keys.append(key)
        members.append(value)
    return [(keys, torch.stack(members)) for keys, members in groups.values()]


def read(tables: Iterable[Table]) -> list[dict[Any, Any]]:
    """Of each table: the row of each key, the last one of a key that comes twice."""
    kept = list(tables)
    tensors = [tensor for table in kept for _, tensor in table]
    rows = iter(_on_host(tensors))
    return [{key: row for keys, _ in table for key, row in zip(keys, next(rows))} for table in kept]


def _on_host(tensors: list[Tensor]) -> list[list[Any]]:
    if len(tensors) < 2 or all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.tolist() for tensor in tensors]
    places: dict[torch.device, list[int]] = {}
    for at, tensor in enumerate(tensors):
        places.setdefault(tensor.device, []).append(at)
    found: list[list[Any]] = [[] for _ in tensors]
    for chosen in places.values():
        flat = [on_host(tensors[at]).double().flatten() for at in chosen]
        for at, part in zip(chosen, torch.cat(flat).cpu().split([values.numel() for values in flat])):
            found[at] = part.view(tensors[at].shape).tolist()
    return found
