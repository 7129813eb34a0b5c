"""What was decided is done: `carry_out`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.errors import StiefelError
from ...recipe.layers import Constant, Matrices
from ...schemes import Scheme
from .draw import Job, fill
from .parameters import Place
from .sharded import fill_sharded, is_sharded, local


class Task(NamedTuple):
    """What is done to parameters that are alike, and by which scheme."""

    places: list[Place]
    what: Matrices | Constant
    scheme: Scheme
    source: str = ""
    """The parameter whose matrices are drawn once more, if not their own."""
    first: int = 0


def carry_out(tasks: list[Task], seed: int | None) -> None:
    """Do all tasks; the parameters are looked up anew, since those on meta have been replaced.

    What is assigned to a parametrization comes first, since the user's code for that may fail.
    """
    assigned = {place.key: place for task in tasks for place in task.places if place.parametrization is not None}
    if assigned:
        values = {key: torch.empty_like(place.tensor) for key, place in assigned.items()}
        fill_all(_only(tasks, values, True), seed, values)
        _assign([(place, values[key]) for key, place in assigned.items()])
        tasks = _only(tasks, values, False)
    fill_all(tasks, seed)


def _only(tasks: list[Task], keys: Mapping[Hashable, Tensor], wanted: bool) -> list[Task]:
    """The tasks for those places that have one of the keys, or for those that have none."""
    chosen = [task._replace(places=[p for p in task.places if (p.key in keys) is wanted]) for task in tasks]
    return [task for task in chosen if task.places]


def fill_all(tasks: list[Task], seed: int | None, values: Mapping[Hashable, Tensor] | None = None) -> None:
    """Fill the parameters of all tasks; or, instead of each, the tensor that `values` has for its key."""
    whole: list[Job] = []
    sharded: list[Job] = []
    for places, what, scheme, source, first in tasks:
        held: dict[Hashable, Any] = {
            place.key: place.module._parameters[place.leaf] if values is None else values[place.key] for place in places
        }
        split = [place for place in places if is_sharded(held[place.key])]
        if isinstance(what, Constant):
            held |= {place.key: local(held[place.key]) for place in split}
            torch._foreach_zero_(list(held.values()))
            if what.value:
                torch._foreach_add_(list(held.values()), what.value)
        elif what.m * what.n:
            sharded += [Job([source or place.stream], [held.pop(place.key)], what, scheme, first) for place in split]
            if held:
                names = [source or place.stream for place in places if place.key in held]
                whole.append(Job(names, list(held.values()), what, scheme, first))
    fill(whole, seed)
    if sharded:
        assert seed is not None
        fill_sharded(sharded, seed)


def _assign(values: list[tuple[Place, Tensor]]) -> None:
    """Assign to parametrizations, to all or to none."""
    before = [
        (tensor, tensor.clone())
        for place, _ in values
        if place.parametrization is not None
        for tensor in (*place.parametrization.parameters(), *place.parametrization.buffers())
    ]
    for place, value in values:
        try:
            setattr(place.module, place.leaf, value)
        except Exception as error:  # whatever the user's right_inverse raises
            for tensor, old in before:
                tensor.copy_(old)
            why = (str(error).splitlines() or [""])[0].rstrip(".")
            raise StiefelError(
                f"{place.name} could not be assigned to its parametrization ({why}); the model is unchanged. "
                f"Initialize it before it is parametrized, or pass skip={place.name!r}."
            ) from None
