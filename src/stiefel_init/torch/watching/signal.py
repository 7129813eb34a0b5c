"""What passes through layers: `Signal`, which keeps few rows of it and measures layers of one shape together.

Of each layer the mean, std and spread of what enters its activation, the fraction above 0 and how many units are above
0 for no sample; and the mean, std and spread of what leaves it, and its distinct units. Without an activation the same
values enter and leave; what leaves a ReLU follows from what enters. So of most layers one matrix is enough.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..observe.observer import Observer, Seen
from ..observe.statistics import Table, some

_SAMPLES = 128  # values of a unit that are looked at
_NUMBERS = 1 << 18  # a larger output is cut to fewer inputs before its units are laid out
_ENTERS, _LEAVES = 0, 1
_STACK = 1 << 18  # numbers measured at once: they stay in a processor's cache
_MOST = 64  # matrices in a stack
_KEPT = 1 << 19  # numbers that are kept, about, before they are measured
_EARLY = 2 / 3  # of the layers


class Signal:
    """Takes a sample of each layer's values, and keeps no other tensor.

    Measuring takes three times the memory of what is measured. In the first layers there is room for it, since the
    activations of the others are still to come; what fills up later waits for the end of the step, if it is little.
    """

    def __init__(self, layers: int) -> None:
        self._layers = layers
        self._begun: set[int] = set()
        self._stacks: dict[Hashable, _Stack] = {}
        self._full: list[_Stack] = []
        self._kept = 0
        self._table: Table = []

    def _add(self, layer: Seen, part: int | None, values: Tensor, relu: bool) -> None:
        self._begun.add(id(layer))
        group = values.shape, values.dtype, values.device
        stack = self._stacks.get(group)
        if stack is None:
            stack = self._stacks[group] = _Stack(values)
        if stack.add(id(layer) if part is None else (id(layer), part), values, relu):
            self._full.append(self._stacks.pop(group))
            self._kept += stack.numbers
            if self._kept >= _KEPT or len(self._begun) < _EARLY * self._layers:
                self._table += [full.measure() for full in self._full]
                self._full, self._kept = [], 0

    def same(self, layer: Seen, values: Tensor) -> None:
        """Outputs that no activation follows."""
        self._add(layer, None, _by_unit(layer, values), False)

    def rectified(self, layer: Seen, values: Tensor) -> None:
        """What enters a ReLU."""
        self._add(layer, None, _by_unit(layer, values), True)

    def enters(self, layer: Seen, values: Tensor) -> None:
        """What enters another activation."""
        self._add(layer, _ENTERS, _by_unit(layer, values), False)

    def leaves(self, layer: Seen, values: Tensor) -> Tensor:
        """What leaves it, returned as (samples, units)."""
        matrix = _by_unit(layer, values)
        self._add(layer, _LEAVES, matrix, False)
        return matrix

    def table(self) -> Table:
        """For `numbers`."""
        rest = [stack.measure() for stack in (*self._full, *self._stacks.values())]
        self._full, self._stacks = [], {}
        return self._table + rest


class _Stack:
    """Matrices of one shape, those that enter a ReLU and others."""

    def __init__(self, like: Tensor) -> None:
        self._size = min(max(1, _STACK // max(1, like.numel())), _MOST)
        self._relu: dict[Any, Tensor] = {}
        self._plain: dict[Any, Tensor] = {}

    @property
    def numbers(self) -> int:
        """How many it holds."""
        return sum(matrix.numel() for held in (self._relu, self._plain) for matrix in held.values())

    def add(self, key: Any, values: Tensor, relu: bool) -> bool:
        """Keep values; whether the stack is full now."""
        (self._relu if relu else self._plain)[key] = values
        return len(self._relu) + len(self._plain) == self._size

    def measure(self) -> tuple[list[Any], Tensor]:
        """The numbers of all, which are gone then."""
        keys, relu = [*self._relu, *self._plain], len(self._relu)
        matrices = [*self._relu.values(), *self._plain.values()]
        self._relu, self._plain = {}, {}
        values = matrices[0].new_empty((len(keys) + relu, *matrices[0].shape))
        torch.stack(matrices, out=values[: len(keys)])
        matrices.clear()
        if relu:
            torch.clamp_min(values[:relu], 0, out=values[len(keys) :])
        return keys, _through(values, relu)


def numbers(seen: Iterable[Seen], facts: Mapping[Any, Sequence[float]]) -> dict[int, list[float]]:
    """By the id of a layer: five numbers of what enters its activation and four of what leaves it."""
    found = {}
    for layer in seen:
        key = id(layer)
        entering, leaving = facts.get((key, _ENTERS)), facts.get((key, _LEAVES))
        if entering is None or leaving is None:
            entering = leaving = facts.get(key)
        if entering is not None and leaving is not None:
            count, correlations = layer.units - leaving[10], leaving[11]
            distinct = (count * min(layer.samples, _SAMPLES) / max(correlations, 1e-30)) ** 2
            found[key] = [*_sizes(*entering[:4]), *entering[4:6], *_sizes(*leaving[6:10]), distinct]
    return found


def _by_unit(layer: Seen, values: Tensor) -> Tensor:
    """A copy of a sample of the values, (samples, units): what follows may work in place."""
    if layer.ndim == values.ndim == 2 and layer.axis == -1:
        layer.samples, layer.units = values.shape
        return values[:_SAMPLES].clone()  # inputs of a batch come in no order
    if values.ndim > 2 and values.numel() > _NUMBERS and len(values) > 1:
        values = values[:: math.ceil(values.numel() / _NUMBERS)]
    matrix = Observer._by_unit(layer, values)
    if layer.ndim == 2 or len(matrix) <= _SAMPLES:
        return matrix[:_SAMPLES].clone()
    return matrix.index_select(0, _places(len(matrix), matrix.device))


@functools.cache
def _places(length: int, device: torch.device) -> Tensor:
    """Rows to look at, out of `length`."""
    return some(torch.arange(length), _SAMPLES).to(device)


def _through(values: Tensor, relu: int) -> Tensor:
    """Of (k, samples, units), the first `relu` of which enter a ReLU and the last leave it: what `numbers` takes.

    Of what enters, and of what leaves: the largest value; over it, mean and std of the units' means over samples, and
    the mean of their variances. Then the fraction above 0, the units that never are, those that do not vary, and the
    norm of the others' correlations, times samples. In few operations, since a GPU waits for each.
    """
    k, samples, units = values.shape
    k -= relu
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    largest = values.abs().flatten(1).amax(1).clamp_(min=torch.finfo(values.dtype).tiny)
    values.div_(largest[:, None, None])
    fired = torch.gt(values[:k], 0, out=torch.empty_like(values[:k])).mean(1)
    mean = values.mean(1)
    variance = values.sub_(mean.unsqueeze(1)).square().mean(1)
    apart, centre = torch.std_mean(mean, 1, correction=0)
    sizes = torch.stack((largest, centre, apart, variance.mean(1)), 1)
    mean, variance = mean[relu:], variance[relu:]
    still = variance <= mean.square_().mul_((64 * torch.finfo(values.dtype).eps) ** 2)
    unit = values[relu:].mul_(variance.masked_fill_(still, math.inf).rsqrt_().unsqueeze(1))
    gram = unit.mT @ unit if units <= samples else unit @ unit.mT
    correlations = torch.linalg.vector_norm(gram.flatten(1), dim=1)
    entering = torch.stack((fired.mean(1), (fired == 0).sum(1)), 1)
    leaving = torch.stack((still.sum(1), correlations), 1)
    after = torch.cat((sizes[relu:], leaving), 1)
    if 0 < relu < k:  # back to the order of what enters
        after = after.roll(relu, 0)
    return torch.cat((sizes[:k], entering, after), 1)


def _sizes(largest: float, centre: float, apart: float, variance: float) -> tuple[float, float, float]:
    """Mean, std, and the root mean square of a unit's std over the samples."""
    spread = math.sqrt(variance) if variance >= 0 else variance
    return largest * centre, largest * math.hypot(apart, spread), largest * spread
