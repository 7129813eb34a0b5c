"""The drawing of a model's matrices, all of a shape at once, from the device's generator or from seeded streams."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core import stream as _stream
from ...recipe.layers import Matrices
from ...schemes import Scheme
from ..sampling.source import fill_

_TOGETHER = 1 << 24  # entries drawn at once, so that a model is not held twice


class Job(NamedTuple):
    """Weights to be filled alike; with a seed, matrix i of a weight is number `first` + i of its name."""

    names: Sequence[str]
    weights: Sequence[Tensor]
    matrices: Matrices
    scheme: Scheme
    first: int = 0

    @property
    def weight(self) -> Tensor:
        """The first weight, or the only one."""
        return self.weights[0]


def fill(jobs: Iterable[Job], seed: int | None) -> None:
    """Fill the weights, which are on one device, those of equal matrices together."""
    groups: dict[Hashable, list[Job]] = {}
    for job in jobs:
        for dtype, own in _by_dtype(job):
            groups.setdefault((job.scheme, job.matrices.law, dtype), []).append(own)
    for group in groups.values():
        for part in _parts(group):
            count = sum(len(job.weights) * job.matrices.count for job in part)
            keys = None if seed is None else stream_keys(seed, part)
            drawn = members(part[0], count, keys, part[0].weight.dtype, part[0].weight.device)
            _write(part, drawn)


def _by_dtype(job: Job) -> Iterator[tuple[torch.dtype, Job]]:
    dtypes = [weight.dtype for weight in job.weights]
    if dtypes.count(dtypes[0]) == len(dtypes):
        yield dtypes[0], job
        return
    for dtype in dict.fromkeys(dtypes):
        pairs = [(name, weight) for name, weight in zip(job.names, job.weights) if weight.dtype == dtype]
        names, weights = zip(*pairs)
        yield dtype, job._replace(names=names, weights=weights)


def _parts(jobs: list[Job]) -> Iterator[list[Job]]:
    """The jobs, whose matrices have one shape, in parts that are drawn at once."""
    part: list[Job] = []
    room = _TOGETHER
    for job in jobs:
        start, each = 0, job.matrices.count * job.matrices.m * job.matrices.n
        while start < len(job.weights):
            fit = max(room // each, 0 if part else 1)
            if fit:
                stop = min(start + fit, len(job.weights))
                part.append(job._replace(names=job.names[start:stop], weights=job.weights[start:stop]))
                start, room = stop, room - (stop - start) * each
            else:
                yield part
                part, room = [], _TOGETHER
    yield part


def _write(jobs: list[Job], drawn: Tensor) -> None:
    """Write the jobs' matrices in one call: on a GPU a launch for each would take longer than the drawing."""
    weights = [weight for job in jobs for weight in job.weights]
    whole = drawn.is_contiguous() and all(job.matrices.whole for job in jobs)
    if whole and all([weight.ndim == 2 and weight.is_contiguous() for weight in weights]):  # noqa: C419
        _, m, n = drawn.shape
        torch.split_with_sizes_copy(drawn.view(-1, n), [m] * len(weights), out=weights)
        return
    if around := [weight for job in jobs if job.matrices.tap for weight in job.weights]:
        torch._foreach_zero_(around)
    matrices = [job.matrices for job in jobs for _ in job.weights]
    places = [held.places(weight) for held, weight in zip(matrices, weights)]
    parts = drawn.split([held.count for held in matrices])
    blocks = [held.blocks(own, weight.shape) for held, own, weight in zip(matrices, parts, weights)]
    torch._foreach_copy_(places, [block.reshape(place.shape) for block, place in zip(blocks, places)])


def stream_keys(seed: int, jobs: list[Job]) -> np.ndarray:
    """The stream keys of all the jobs' matrices, unfolded: matrix i of a name is member i of the batch (seed, name)."""
    return np.concatenate([_keys(seed, job) for job in jobs])


def _keys(seed: int, job: Job) -> np.ndarray:
    count = job.matrices.count
    names = np.repeat(_stream.keys(seed, job.names), count, axis=0)
    return _stream.unfolded(names, np.tile(np.arange(job.first, job.first + count), len(job.names)))


def members(job: Job, count: int, keys: np.ndarray | None, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """`count` matrices such as the job's."""
    matrices = job.matrices
    out = torch.empty(count, matrices.m, matrices.n, dtype=dtype, device=device)
    fill_(out, job.scheme, keys=keys, places=matrices.receptive)
    if matrices.scale != 1:
        out *= matrices.scale
    if matrices.zero_row is not None:
        out[:, matrices.zero_row] = 0
    return out.mT.contiguous() if matrices.mirrored else out
