"""Parameters that are DTensors: every rank's shard is the slice of the unsharded result.

Note [a matrix for each rank]
    The matrices of a model are dealt to the ranks of the mesh in rounds. In a round every rank draws one, all at the
    same time; then each in turn sends its own to the others, in slabs of rows of which they keep what their shards
    hold. So the work is spread over the ranks, and none holds more than one whole matrix and a slab of another's.
    A matrix depends on the seed and its parameter's name alone, whoever draws it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import StiefelError
from ...recipe.layers import Matrices, Range
from .draw import Batch, members, stream_keys

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_SLABS = 8
Box = tuple[Range, ...]


def is_sharded(tensor: Tensor) -> bool:
    """Whether `tensor` is a DTensor."""
    if type(tensor) is nn.Parameter:
        return False
    module = sys.modules.get("torch.distributed.tensor")  # without it there are none
    return module is not None and isinstance(tensor, module.DTensor)


def check_placements(name: str, tensor: Any) -> None:
    """Refuse placements under which a shard is not a slice of the parameter."""
    from torch.distributed.tensor import Replicate, Shard

    for placement in tensor.placements:
        if type(placement) not in (Shard, Replicate):
            raise StiefelError(
                f"{name} has placement {placement}, which is neither Shard nor Replicate; initialize it before it is "
                f"placed so, or pass skip={name!r}."
            )


def reshard(modules: list[tuple[str, nn.Module]]) -> None:
    """Make FSDP2's modules give back their gathered parameters, whose values it would not keep."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # without it there are none
    if fsdp is not None:
        for _, module in modules:
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()


def common_mesh(tensors: Iterable[Tensor]) -> DeviceMesh | None:
    """The mesh of those tensors that are sharded, if any; refuse several."""
    if "torch.distributed.tensor" not in sys.modules:  # most programs; then none is
        return None
    meshes: set[DeviceMesh] = {tensor.device_mesh for tensor in tensors if is_sharded(tensor)}  # type: ignore[attr-defined]
    if len(meshes) > 1:
        raise StiefelError(f"model is sharded over {len(meshes)} meshes, which share no generator; give a seed.")
    return meshes.pop() if meshes else None


def shared_seed(mesh: DeviceMesh) -> int:
    """A seed from the global generator of the mesh's first rank, the same on all its ranks."""
    seed = torch.randint(2**62, (1,)).to(mesh.device_type)
    _broadcast(mesh, 0, seed)
    return int(seed)


def fill_sharded(batches: list[Batch], seed: int) -> None:
    """Fill the batches' weights, which are DTensors; Note [a matrix for each rank]."""
    by_mesh: dict[DeviceMesh, list[Batch]] = {}
    for batch in batches:
        by_mesh.setdefault(batch.weight.device_mesh, []).append(batch)  # type: ignore[attr-defined]
    for mesh, shared in by_mesh.items():
        if (here := mesh.get_coordinate()) is not None:  # this rank is of the mesh
            _deal(mesh, int(np.ravel_multi_index(here, mesh.shape)), shared, seed)


def _deal(mesh: DeviceMesh, me: int, batches: list[Batch], seed: int) -> None:
    for batch in batches:
        if batch.matrices.tap:
            local(batch.weight).zero_()
    # The largest first, so that those of a round are of a size.
    tasks = sorted(
        ((batch, index) for batch in batches for index in range(batch.matrices.count)),
        key=lambda task: -task[0].matrices.m * task[0].matrices.n,
    )
    for start in range(0, len(tasks), mesh.size()):
        dealt = tasks[start : start + mesh.size()]
        mine = _one(mesh, *dealt[me], seed) if me < len(dealt) else None
        for owner, (batch, index) in enumerate(dealt):
            _send(mesh, owner, batch, index, mine if owner == me else None)
        del mine


def _one(mesh: DeviceMesh, batch: Batch, index: int, seed: int) -> Tensor:
    """Matrix `index` of the batch, as a block of its weight."""
    key = stream_keys(seed, [batch])[index : index + 1]
    drawn = members(batch.draw, 1, key, batch.weight.dtype, mesh.device_type)
    return batch.matrices.blocks(drawn, tuple(batch.weight.shape))[0]


