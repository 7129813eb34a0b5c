"""Numbers of many layers on their way to the host: tables on the device, read in one transfer for each device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..diagnosis._statistics import on_host

Table = list[tuple[list[Any], Tensor]]
"""Keys, and a tensor with a row for each of them."""


def scalars(values: Mapping[Any, Tensor]) -> Table:
    """Tensors of one number each, those of one device together."""
    groups: dict[torch.device, tuple[list[Any], list[Tensor]]] = {}
    for key, value in values.items():
        keys, members = groups.setdefault(value.device, ([], []))
        keys.append(key)
        members.append(value)
    return [(keys, torch.stack(members)) for keys, members in groups.values()]


def read(tables: Iterable[Table]) -> list[dict[Any, Any]]:
    """Of each table: the row of each key, the last one of a key that comes twice."""
    kept = list(tables)
    tensors = [tensor for table in kept for _, tensor in table]
    rows = iter(_on_host(tensors))
    return [{key: row for keys, _ in table for key, row in zip(keys, next(rows))} for table in kept]


def _on_host(tensors: list[Tensor]) -> list[list[Any]]:
    if len(tensors) < 2 or all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.tolist() for tensor in tensors]
    places: dict[torch.device, list[int]] = {}
    for at, tensor in enumerate(tensors):
        places.setdefault(tensor.device, []).append(at)
    found: list[list[Any]] = [[] for _ in tensors]
    for chosen in places.values():
        flat = [on_host(tensors[at]).double().flatten() for at in chosen]
        for at, part in zip(chosen, torch.cat(flat).cpu().split([values.numel() for values in flat])):
            found[at] = part.view(tensors[at].shape).tolist()
    return found
