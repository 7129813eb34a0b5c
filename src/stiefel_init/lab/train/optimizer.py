"""The graph engine's optimizers, torch's own over the rows of a stack; and the edge layers' rate, of both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from .cell import ON_SET, Cell
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
        self.edges = EdgeRates(cells, network)
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
        edges = self.edges.before()
        if self.on_set is not None and not self.released:
            before = self.on_set.before()
            self._plain_step()
            moving = self.groups[0].moving
            self.on_set.step(before, self.factor if moving is None else moving / self.groups[0].rate)
        else:
            self._plain_step()
        self.edges.after(edges)

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


class EdgeRates:
    """A learning rate of their own for the first and the last layer: takes them further after each step.

    Steps of Adam and of gradient descent, decay included, are in proportion to the rate: `ends` times the rate is
    `ends` times the step. So no engine has to know about a second rate.
    """

    def __init__(self, cells: Sequence[Cell], parameters: Parameters) -> None:
        self.further = cells[0].ends - 1
        last = len(parameters.weights) - 1
        self.tensors = [part[layer] for layer in {0, last} for part in (parameters.weights, parameters.biases)]

    def before(self) -> list[Tensor]:
        """The first and last layer as they are now; nothing if they learn as the others do."""
        return [tensor.clone() for tensor in self.tensors] if self.further else []

    def after(self, before: Sequence[Tensor]) -> None:
        """Take them further.

        Args:
            before: What `before` returned before the optimizer's step.
        """
        for tensor, old in zip(self.tensors, before):
            tensor.add_(tensor - old, alpha=self.further)
