"""Statistics of many layers at once: values of one shape are stacked and measured together, which keeps them cheap
compared with the forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_STACK = 1 << 18  # numbers measured at once: their float64 copies stay in a processor's cache
_MOST = 64  # tensors in a stack
_SAMPLES = 1024  # rows of activations used to detect redundant units


class Gatherer:
    """Copies tensors and returns, for each, the row of numbers that `compute` makes of it.

    `compute` gets a stack of tensors of one shape and dtype, to do with as it likes, and returns one row for each. The
    memory of a stack is used again for the next, while it is still in the processor's cache.
    """

    def __init__(self, compute: Callable[[Tensor], Tensor], dtype: torch.dtype | None = None) -> None:
        self._compute, self._dtype = compute, dtype
        self._stacks: dict[Hashable, tuple[list[Any], list[Tensor]]] = {}
        self._done: list[tuple[list[Any], Tensor]] = []

    def add(self, key: Hashable, values: Tensor) -> None:
        """Copy `values` for `key`."""
        group = values.shape, values.dtype, values.device
        held = self._stacks.get(group)
        if held is None:
            count = min(max(1, _STACK // max(1, values.numel())), _MOST)
            stack = values.new_empty((count, *values.shape), dtype=self._dtype or values.dtype)
            held = self._stacks[group] = [], [*stack.unbind(), stack]
        keys, places = held
        places[len(keys)].copy_(values)
        keys.append(key)
        if len(keys) == len(places) - 1:
            self._run(group)

    def _run(self, group: Hashable) -> None:
        keys, places = self._stacks[group]
        if keys:
            self._done.append((keys[:], self._compute(places[-1][: len(keys)])))
            keys.clear()

    def tables(self) -> list[tuple[list[Any], Tensor]]:
        """Keys, and their rows as they are on the device."""
        with torch.no_grad():
            for group in self._stacks:
                self._run(group)
        self._stacks.clear()
        return self._done

    def results(self) -> dict[Any, Any]:
        """The numbers of each key."""
        return {key: row for keys, table in self.tables() for key, row in zip(keys, table.tolist())}


def on_host(values: Tensor) -> Tensor:
    """On a device with float64: Apple's GPUs have none."""
    return values.cpu() if values.device.type == "mps" else values


def double(values: Tensor) -> Tensor:
    """In float64."""
    return on_host(values).double()


# Note [scale]
#     The signal of a deep network may be too small or too large to be squared in float32. Values are divided by the
#     largest of their layer, so that float32 is enough, and the numbers are scaled back in float64.
def _scaled(values: Tensor) -> tuple[Tensor, Tensor]:
    """The values of each layer over their largest, in float32 (float64 stays), and that largest, in float64."""
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    largest = torch.maximum(values.amax((1, 2)), -values.amin((1, 2))).clamp_(min=torch.finfo(values.dtype).tiny)
    return values.div_(largest[:, None, None]), double(largest)


def entering(values: Tensor) -> Tensor:
    """Of (…, samples, units): mean, std, spread over samples, the fraction above 0, and how many units are above 0 for
    no sample, and for all."""
    values, scale = _scaled(values)
    fired = torch.gt(values, 0, out=torch.empty_like(values)).mean(1)
    unit_mean = values.mean(1)
    mean = unit_mean.mean(1)
    apart = (unit_mean - mean.unsqueeze(1)).square_().mean(1)
    values.sub_(unit_mean.unsqueeze(1))
    spread = torch.linalg.vector_norm(values, dim=(1, 2)) / math.sqrt(values[0].numel())
    std = (spread.square() + apart).sqrt_()
    never, always = (fired == 0).sum(1).to(scale), (fired == 1).sum(1).to(scale)
    return torch.stack((mean * scale, std * scale, spread * scale, fired.mean(1).to(scale), never, always), 1)


def leaving(values: Tensor) -> Tensor:
    """Of (…, samples, units): mean, std, root mean square of a unit's std over the samples, and distinct units."""
    values, scale = _scaled(values)
    mean = values.mean(1)
    centred = values.sub_(mean.unsqueeze(1))
    variance, distinct = _distinct(centred, mean)
    spread, centre = variance.mean(1), mean.mean(1)
    std = (spread + (mean - centre.unsqueeze(1)).square_().mean(1)).sqrt_()
    return torch.stack((centre * scale, std * scale, spread.sqrt_() * scale, distinct.to(scale)), 1)


def _distinct(centred: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    r"""The variance of every unit, and k² / Σ_ij r_ij², with r the correlations of the k units that vary.

    That is k if all differ, 1 if all are copies of one, 0 if none varies: a unit varies if its deviation is above
    rounding, 64 eps of its values. Of very many samples some are used; with fewer samples than units the sum runs over
    samples, since ZᵀZ and ZZᵀ have the same sum of squares.
    """
    samples, units = centred.shape[1:]
    if units <= samples <= _SAMPLES:
        gram = centred.mT @ centred
        total = gram.diagonal(dim1=1, dim2=2)
        inverse, count = _inverse(total / samples, mean)
        inverse = inverse / samples
        squares = (inverse.unsqueeze(1) @ gram.square() @ inverse.unsqueeze(2)).flatten()
        return total / samples, count.square() / squares.clamp_(min=1e-30)
    variance = centred.square().mean(1)
    chosen = some(centred, _SAMPLES, 1)
    shift = chosen.mean(1)
    chosen = chosen - shift.unsqueeze(1)
    inverse, count = _inverse(chosen.square().mean(1), mean + shift)
    unit = chosen.mul_(inverse.sqrt().unsqueeze(1)).float()
    gram = unit.mT @ unit if unit.shape[1] >= units else unit @ unit.mT
    return variance, (count * unit.shape[1]).square_() / gram.square_().sum((1, 2)).to(mean).clamp_(min=1e-30)


def _inverse(variance: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """1/variance of the units that vary and 0 of the others; and how many vary."""
    varies = variance > (64 * torch.finfo(mean.dtype).eps) ** 2 * (variance + mean.square())
    return torch.where(varies, variance, torch.inf).reciprocal_(), varies.sum(1).to(mean)


def bending(values: Tensor) -> Tensor:
    """Of (…, samples, 2 · units), what enters an activation beside what leaves it: how far from linear it acts.

    1 - r², r the correlation of a unit's input and output, over the units that vary; 0 if none does.
    """
    values, _ = _scaled(values)
    before, after = (half - half.mean(1, keepdim=True) for half in values.chunk(2, -1))
    squares = before.square().sum(1) * after.square().sum(1)
    varies = squares > torch.finfo(squares.dtype).tiny
    correlation = (before * after).sum(1).square() / torch.where(varies, squares, 1.0)
    bend = torch.where(varies, (1 - correlation).clamp_(min=0), 0.0).double()
    return (bend.sum(1) / varies.sum(1).clamp_(min=1)).unsqueeze(1)


def common(gradients: Tensor) -> Tensor:
    """Of (…, units, n): the share of the gradient's square that is the same for all units."""
    gradients, _ = _scaled(gradients)
    whole = gradients.square().sum((1, 2))
    same = gradients.mean(1).square().sum(1) * gradients.shape[1]
    return torch.where(whole > 0, same / whole.clamp(min=1e-30), 0.0).double().unsqueeze(1)


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


Table = list[tuple[list[Any], Tensor]]
"""Keys, and a tensor with a row for each of them."""


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
