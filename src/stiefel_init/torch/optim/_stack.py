"""All matrices of one shape in a parameter group, updated together: their state is one tensor, which the optimizer's
per-parameter state views."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..initialize._sharded import is_sharded
from ..sampling._tensors import WORKING
from ._matrices import Batch, whole

# Entries updated at once: on a CPU what stays in its caches, on a GPU what keeps temporaries small beside the model.
TOGETHER = {"cpu": 1 << 16, "cuda": 1 << 24}
Update = Callable[..., tuple[Tensor, ...]]
"""(weights, gradients, *moments, steps) → (weights, *moments), all of shape (k, m, n), steps of shape (k, 1, 1)."""


class Stack:
    """Parameters whose matrices have one shape, dtype and device, and their state.

    Args:
        parameters: At least one.
        batches: The matrices of each.
        state: The optimizer's; the entries it has are taken over, and replaced by views of the stacked ones.
        moments: Names of the moments, each of the size of the weights.
    """

    def __init__(
        self, parameters: Sequence[Tensor], batches: Sequence[Batch], state: Any, moments: Sequence[str]
    ) -> None:
        first = parameters[0]
        self.parameters, self.batches = list(parameters), list(batches)
        self.counts = [batch[0] for batch in batches]
        self.m, self.n = batches[0][1:]
        self.low = first.dtype not in WORKING
        """Whether the weights are kept in float32 beside the parameters, which are their rounding."""
        self.dtype = torch.float32 if self.low else first.dtype
        device = whole(first).device
        total = sum(self.counts)
        names = [*moments, "master"] if self.low else moments
        self.state = {name: torch.zeros(total, self.m, self.n, dtype=self.dtype, device=device) for name in names}
        self.steps = torch.zeros(total, 1, 1, dtype=torch.float64, device=device)
        self.ends = torch.tensor(self.counts).cumsum(0).tolist()
        if self.low:
            self.state["master"].copy_(self._read([whole(parameter) for parameter in parameters]))
        self._take_over(state)
        entries = TOGETHER.get(device.type, TOGETHER["cuda"])
        self.length = max(1, entries // (self.m * self.n))

    def _take_over(self, state: Any) -> None:
        for parameter, (low, high) in zip(self.parameters, self._ranges(range(len(self.parameters)))):
            kept = state[parameter]
            for name, stacked in self.state.items():
                part = stacked[low:high].view(parameter.shape)
                if name in kept:
                    part.copy_(kept[name])
                kept[name] = part
            if "step" in kept:
                self.steps[low:high] = kept["step"]
            kept["step"] = self.steps[low].view(())

    def _ranges(self, chosen: Sequence[int]) -> Iterator[tuple[int, int]]:
        return ((self.ends[i] - self.counts[i], self.ends[i]) for i in chosen)

    def _read(self, tensors: Sequence[Tensor]) -> Tensor:
        """Their matrices, in the working precision."""
        parts = [tensor.reshape(-1, self.m, self.n) for tensor in tensors]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).to(self.dtype)

    def step(self, update: Update) -> None:
        """Update the parameters that have a gradient."""
        chosen = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        with torch.autocast(self.steps.device.type, enabled=False):  # its products would be in half precision
            for part in self._parts(chosen):
                self._step(update, part)

    def _parts(self, chosen: Sequence[int]) -> Iterator[list[int]]:
        """Of parameters that are updated at once."""
        part: list[int] = []
        for i in chosen:
            if part and sum(self.counts[j] for j in part) + self.counts[i] > self.length:
                yield part
                part = []
            part.append(i)
        if part:
            yield part

    def _step(self, update: Update, chosen: list[int]) -> None:
        parameters = [self.parameters[i] for i in chosen]
        gradients = self._read([whole(parameter.grad) for parameter in parameters])  # type: ignore[arg-type]
        weights = self._read([whole(parameter) for parameter in parameters])
        ranges = list(self._ranges(chosen))
        rows: Any = slice(ranges[0][0], ranges[-1][1])
        gaps = len(chosen) <= chosen[-1] - chosen[0]
        if gaps:  # some parameters have no gradient
            rows = torch.cat([torch.arange(*bounds) for bounds in ranges]).to(self.steps.device)
        steps, held = self.steps[rows] + 1, {name: stacked[rows] for name, stacked in self.state.items()}
        if self.low:
            # What was written to a parameter since the last step counts; else its entries before rounding.
            master = held.pop("master")
            weights = torch.where(weights == master.to(parameters[0].dtype), master, weights)
        new, *moments = update(weights, gradients, *held.values(), steps)
        for name, value in zip([*held, "master"], (*moments, new)):
            if name in self.state:
                self.state[name][rows] = value
        self.steps[rows] = steps
        write(parameters, new.split([self.counts[i] for i in chosen]))


def write(parameters: Sequence[Tensor], matrices: Sequence[Tensor]) -> None:
    """Put each parameter's matrices into it; into a DTensor, this rank's part of them."""
    values = [value.reshape(parameter.shape) for parameter, value in zip(parameters, matrices)]
    if not any(map(is_sharded, parameters)):
        torch._foreach_copy_([parameter.detach() for parameter in parameters], values)
        return
    from torch.distributed.tensor import distribute_tensor

    target: Any
    for target, value in zip(parameters, values):
        part = distribute_tensor(value.to(target.dtype), target.device_mesh, target.placements, src_data_rank=None)
        target.detach().copy_(part)


def stacks(group: dict[str, Any], state: Any, moments: Sequence[str]) -> list[Stack]:
    """The stacks of a group on the set; parameters without entries have nothing to update."""
    by_kind: dict[Any, list[tuple[Tensor, Batch]]] = {}
    for parameter, batch in zip(group["params"], group["matrices"]):
        if math.prod(batch):
            key = *batch[1:], parameter.dtype, parameter.device, is_sharded(parameter)
            by_kind.setdefault(key, []).append((parameter, tuple(batch)))
    return [
        Stack([parameter for parameter, _ in pairs], [batch for _, batch in pairs], state, moments)
        for pairs in by_kind.values()
    ]
