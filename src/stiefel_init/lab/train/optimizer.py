"""The optimizers of the graph engine: torch's own, over the rows of a stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from .cell import OptimizerName


class Optimizer:
    """torch's own fused Adam (β 0.9, 0.999; ε 1e-8) or SGD over the rows of a stack, each at its own rate.

    By its functions: its classes import torch's compiler, which takes a second and may swallow a Ctrl-C.
    """

    def __init__(self, name: OptimizerName, parameters: Tensor, gradients: Tensor, rates: Sequence[float]) -> None:
        self.adam = name == "adam"
        self.groups: list[tuple[float, list[list[Tensor]]]] = []
        for rate in dict.fromkeys(rates):
            chosen = [index for index, other in enumerate(rates) if other == rate]
            rows = [parameters[index] for index in chosen]
            state = [rows, [gradients[index] for index in chosen]]
            if self.adam:
                state += [[torch.zeros_like(row) for row in rows] for _ in range(2)]  # the two moments
                state.append([row.new_zeros(()) for row in rows])  # steps taken
            self.groups.append((rate, state))

    def state(self) -> list[Tensor]:
        """What it remembers: of Adam, for each row, two moments and the steps taken."""
        return [tensor for _, lists in self.groups for part in lists[2:] for tensor in part]

    def step(self) -> None:
        """Apply the gradients to the parameters."""
        for rate, state in self.groups:
            if self.adam:
                rows, gradients, first, second, steps = state
                adam(
                    rows, gradients, first, second, [], steps, fused=True, capturable=rows[0].is_cuda, amsgrad=False,
                    beta1=0.9, beta2=0.999, lr=rate, weight_decay=0.0, eps=1e-8, maximize=False,
                )  # fmt: skip
            else:
                rows, gradients = state
                sgd(
                    rows, gradients, [None] * len(rows), fused=True, weight_decay=0.0, momentum=0.0, lr=rate,
                    dampening=0.0, nesterov=False, maximize=False,
                )  # fmt: skip
