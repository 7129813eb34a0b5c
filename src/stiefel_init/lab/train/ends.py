"""A learning rate of their own for the first and the last layer of a stack's networks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .cell import Cell
from .network import Parameters


class Ends:
    """Takes the ends further after each step of the optimizer.

    Steps of Adam and of gradient descent, decay included, are in proportion to the rate: `ends` times the rate is
    `ends` times the step. So no engine has to know about a second rate.
    """

    def __init__(self, cells: Sequence[Cell], parameters: Parameters) -> None:
        self.further = cells[0].ends - 1
        last = len(parameters.weights) - 1
        self.tensors = [part[layer] for layer in {0, last} for part in (parameters.weights, parameters.biases)]

    def before(self) -> list[Tensor]:
        """The ends as they are now; nothing if they learn as the others do."""
        return [tensor.clone() for tensor in self.tensors] if self.further else []

    def after(self, before: Sequence[Tensor]) -> None:
        """Take them further.

        Args:
            before: What `before` returned before the optimizer's step.
        """
        for tensor, old in zip(self.tensors, before):
            tensor.add_(tensor - old, alpha=self.further)
