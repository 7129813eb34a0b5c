"""Dropout from the random streams of the networks: what is dropped depends on a network's seed and its step alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ... import _stream
from ...torch.sampling._stream import words
from .cell import Cell


class Dropout:
    """Factors for the outputs of all hidden layers: 0 with probability p, else 1/(1 - p).

    Row i of an epoch takes the words of row i of the stream that belongs to the seed and the epoch, one for each unit
    of each layer in turn. So neither the batches, nor the networks beside it, nor the device change what is dropped.
    """

    def __init__(self, cells: Sequence[Cell], rows: int, device: torch.device) -> None:
        self.rows, self.p = rows, cells[0].dropout
        hidden = cells[0].hidden
        seeds = list(dict.fromkeys(cell.seed for cell in cells))  # networks of one seed drop the same
        self._keys = np.stack([_stream.key(seed, "dropout") for seed in seeds])
        self._places = torch.tensor([seeds.index(cell.seed) for cell in cells], device=device)
        self._all = torch.ones(len(cells), rows, sum(hidden), device=device)
        self.factors = list(self._all.split(list(hidden), dim=2))
        """For each hidden layer, of shape (E, rows, units); views, which `draw` fills."""

    def draw(self, epoch: int, start: int) -> None:
        """Fill the factors for the rows from `start` on of an epoch, counted from 0."""
        place, count = (start, start + self.rows), self._all.shape[2]
        lots = words(_stream.fold(self._keys, epoch), place, count, self._all.device)
        first_kept = min(round(self.p * 2**32), 2**32 - 1) - 2**31  # signed words are uniform on [-2³¹, 2³¹)
        torch.mul((lots >= first_kept)[self._places], 1 / (1 - self.p), out=self._all)


def memory(cell: Cell, rows: int) -> int:
    """Bytes of the factors of so many rows, and of the words they come from."""
    return 16 * rows * sum(cell.hidden) if cell.dropout else 0
