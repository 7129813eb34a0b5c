"""The matrices that parameters are read as, and those of one shape in a parameter group, updated together: their state
is one tensor, which the optimizer's per-parameter state views."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...core.check import errors, tolerance
from ...recipe.layers import Matrices, Rule
from ..initialize.layers import rule
from ..initialize.sharded import is_sharded, whole
from ..sampling.tensors import DTYPES, WORKING
from .squares import Squares

Shape = tuple[int, ...]
Batch = tuple[int, int, int]
"""How many matrices a parameter holds, and their m and n."""
SLACK = 10  # trained members carry more rounding than fresh ones
# Entries updated at once: on a CPU what stays in its caches, on a GPU what keeps temporaries small beside the model.
TOGETHER = {"cpu": 1 << 19, "cuda": 1 << 26}
Update = Callable[..., Tensor]
"""(weights, gradients, *moments, steps, squares) → weights, all of shape (k, m, n); moments are updated in place.
`steps` counts those before this one: one number if it is the same for all matrices, else of shape (k, 1, 1)."""


def of_model(model: nn.Module) -> tuple[list[nn.Parameter], dict[int, tuple[Batch, ...]]]:
    """The parameters of a model and, by their `id`, the matrices that each may be read as."""
    readings: dict[int, tuple[Batch, ...]] = {}
    for module in model.modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            shape = tuple(parameter.shape)
            known = rule(module, leaf, shape, "flatten")
            readings.setdefault(id(parameter), any_reading(shape) if known is None else _of_rule(known, shape))
    return list(model.parameters()), readings


def _of_rule(known: Rule, shape: Shape) -> tuple[Batch, ...]:
    """As its layer reads it. The transpose of a member is one, so that a weight may be stored as either."""
    if not isinstance(known, Matrices) or known.tap or known.rows or known.zero_row is not None:
        return ()
    stored = known.count, shape[0] // known.count, math.prod(shape[1:])
    transposed = len(shape) == 2 or known.order == (1, *range(2, len(shape)), 0)
    if known.order and not transposed:
        return ()
    return (stored,)


def any_reading(shape: Shape) -> tuple[Batch, ...]:
    """Of a parameter of no known layer: a stack of matrices (…, m, n), or a kernel m × (the rest)."""
    if len(shape) < 2:
        return ()
    stack, kernel = (math.prod(shape[:-2]), shape[-2], shape[-1]), (1, shape[0], math.prod(shape[1:]))
    return (stack,) if len(shape) == 2 else (stack, kernel)


def reading_in_set(tensor: Tensor, readings: Iterable[Batch]) -> Batch | None:
    """The first reading under which all the tensor's matrices are in the set; None if there is none."""
    if tensor.dtype not in DTYPES or tensor.is_meta or not tensor.numel():
        return None
    for batch in readings:
        m, n = batch[1:]
        bound = SLACK * tolerance(m, n, torch.finfo(tensor.dtype).eps)
        *distances, _ = errors(whole(tensor).double().reshape(batch))
        if all(float(distance.max()) <= bound for distance in distances):  # false for a NaN
            return batch
    return None


class Stack:
    """Parameters whose matrices have one shape, dtype and device, and their state.

    What the optimizer's `state` has is taken over, and replaced by views of the stacked entries; `moments` names those.
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
        self.sharded = is_sharded(first)
        self.plain = not self.sharded and all(parameter.shape == (self.m, self.n) for parameter in parameters)
        """Whether each parameter is one matrix, so that nothing is to be gathered or reshaped."""
        total = sum(self.counts)
        names = [*moments, "master"] if self.low else moments
        self.state = {name: torch.zeros(total, self.m, self.n, dtype=self.dtype, device=device) for name in names}
        self.steps = torch.zeros(total, 1, 1, dtype=torch.float64, device=device)
        self.ends = torch.tensor(self.counts).cumsum(0).tolist()
        entries = TOGETHER.get(device.type, TOGETHER["cuda"])
        self.length = max(1, entries // (self.m * self.n))
        self.squares: Squares | None = None
        if Squares.serve(device, self.m, self.n):
            self.squares = Squares(min(total, max(self.length, *self.counts)), self.n, self.dtype)
        if self.low:
            self.state["master"].copy_(self._read([whole(parameter) for parameter in parameters]))
        self._take_over(state)
        self.even = bool((self.steps == self.steps[0]).all())
        """Whether all matrices have taken the same number of steps."""

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

    def _read(self, tensors: Sequence[Tensor], room: int = 0) -> Tensor:
        """Their matrices, in the working precision."""
        if self.plain and len(tensors) > 1:
            if self.squares is not None and all(tensor.dtype == self.dtype for tensor in tensors):
                return self.squares.read(tensors, room)
            return torch.cat(list(tensors)).view(-1, self.m, self.n).to(self.dtype)
        parts = [tensor.reshape(-1, self.m, self.n) for tensor in tensors]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).to(self.dtype)

    def step(self, update: Update) -> None:
        """Update the parameters that have a gradient."""
        chosen = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        self.even = self.even and len(chosen) in (0, len(self.parameters))
        with torch.autocast(self.steps.device.type, enabled=False):  # its products would be in half precision
            for part in self._parts(chosen):
                self._step(update, part)

    def _parts(self, chosen: Sequence[int]) -> Iterator[list[int]]:
        """Of parameters that are updated at once."""
        part: list[int] = []
        size = 0
        for i in chosen:
            if part and size + self.counts[i] > self.length:
                yield part
                part, size = [], 0
            part.append(i)
            size += self.counts[i]
        if part:
            yield part

    def _step(self, update: Update, chosen: list[int]) -> None:
        parameters = [self.parameters[i] for i in chosen]
        held: list[Any] = [parameter.grad for parameter in parameters]
        gradients, weights = (
            self._read(tensors if self.plain else [whole(tensor) for tensor in tensors], room)
            for room, tensors in enumerate((held, parameters))
        )
        ranges = list(self._ranges(chosen))
        rows: Any = slice(ranges[0][0], ranges[-1][1])
        gaps = len(chosen) <= chosen[-1] - chosen[0]
        if gaps:  # some parameters have no gradient
            rows = torch.cat([torch.arange(*bounds) for bounds in ranges]).to(self.steps.device)
        moments = {name: stacked[rows] for name, stacked in self.state.items()}
        if self.low:
            # What was written to a parameter since the last step counts; else its entries before rounding.
            master = moments.pop("master")
            weights = torch.where(weights == master.to(parameters[0].dtype), master, weights)
        steps = self.steps[rows]
        new = update(weights, gradients, *moments.values(), steps[0] if self.even else steps, self.squares)
        if gaps:  # these are copies
            for name, value in moments.items():
                self.state[name][rows] = value
            self.steps[rows] = steps + 1
        else:
            steps += 1
        if self.low:
            self.state["master"][rows] = new
        if self.plain:
            torch._foreach_copy_(parameters, list(new.unbind()))
        else:
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
