"""Training that keeps the weights between hidden layers in the set, in the graph engine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ... import _on_set
from .cell import PREFIX, Cell
from .network import Parameters

ANGLES = 20
"""Of Muon the rate is an angle: so many times that of the other parameters, as in `StiefelMuon`."""


class OnSet:
    """The weights between hidden layers of a stack, of one shape after the other.

    The first and the last layer, and all biases, are free: the plain optimizer trains them.
    """

    def __init__(self, cells: Sequence[Cell], parameters: Parameters, gradients: Parameters) -> None:
        self.kind = cells[0].optimizer.removeprefix(PREFIX)
        self.rates = parameters.flat.new_tensor([cell.rate for cell in cells])
        # In float64: 1 - β₂ᵗ cancels.
        self.steps = torch.zeros((), dtype=torch.float64, device=parameters.flat.device)
        shapes: dict[torch.Size, list[int]] = {}
        for layer in range(1, len(parameters.weights) - 1):
            shapes.setdefault(parameters.weights[layer].shape[1:], []).append(layer)
        self.views = [
            [[each.weights[layer] for layer in layers] for each in (parameters, gradients)]
            for layers in shapes.values()
        ]
        kept = 2 if self.kind == "adam" else 1
        self.moments = [tuple(torch.zeros_like(_stacked(views[0])) for _ in range(kept)) for views in self.views]

    def state(self) -> list[Tensor]:
        """The moments, and the steps taken."""
        return [*(moment for each in self.moments for moment in each), self.steps]

    def before(self) -> list[tuple[Tensor, Tensor]]:
        """The weights and their gradients as they are now, of each shape (E · layers, m, n)."""
        return [(_stacked(weights), _stacked(gradients)) for weights, gradients in self.views]

    def step(self, before: Sequence[tuple[Tensor, Tensor]], factor: float | Tensor) -> None:
        """Put the weights where the step on the set takes them.

        Args:
            before: What `before` returned before the plain optimizer's step.
            factor: Of the rates.
        """
        self.steps += 1
        for (weights, _), (old, gradient), moments in zip(self.views, before, self.moments):
            rate = (self.rates * factor).repeat_interleave(len(weights))[:, None, None]
            if self.kind == "adam":
                first, second = moments
                new, *changed = _on_set.adam_step(old, gradient, first, second, self.steps, rate)
            elif self.kind == "sgd":
                new, *changed = _on_set.sgd_step(old, gradient, moments[0], rate)
            else:
                new, *changed = _on_set.muon_step(old, gradient, moments[0], ANGLES * rate)
            for moment, value in zip(moments, changed):
                moment.copy_(value)
            torch._foreach_copy_(weights, list(new.unflatten(0, (-1, len(weights))).unbind(1)))


def _stacked(views: Sequence[Tensor]) -> Tensor:
    """Views of shape (E, m, n) as one array (E · layers, m, n), a network's layers one after the other."""
    return torch.stack(list(views), 1).flatten(0, 1)
