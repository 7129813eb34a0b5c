"""The drawing of a model's matrices, all of a shape at once, from the device's generator or from seeded streams."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import _stream
from ...recipe._matrices import Matrices
from ...schemes import Scheme
from ..sampling._source import fill_

_TOGETHER = 1 << 24  # entries drawn at once, so that a model is not held twice


class Job(NamedTuple):
    """A weight to be filled with matrices of a scheme; with a seed, matrix i is number `first` + i of `name`."""

    name: str
    weight: Tensor
    matrices: Matrices
    scheme: Scheme
    first: int = 0


new_job = partial(tuple.__new__, Job)  # from a tuple of all fields, in half the time


def fill(jobs: Iterable[Job], seed: int | None) -> None:
    """Fill the weights, which are on one device, those of equal matrices together."""
    groups: dict[Hashable, list[Job]] = {}
    same: dict[Hashable, list[Job]] = {}  # by identity, which is quicker to compare
    for job in jobs:
        _, weight, matrices, scheme, _ = job
        dtype = weight.dtype
        if (group := same.get((id(scheme), id(matrices), dtype))) is None:
            group = groups.setdefault((scheme, matrices.law, dtype), [])
            same[id(scheme), id(matrices), dtype] = group
        group.append(job)
    for group in groups.values():
        for part in _parts(group):
            count = sum([job.matrices.count for job in part])
            keys = None if seed is None else stream_keys(seed, part)
            weight = part[0].weight
            drawn = members(part[0], count, keys, weight.dtype, weight.device)
            # In one call each: on a GPU a launch for every layer would take longer than the drawing.
            if around := [job.weight for job in part if job.matrices.tap]:
                torch._foreach_zero_(around)
            torch._foreach_copy_(*_places(part, drawn))


def _places(jobs: list[Job], drawn: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Where the jobs' matrices go, and what goes there."""
    weights = [job.weight for job in jobs]
    if all(matrices.whole for matrices in {job.matrices for job in jobs}) and all(w.ndim == 2 for w in weights):
        return weights, list(drawn.unbind())
    parts = drawn.split([job.matrices.count for job in jobs])
    places = [job.matrices.places(job.weight) for job in jobs]
    blocks = [job.matrices.blocks(own, job.weight.shape) for job, own in zip(jobs, parts)]
    return places, [block.reshape(place.shape) for block, place in zip(blocks, places)]


def stream_keys(seed: int, jobs: list[Job]) -> np.ndarray:
    """The stream keys of all the jobs' matrices: matrix i of a name is member i of the batch (seed, name)."""
    counts = np.array([job.matrices.count for job in jobs])
    before = np.cumsum(counts) - counts - [job.first for job in jobs]
    names = np.repeat(_stream.keys(seed, (job.name for job in jobs)), counts, axis=0)
    return _stream.fold(names, np.arange(len(names)) - np.repeat(before, counts))


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


def _parts(jobs: list[Job]) -> Iterator[list[Job]]:
    """The jobs, whose matrices have one shape, in parts that are drawn at once."""
    each = jobs[0].matrices.m * jobs[0].matrices.n
    part: list[Job] = []
    entries = 0
    for job in jobs:
        entries += job.matrices.count * each
        if part and entries > _TOGETHER:
            yield part
            part, entries = [], job.matrices.count * each
        part.append(job)
    yield part