def _send(mesh: DeviceMesh, owner: int, batch: Batch, index: int, block: Tensor | None) -> None:
    """Bring the block, which `owner` has, into the shards of all ranks."""
    shape = batch.matrices.block_shape(tuple(batch.weight.shape))
    part, box = local(batch.weight), _box(batch.weight)
    step = math.ceil(shape[0] / _SLABS)
    for first in range(0, shape[0], step):
        if block is None:
            height = min(step, shape[0] - first)
            rows = torch.empty(height, *shape[1:], dtype=part.dtype, device=mesh.device_type)
        else:
            rows = block[first : first + step].contiguous()
        _broadcast(mesh, owner, rows)
        for start, slab in _runs(batch.matrices, index * shape[0] + first, rows):
            _write_rows(batch.matrices, part, box, start, slab)


def _runs(matrices: Matrices, first: int, rows: Tensor) -> Iterable[tuple[int, Tensor]]:
    """Rows `first` and on of what the matrices fill, in pieces that lie together, and where in the weight these go."""
    offset = matrices.rows[0] if matrices.rows else 0
    if matrices.period is None:
        yield offset + first, rows
        return
    assert matrices.rows is not None
    each = matrices.rows[1] - offset
    while len(rows):
        head, inside = divmod(first, each)
        count = min(each - inside, len(rows))
        yield head * matrices.period + offset + inside, rows[:count]
        first, rows = first + count, rows[count:]


def _write_rows(matrices: Matrices, part: Tensor, box: Box, first: int, rows: Tensor) -> None:
    """Put into `part`, the slice `box` of a weight, what it holds of the weight's rows from `first` on."""
    (start, stop), *others = box
    low, high = max(first, start), min(first + len(rows), stop)
    if low >= high or any(not a <= place < b for place, (a, b) in zip(matrices.tap, box[2:])):
        return
    target, source = part[low - start : high - start], rows[low - first : high - first]
    if matrices.tap:
        at: tuple[Any, ...] = (..., *(place - a for place, (a, _) in zip(matrices.tap, box[2:])))
        target = target[at]
    for dimension, (a, b) in enumerate(others[: source.ndim - 1], 1):
        c, d = matrices.columns if dimension == 1 and matrices.columns else (0, source.shape[dimension])
        a_part, b_part = max(a, c), min(b, d)
        if a_part >= b_part:
            return
        source = source.narrow(dimension, a_part - c, b_part - a_part)
        target = target.narrow(dimension, a_part - a, b_part - a_part)
    target.copy_(source)


def _broadcast(mesh: DeviceMesh, owner: int, tensor: Tensor) -> None:
    """From the owner, a place in the mesh, to all ranks: along one dimension of the mesh after the other."""
    here, there = mesh.get_coordinate(), np.unravel_index(owner, mesh.shape)
    assert here is not None
    for dimension in range(mesh.ndim):
        if all(here[d] == there[d] for d in range(dimension + 1, mesh.ndim)):
            torch.distributed.broadcast(tensor, group=mesh.get_group(dimension), group_src=int(there[dimension]))


def local(tensor: Any) -> Tensor:
    """The tensor, to be written to; of a DTensor, this rank's shard."""
    return tensor.detach().to_local() if is_sharded(tensor) else tensor.detach()


def whole(tensor: Any) -> Tensor:
    """The tensor, detached; a DTensor gathered."""
    return tensor.detach().full_tensor() if is_sharded(tensor) else tensor.detach()


def _box(tensor: Any) -> Box:
    """The slice of the parameter that this rank's shard is."""
    from torch.distributed.tensor import Shard

    box = [(0, size) for size in tensor.shape]
    for placement, parts, place in zip(
        tensor.placements, tensor.device_mesh.shape, tensor.device_mesh.get_coordinate()
    ):
        if isinstance(placement, Shard):
            start, stop = box[placement.dim]
            step = math.ceil((stop - start) / parts)
            box[placement.dim] = min(start + place * step, stop), min(start + (place + 1) * step, stop)
    return tuple(box)
