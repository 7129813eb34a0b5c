"""The drawing of a model's matrices, all of a shape at once, from the device's generator or from seeded streams."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _stream
from .._members import MEMBERS
from ._layers import Matrices
from ._sample import WORKING, fill_, fill_seeded_
from ._schemes import SCHEMES
from ._stream import normals, words

EMBEDDING = "embedding"  # N(0, 1), as `torch.nn.Embedding` draws its own
_TOGETHER = 1 << 24  # entries drawn at once, so that a model is not held twice


class Job(NamedTuple):
    """A weight to be filled with matrices of a scheme; with a seed they belong to `name`."""

    name: str
    weight: Tensor
    matrices: Matrices
    scheme: str


def fill(jobs: Iterable[Job], seed: int | None) -> None:
    """Fill the weights, which are on one device, those of equal matrices together."""
    groups: dict[tuple[object, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.scheme, _law(job.matrices), job.weight.dtype), []).append(job)
    for group in groups.values():
        for part in _parts(group):
            count = sum(job.matrices.count for job in part)
            keys = None if seed is None else stream_keys(seed, part)
            weight = part[0].weight
            drawn = members(part[0], count, keys, weight.dtype, weight.device)
            # In one call each: on a GPU a launch for every layer would take longer than the drawing.
            if around := [job.weight for job in part if job.matrices.tap]:
                torch._foreach_zero_(around)
            torch._foreach_copy_(*_places(part, drawn))


@lru_cache
def _law(matrices: Matrices) -> tuple[object, ...]:
    return matrices.law


def _places(jobs: list[Job], drawn: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Where the jobs' matrices go, and what goes there."""
    if all(job.matrices.whole and job.weight.ndim == 2 for job in jobs):
        return [job.weight for job in jobs], list(drawn.unbind())
    parts = drawn.split([job.matrices.count for job in jobs])
    blocks = [job.matrices.blocks(own, job.weight.shape) for job, own in zip(jobs, parts)]
    return [job.matrices.places(job.weight) for job in jobs], blocks


def stream_keys(seed: int, jobs: list[Job]) -> np.ndarray:
    """The stream keys of all the jobs' matrices: matrix i of a weight is member i of the batch (seed, name)."""
    counts = np.array([job.matrices.count for job in jobs])
    before = np.cumsum(counts) - counts
    names = np.repeat(_stream.keys(seed, (job.name for job in jobs)), counts, axis=0)
    return _stream.fold(names, np.arange(len(names)) - np.repeat(before, counts))


def members(job: Job, count: int, keys: np.ndarray | None, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """`count` matrices such as the job's."""
    matrices = job.matrices
    out = torch.empty(count, matrices.m, matrices.n, dtype=dtype, device=device)
    _draw(job.scheme, out, keys, matrices.receptive)
    if matrices.scale != 1:
        out *= matrices.scale
    if matrices.zero_row is not None:
        out[:, matrices.zero_row] = 0
    return out


def _parts(jobs: list[Job]) -> Iterator[list[Job]]:
    part: list[Job] = []
    entries = 0
    for job in jobs:
        entries += job.weight.numel()
        if part and entries > _TOGETHER:
            yield part
            part, entries = [], job.weight.numel()
        part.append(job)
    yield part


def _draw(scheme: str, out: Tensor, keys: np.ndarray | None, receptive: int) -> None:
    """Fill `out`, of shape (count, m, n), with independent matrices of the scheme.

    `keys`, of shape (count, 2), are those of the matrices' streams; with `None` the global generator of `out`'s
    device is drawn from. fan_in is n, fan_out is m · receptive.
    """
    m, n = out.shape[1:]
    name, _, spread = scheme.partition(" ")
    if name in MEMBERS:
        if keys is None:
            fill_(out, "householder", None, name, float(spread or 0))
        else:
            fill_seeded_(out, keys, member=name, spread=float(spread or 0))
    elif scheme == "lee":  # it draws nothing
        out.copy_(SCHEMES[scheme](torch.empty_like(out[0])))
    elif keys is None and scheme == "stiefel":
        fill_(out, "householder", None)
    elif keys is None and scheme == EMBEDDING:
        out.normal_()
    elif keys is None:
        for matrix in out.view(-1, m, n // receptive, receptive):
            SCHEMES[scheme](matrix)
    elif scheme in ("stiefel", "orthogonal"):
        fill_seeded_(out, keys, aligned=scheme == "stiefel")
    elif scheme == "xavier":
        bound = math.sqrt(6 / (n + m * receptive))
        out.copy_((words(keys, (0, m), n, out.device).double() + 0.5) * (bound * 2.0**-31))
    else:
        std = {"he": math.sqrt(2 / n), "random": 0.1, EMBEDDING: 1.0}[scheme]
        dtype = out.dtype if out.dtype in WORKING else torch.float32
        out.copy_(normals(keys, (0, m), (0, n), dtype, out.device) * std)
