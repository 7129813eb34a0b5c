"""What passes through layers: `Signal`, which keeps few rows of it and measures layers of one shape together.

Of each layer the mean, std and spread of what enters its activation, the fraction above 0 and how many units are above
0 for no sample; and the mean, std and spread of what leaves it, and its distinct units. Without an activation the same
values enter and leave; what leaves a ReLU follows from what enters. So of most layers one matrix is enough.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..diagnosis._observe import Observer, Seen
from ..diagnosis._statistics import Gatherer, some
from ._readout import Table

_SAMPLES = 128  # values of a unit that are looked at
_NUMBERS = 1 << 18  # a larger output is cut to fewer inputs before its units are laid out
_ENTERS, _LEAVES = 0, 1


class Signal:
    """Takes a sample of each layer's values, and keeps no other tensor."""

    def __init__(self) -> None:
        self._plain, self._relu = Gatherer(_through), Gatherer(functools.partial(_through, relu=True))

    def same(self, layer: Seen, values: Tensor) -> None:
        """Outputs that no activation follows."""
        self._plain.add(id(layer), _by_unit(layer, values))

    def rectified(self, layer: Seen, values: Tensor) -> None:
        """What enters a ReLU."""
        self._relu.add(id(layer), _by_unit(layer, values))

    def enters(self, layer: Seen, values: Tensor) -> None:
        """What enters another activation."""
        self._plain.add((id(layer), _ENTERS), _by_unit(layer, values))

    def leaves(self, layer: Seen, values: Tensor) -> Tensor:
        """What leaves it, returned as (samples, units)."""
        matrix = _by_unit(layer, values)
        self._plain.add((id(layer), _LEAVES), matrix)
        return matrix

    def table(self) -> Table:
        """For `numbers`."""
        return self._plain.tables() + self._relu.tables()  # a ReLU may follow outputs that seemed to have none


def numbers(seen: Iterable[Seen], facts: Mapping[Any, Sequence[float]]) -> dict[int, list[float]]:
    """By the id of a layer: six numbers of what enters its activation and four of what leaves it."""
    found = {}
    for layer in seen:
        key = id(layer)
        entering, leaving = facts.get((key, _ENTERS)), facts.get((key, _LEAVES))
        if entering is None or leaving is None:
            entering = leaving = facts.get(key)
        if entering is not None and leaving is not None:
            fired, never = entering[8:10]
            count, correlations = leaving[10:]
            distinct = (count * min(layer.samples, _SAMPLES) / max(correlations, 1e-30)) ** 2
            found[key] = [*_sizes(*entering[:4]), fired, never, math.nan, *_sizes(*leaving[4:8]), distinct]
    return found


def _by_unit(layer: Seen, values: Tensor) -> Tensor:
    """A sample of the values, (samples, units)."""
    if layer.ndim == values.ndim == 2 and layer.axis == -1:
        layer.samples, layer.units = values.shape
        return values[:_SAMPLES]  # inputs of a batch come in no order
    if values.ndim > 2 and values.numel() > _NUMBERS and len(values) > 1:
        values = values[:: math.ceil(values.numel() / _NUMBERS)]
    matrix = Observer._by_unit(layer, values)
    if layer.ndim == 2 or len(matrix) <= _SAMPLES:
        return matrix[:_SAMPLES]
    return matrix.index_select(0, _places(len(matrix), matrix.device))


@functools.cache
def _places(length: int, device: torch.device) -> Tensor:
    """Rows to look at, out of `length`."""
    return some(torch.arange(length), _SAMPLES).to(device)


def _through(values: Tensor, relu: bool = False) -> Tensor:
    """Of (k, samples, units): what `numbers` takes, in few operations; a GPU waits for each.

    Of what enters, and of what leaves: the largest value; over it, mean and std of the units' means over samples, and
    the mean of their variances. Then the fraction above 0, the units that never are, those that vary, and the
    norm of their correlations, times samples.
    """
    k, samples, units = values.shape
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    both = torch.cat((values, values.relu())) if relu else values
    largest = both.abs().flatten(1).amax(1).clamp_(min=torch.finfo(both.dtype).tiny)
    both.div_(largest[:, None, None])
    fired = torch.gt(both[:k], 0, out=torch.empty_like(both[:k])).mean(1)
    mean = both.mean(1)
    variance = both.sub_(mean.unsqueeze(1)).square().mean(1)
    apart, centre = torch.std_mean(mean, 1, correction=0)
    sizes = torch.stack((largest, centre, apart, variance.mean(1)), 1)
    mean, variance = mean[-k:], variance[-k:]
    varies = variance > mean.square_().mul_((64 * torch.finfo(both.dtype).eps) ** 2)
    unit = both[-k:].mul_(torch.where(varies, variance, torch.inf).rsqrt_().unsqueeze(1))
    gram = unit.mT @ unit if units <= samples else unit @ unit.mT
    correlations = torch.linalg.vector_norm(gram.flatten(1), dim=1)
    counts = torch.stack((fired.mean(1), (fired == 0).sum(1), varies.sum(1), correlations), 1)
    return torch.cat((sizes[:k], sizes[-k:], counts), 1)


def _sizes(largest: float, centre: float, apart: float, variance: float) -> tuple[float, float, float]:
    """Mean, std, and the root mean square of a unit's std over the samples."""
    spread = math.sqrt(variance) if variance >= 0 else variance
    return largest * centre, largest * math.hypot(apart, spread), largest * spread
