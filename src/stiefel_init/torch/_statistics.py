"""Statistics of many layers at once: values of one shape are stacked and measured together, which is what makes it
cheap beside the forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

_STACK = 1 << 17  # numbers measured at once: their float64 copies stay in a processor's cache
_SAMPLES = 1024  # rows of activations from which repeated units are told


class Gatherer:
    """Takes tensors and gives, for each, the row of numbers that `compute` makes of it.

    `compute` gets a stack of tensors of one shape and dtype, to do with as it likes, and returns one row for each.
    """

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        self._compute = compute
        self._waiting: dict[Hashable, tuple[list[int], list[Tensor]]] = {}
        self._done: list[tuple[list[int], Tensor]] = []

    def add(self, key: int, values: Tensor) -> None:
        """Take `values`, which must not change any more, for `key`."""
        group = values.shape, values.dtype, values.device
        keys, tensors = self._waiting.setdefault(group, ([], []))
        keys.append(key)
        tensors.append(values)
        if len(tensors) * values.numel() >= _STACK:
            self._run(group)

    def _run(self, group: Hashable) -> None:
        keys, tensors = self._waiting.pop(group)
        with torch.no_grad():
            self._done.append((keys, self._compute(torch.stack(tensors))))

    def results(self) -> dict[int, Any]:
        """The numbers of each key."""
        for group in list(self._waiting):
            self._run(group)
        return {key: row for keys, table in self._done for key, row in zip(keys, table.tolist())}


def double(values: Tensor) -> Tensor:
    """In float64, where the device has it."""
    return values.cpu().double() if values.device.type == "mps" else values.double()


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
    """Of (…, samples, units): mean, std, the fraction above 0, and the number of units never above 0."""
    values, scale = _scaled(values)
    fired = torch.gt(values, 0, out=torch.empty_like(values)).mean(1)
    mean = values.mean((1, 2))
    std = torch.linalg.vector_norm(values.sub_(mean[:, None, None]), dim=(1, 2)) / math.sqrt(values[0].numel())
    return torch.stack((mean * scale, std * scale, fired.mean(1).to(scale), (fired == 0).sum(1).to(scale)), 1)


def leaving(values: Tensor) -> Tensor:
    """Of (…, samples, units): mean, std, root mean square of a unit's std over the samples, and distinct units."""
    values, scale = _scaled(values)
    mean = values.mean(1)
    centred = values.sub_(mean.unsqueeze(1))
    variance = centred.square().mean(1)
    spread, centre = variance.mean(1), mean.mean(1)
    std = (spread + (mean - centre.unsqueeze(1)).square_().mean(1)).sqrt_()
    distinct = _distinct(centred, mean, variance).to(scale)
    return torch.stack((centre * scale, std * scale, spread.sqrt_() * scale, distinct), 1)


def _distinct(centred: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    r"""k² / Σ_ij r_ij², with r the correlations of the k units that vary: k if all differ, 1 if all repeat one.

    A unit varies if its deviation is above rounding, 64 eps of its values. 0 if none does. Overwrites `centred`.
    """
    if centred.shape[1] > _SAMPLES:
        centred = some(centred, _SAMPLES, 1)
        shift = centred.mean(1)
        centred, mean = centred - shift.unsqueeze(1), mean + shift
        variance = centred.square().mean(1)
    varies = variance > (64 * torch.finfo(mean.dtype).eps) ** 2 * (variance + mean.square())
    unit = centred.mul_(torch.where(varies, variance, torch.inf).rsqrt_().unsqueeze(1)).float()
    rows, columns = unit.shape[1:]
    # The squares of the correlations add up to those of the smaller of the two Gram matrices.
    gram = unit.mT @ unit if rows >= columns else unit @ unit.mT
    squares = gram.square_().sum((1, 2)).to(mean).clamp_(min=1e-30)
    return (varies.sum(1) * rows).to(mean).square_() / squares


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
    places = {tensor.device for tensor in tensors}
    found = torch._foreach_norm([*tensors])
    values = torch.stack([value.double() if len(places) == 1 else double(value).cpu() for value in found]).tolist()
    return [
        value
        if 1e-15 < value < 1e15
        else float(torch.linalg.vector_norm(double(tensor)))  # squares may be out of range
        for value, tensor in zip(values, tensors)
    ]
