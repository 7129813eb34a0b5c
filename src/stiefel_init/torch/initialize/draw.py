"""The drawing of a model's matrices, all of a shape at once, from the device's generator or from seeded streams."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core import stream as _stream
from ...recipe.layers import Matrices
from ...recipe.rules import Draw
from ..sampling.rotations import Memory
from ..sampling.source import fill_

_TOGETHER = 1 << 24  # entries drawn at once, so that a model is not held twice
_TOGETHER_ON_CPU = 1 << 20  # so that most of it is in the caches


class Batch(NamedTuple):
    """Weights that are filled alike; with a seed, matrix i of a weight is number `draw.first` + i of its name."""

    names: Sequence[str]
    weights: Sequence[Tensor]
    draw: Draw

    @property
    def weight(self) -> Tensor:
        """The first weight, or the only one."""
        return self.weights[0]

    @property
    def matrices(self) -> Matrices:
        """What is drawn into each."""
        assert isinstance(self.draw.what, Matrices)
        return self.draw.what


def fill(batches: Iterable[Batch], seed: int | None) -> None:
    """Fill the weights, which are on one device, those of equal matrices together."""
    groups: dict[Hashable, list[Batch]] = {}
    for batch in batches:
        for dtype, alike in _by_dtype(batch):
            groups.setdefault((batch.draw.scheme, batch.matrices.distribution, dtype), []).append(alike)
    memory = Memory()
    for group in groups.values():
        for part in _parts(group):
            count = sum(len(batch.weights) * batch.matrices.count for batch in part)
            keys = None if seed is None else stream_keys(seed, part)
            weight = part[0].weight
            own = weight.detach()[None] if count == 1 and _is_matrix(part[0], weight) else None
            drawn = members(part[0].draw, count, keys, weight.dtype, weight.device, own, memory)
            if drawn is not own:
                _write(part, drawn)


def _by_dtype(batch: Batch) -> Iterator[tuple[torch.dtype, Batch]]:
    dtypes = [weight.dtype for weight in batch.weights]
    if dtypes.count(dtypes[0]) == len(dtypes):
        yield dtypes[0], batch
        return
    for dtype in dict.fromkeys(dtypes):
        pairs = [(name, weight) for name, weight in zip(batch.names, batch.weights) if weight.dtype == dtype]
        names, weights = zip(*pairs)
        yield dtype, batch._replace(names=names, weights=weights)


def _parts(batches: list[Batch]) -> Iterator[list[Batch]]:
    """The batches, whose matrices have one shape, in parts that are drawn at once."""
    part: list[Batch] = []
    together = min(_TOGETHER, _TOGETHER_ON_CPU) if batches[0].weight.device.type == "cpu" else _TOGETHER
    room = together
    for batch in batches:
        start, each = 0, batch.matrices.count * batch.matrices.m * batch.matrices.n
        while start < len(batch.weights):
            fit = max(room // each, 0 if part else 1)
            if fit:
                stop = min(start + fit, len(batch.weights))
                part.append(batch._replace(names=batch.names[start:stop], weights=batch.weights[start:stop]))
                start, room = stop, room - (stop - start) * each
            else:
                yield part
                part, room = [], together
    yield part


def _write(batches: list[Batch], drawn: Tensor) -> None:
    """Write the batches' matrices in one call: on a GPU a launch for each would take longer than the drawing."""
    weights = [weight for batch in batches for weight in batch.weights]
    if drawn.is_contiguous() and all([_is_matrix(batch, weight) for batch in batches for weight in batch.weights]):  # noqa: C419
        _, m, n = drawn.shape
        torch.split_with_sizes_copy(drawn.view(-1, n), [m] * len(weights), out=weights)
        return
    if around := [weight for batch in batches if batch.matrices.tap for weight in batch.weights]:
        torch._foreach_zero_(around)
    matrices = [batch.matrices for batch in batches for _ in batch.weights]
    places = [held.places(weight) for held, weight in zip(matrices, weights)]
    parts = drawn.split([held.count for held in matrices])
    blocks = [held.blocks(matrix, weight.shape) for held, matrix, weight in zip(matrices, parts, weights)]
    torch._foreach_copy_(places, [block.reshape(place.shape) for block, place in zip(blocks, places)])


def _is_matrix(batch: Batch, weight: Tensor) -> bool:
    """Whether one of the batch's matrices is all of the weight, in the order of memory."""
    return batch.matrices.whole and weight.ndim == 2 and weight.is_contiguous()


def stream_keys(seed: int, batches: list[Batch]) -> np.ndarray:
    """The stream keys of all matrices, unfolded: matrix i of a name is member i of the batch (seed, name)."""
    return np.concatenate([_keys(seed, batch) for batch in batches])


def _keys(seed: int, batch: Batch) -> np.ndarray:
    count, first = batch.matrices.count, batch.draw.first
    names = np.repeat(_stream.keys(seed, batch.names), count, axis=0)
    return _stream.unfolded(names, np.tile(np.arange(first, first + count), len(batch.names)))


def members(
    draw: Draw,
    count: int,
    keys: np.ndarray | None,
    dtype: torch.dtype,
    device: torch.device | str,
    out: Tensor | None = None,
    memory: Memory | None = None,
) -> Tensor:
    """`count` matrices of a draw; those that are not mirrored in `out`, if it is given."""
    matrices = draw.what
    assert isinstance(matrices, Matrices)
    if out is None:
        out = torch.empty(count, matrices.m, matrices.n, dtype=dtype, device=device)
    fill_(out, draw.scheme, keys=keys, places=matrices.receptive, memory=memory)
    if matrices.scale != 1:
        out *= matrices.scale
    if matrices.zero_row is not None:
        out[:, matrices.zero_row] = 0
    return out.mT.contiguous() if matrices.mirrored else out
