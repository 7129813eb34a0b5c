"""How far a step moves the weights: `Moves`, which keeps a part of them from before the step.

Made just before the optimizer steps, it finds the memory that the activations have left.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn

from ._readout import Table
from ._structure import local

_ENTRIES = 1 << 16  # entries of a weight whose move is followed


class Moves:
    """Parts of weights, those of one shape as the rows of one tensor."""

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        groups: dict[Hashable, tuple[list[nn.Parameter], list[Tensor]]] = {}
        for weight in weights:
            part = _part(weight)
            chosen, parts = groups.setdefault((part.shape, part.dtype, part.device), ([], []))
            chosen.append(weight)
            parts.append(part)
        self._groups = [(chosen, torch.stack(parts).flatten(1)) for chosen, parts in groups.values()]

    def table(self) -> Table:
        """By the id of a weight: norms of its move and of itself before, and the product of both."""
        found: Table = []
        for weights, parts in self._groups:
            before = parts.float()
            move = torch.stack([_part(weight) for weight in weights]).flatten(1).float().sub_(before)
            size, length = (torch.linalg.vector_norm(values, dim=1) for values in (before, move))
            product = move.mul_(before).sum(1)
            found.append(([*map(id, weights)], torch.stack((length, size, product), 1)))
        return found


def _part(weight: nn.Parameter) -> Tensor:
    values = weight if type(weight) is nn.Parameter else local(weight)
    return values if values.numel() <= _ENTRIES else values.reshape(-1)[:: math.ceil(values.numel() / _ENTRIES)]


def moved(moves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """A layer's update, and how much of it points inward."""
    if len(moves) == 1:
        move, size, product = moves[0]
    else:
        move, size = (math.hypot(*(one[at] for one in moves)) for at in (0, 1))
        product = sum(one[2] for one in moves)
    if not size > 0:
        return math.nan, math.nan
    return move / size, -product / (move * size) if move > 0 else math.nan
