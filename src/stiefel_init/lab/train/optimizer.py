"""The optimizers of the graph engine: torch's own, over the rows of a stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from .cell import ON_SET, Cell
from .ends import Ends
from .network import Parameters
from .on_set import OnSet


class Optimizer:
    """torch's own fused Adam (β 0.9, 0.999; ε 1e-8), AdamW or SGD over the rows of a stack, each at its own rate.

    By its functions: its classes import torch's compiler, which takes a second and may swallow a Ctrl-C.
    """

    def __init__(self, cells: Sequence[Cell], network: Parameters, slopes: Parameters) -> None:
        parameters, gradients = network.flat, slopes.flat
        self.adam = not cells[0].optimizer.endswith("sgd")
        self.on_set = OnSet(cells, network, slopes) if cells[0].optimizer in ON_SET else None
        self.ends = Ends(cells, network)
        self.factor = 1.0
        self.released = False
        """Whether weights are let go that were kept on the set."""
        self.groups: list[Group] = []
        for rate, decay in dict.fromkeys((cell.rate, cell.decay) for cell in cells):
            chosen = [index for index, cell in enumerate(cells) if (cell.rate, cell.decay) == (rate, decay)]
            rows = [parameters[index] for index in chosen]
            state = [rows, [gradients[index] for index in chosen]]
            if self.adam:
                state += [[torch.zeros_like(row) for row in rows] for _ in range(2)]  # the two moments
                state.append([row.new_zeros(()) for row in rows])  # steps taken
            # A captured step reads its rate from memory, where it may change.
            moving = cells[0].schedule != "constant" and parameters.is_cuda
            self.groups.append(Group(rate, decay, state, parameters.new_tensor(rate) if moving else None))

    def state(self) -> list[Tensor]:
        """What it remembers: of Adam, for each row, two moments and the steps taken."""
        plain = [tensor for group in self.groups for part in group.state[2:] for tensor in part]
        return plain if self.on_set is None else plain + self.on_set.state()

    def scale(self, factor: float) -> None:
        """Take the next steps at so many times the rates."""
        self.factor = factor
        for group in self.groups:
            if group.moving is not None:
                group.moving.fill_(group.rate * factor)

    def step(self) -> None:
        """Apply the gradients to the parameters."""
        ends = self.ends.before()
        if self.on_set is not None and not self.released:
            before = self.on_set.before()
            self._plain_step()
            moving = self.groups[0].moving
            self.on_set.step(before, self.factor if moving is None else moving / self.groups[0].rate)
        else:
            self._plain_step()
        self.ends.after(ends)

    def _plain_step(self) -> None:
        for group in self.groups:
            rate: Any = group.rate * self.factor if group.moving is None else group.moving
            if self.adam:
                rows, gradients, first, second, steps = group.state
                (adamw if group.decay else adam)(
                    rows, gradients, first, second, [], steps, fused=True, capturable=rows[0].is_cuda, amsgrad=False,
                    beta1=0.9, beta2=0.999, lr=rate, weight_decay=group.decay, eps=1e-8, maximize=False,
                )  # fmt: skip
            else:
                rows, gradients = group.state
                sgd(
                    rows, gradients, [None] * len(rows), fused=True, weight_decay=group.decay, momentum=0.0, lr=rate,
                    dampening=0.0, nesterov=False, maximize=False,
                )  # fmt: skip


class Group(NamedTuple):
    """The rows of a stack that share a rate and a decay."""

    rate: float
    decay: float
    state: list[list[Tensor]]
    """Parameters, gradients, and what Adam remembers."""
    moving: Tensor | None
    """The rate on the device, where it changes from step to step."""
