"""What is done to each parameter, or why it cannot be done: the rows of the plan, and the tasks."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..._check import tolerance
from ..._errors import StiefelError
from ...schemes import Blend, Random, Scheme
from ..sampling import _tensors
from ._draw import Job, fill
from ._layers import Constant, Conv, Leave, Matrices, Rule, rule
from ._places import Place, identity, is_uninitialized
from ._plan import NEITHER, Row
from ._recipe import Part, attention, parts
from ._roles import Roles
from ._sharded import check_placements, fill_sharded, is_sharded, local

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_EMBEDDING = Random(1.0)  # as torch draws its own


class Task(NamedTuple):
    """What is done to a parameter, and by which scheme."""

    place: Place
    what: Matrices | Constant
    scheme: Scheme
    source: str = ""
    """The parameter whose matrices are drawn, if not its own."""
    first: int = 0

    @property
    def linked(self) -> bool:
        """Whether the same matrices must be drawn once more for another parameter."""
        return bool(self.source)


def decide(
    places: list[Place], skipped: set[Hashable], scheme: Scheme, conv: Conv, roles: Roles | None
) -> tuple[list[Row], list[Task]]:
    """What is done to each parameter; or why it cannot be done. With `roles`, by the default recipe."""
    embeddings = {place.key: place for place in places if isinstance(place.module, EMBEDDINGS)}
    first: dict[Hashable, Place] = {}
    rules: dict[Hashable, Rule] = {}
    for place in places:
        if first.setdefault(place.key, place) is place:
            # A weight that an embedding shares is an embedding, whichever of its names comes first.
            owner = embeddings.get(place.key, place)
            rules[place.key] = Leave("skipped") if place.key in skipped else _rule(place, owner, scheme, conv)
    recipe = {} if roles is None else _parts(first, rules, roles)
    rows: list[Row] = []
    tasks: list[Task] = []
    for place in places:
        key = place.key
        if (known := first[key]) is not place:
            how = "part of" if isinstance(place.module, parametrize.ParametrizationList) else "tied to"
            rows.append(Row(place.name, place.shape, f"{how} {known.name}"))
            continue
        chosen, reason, law = rules[key], "", scheme
        if isinstance(chosen, Leave):
            reason, law = chosen.reason, _EMBEDDING
            if not place.tensor.is_meta:
                rows.append(Row(place.name, place.shape, "left alone", reason=reason))
                continue
            if chosen.otherwise is None:
                raise StiefelError(
                    f"{place.name} is on the meta device and would be left without values ({reason}); give it some on "
                    "a real device first."
                )
            chosen = chosen.otherwise
        elif key in recipe:
            each = recipe[key]
            rows.append(_row(place, each))
            tasks += [Task(place, part.matrices, part.scheme, part.source, part.first) for part in each]
            continue
        rows.append(Row(place.name, place.shape, *_described(chosen, law), reason))
        tasks.append(Task(place, chosen, law))
    return rows, tasks


def _parts(first: Mapping[Hashable, Place], rules: Mapping[Hashable, Rule], roles: Roles) -> dict[Hashable, list[Part]]:
    """What the default recipe draws, by the keys of the parameters."""
    drawn = {
        place.stream: place
        for key, place in first.items()
        if isinstance(rules[key], Matrices) and place.parametrization is None
    }

    def draws(name: str) -> Matrices | None:
        held = rules[drawn[name].key] if name in drawn else None
        return held if isinstance(held, Matrices) else None

    linked = attention({name: place.shape for name, place in drawn.items()}, draws)
    found: dict[Hashable, list[Part]] = {}
    for key, place in first.items():
        held = rules[key]
        if not isinstance(held, Matrices):
            continue
        bias = place.module._parameters.get("bias")
        free = bias is not None and isinstance(rules.get(identity(bias)), Constant)
        each = linked.get(place.stream) or parts(place.module, place.stream, place.shape, held, roles, biased=free)
        found[key] = each
        if bias is not None and (apart := each[0].bias) is not None:
            found[identity(bias)] = [Part(Matrices(1, len(bias), 1), apart, "set the units apart")]
    return found


def _row(place: Place, parts: list[Part]) -> Row:
    """One row of the plan for all the parts of a weight."""
    part = parts[0]
    if len(parts) > 1:
        text, side = f"{_label(part.scheme)} {len(parts)} of {part.matrices.m}×{part.matrices.n}", "both"
    else:
        text, side = _described(part.matrices, part.scheme)
    return Row(place.name, place.shape, text, side, part.reason)


def _rule(place: Place, owner: Place, scheme: Scheme, conv: Conv) -> Rule:
    name, tensor = place.name, place.tensor
    if is_uninitialized(tensor):
        raise StiefelError(
            f"{name} is uninitialized, a lazy layer's parameter without a shape; run one forward pass first."
        )
    module, leaf = owner.module, owner.leaf
    computed = leaf.rpartition("_")[0]  # as in weight_g and weight_v, weight_orig
    if computed and isinstance(vars(module).get(computed), Tensor) and rule(module, computed, place.shape, conv):
        raise StiefelError(
            f"{name} is what a hook computes {computed} from (weight norm, spectral norm or pruning); remove the hook, "
            f"use torch.nn.utils.parametrizations instead, or pass skip={name.removesuffix(leaf) + computed + '_*'!r}."
        )
    if any(word.startswith("lora_") for word in name.split(".")):
        return Leave("a LoRA adapter")
    chosen = rule(module, leaf, place.shape, conv, entrywise=scheme.entrywise)
    if chosen is None:
        return Leave(f"no rule for parameters of {type(module).__name__}")
    if isinstance(chosen, Leave):
        return chosen
    _check_tensor(name, tensor)
    steps = place.parametrization
    if not (tensor.requires_grad if steps is None else any(part.requires_grad for part in steps.parameters())):
        return Leave("frozen: requires_grad is False")
    if steps is not None:
        _check_parametrization(place, chosen, scheme)
    return chosen


def _check_tensor(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that cannot be filled."""
    if is_sharded(tensor):
        check_placements(name, tensor)
    elif type(tensor) is not nn.Parameter and is_traceable_wrapper_subclass(tensor):
        raise StiefelError(
            f"{name} is a {type(tensor).__name__}, not a plain tensor; initialize the model before converting it, or "
            f"pass skip={name!r}."
        )
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise StiefelError(
            f"{name} was made under torch.inference_mode and cannot be changed outside; make the model outside, or "
            f"pass skip={name!r}."
        )
    if (trouble := _tensors.flaw(tensor)) is not None:
        raise StiefelError(f"{name} {trouble}, or pass skip={name!r}.")


def _check_parametrization(place: Place, chosen: Matrices | Constant, scheme: Scheme) -> None:
    """Refuse a parametrization that does not give back what is assigned to it, tried on a copy of it."""
    assert place.parametrization is not None
    kinds = ", ".join(type(step).__name__ for step in place.parametrization)
    if place.tensor.is_meta:
        raise StiefelError(f"{place.name} is parametrized ({kinds}) and on the meta device; parametrize it afterwards.")
    value, device = torch.empty_like(place.tensor), place.tensor.device
    trial = deepcopy(place.parametrization)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        fill_all([Task(place, chosen, scheme)], [value], 0)
        try:
            trial.right_inverse(value)
            same = torch.allclose(
                trial(), value, rtol=0, atol=tolerance(max(value.shape), 1, torch.finfo(value.dtype).eps)
            )
            trouble = "" if same else "does not give back what is assigned"
        except Exception as error:  # whatever the user's right_inverse raises
            trouble = f"cannot be assigned to ({str(error).splitlines()[0].rstrip('.')})"
    if trouble:
        raise StiefelError(
            f"{place.name} has a parametrization ({kinds}) that {trouble}; initialize the model before it is "
            f"parametrized, or pass skip={place.name!r}."
        )


@lru_cache
def _described(chosen: Matrices | Constant, scheme: Scheme) -> tuple[str, str]:
    """What is done and which side is orthonormal, for the plan."""
    if isinstance(chosen, Constant):
        return {0.0: "zeros", 1.0: "ones"}.get(chosen.value, f"all {chosen.value:g}"), NEITHER
    if scheme is _EMBEDDING:
        return "N(0, 1)", NEITHER
    m, n = chosen.m, chosen.n
    many = f"{chosen.count} of " if chosen.count > 1 else ""
    centre = " at the centre" if chosen.tap else ""
    scale = (
        "" if chosen.scale == 1 else f" / {1 / chosen.scale:.4g}" if 0 < chosen.scale < 1 else f" × {chosen.scale:.4g}"
    )
    neither = scheme.entrywise or isinstance(scheme, Blend)
    side = NEITHER if neither else "rows" if m < n else "columns" if m > n else "both"
    return f"{_label(scheme.resolve(m, n))} {many}{m}×{n}{centre}{scale}", side


def _label(scheme: Scheme) -> str:
    """The scheme's text with numbers to three digits; a blend in words."""
    if isinstance(scheme, Blend):
        return "patches" if scheme.spread >= 1 else f"permutation + {scheme.spread:.3g} patches"
    return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3g}", str(scheme))


def fill_all(tasks: list[Task], tensors: list[Tensor], seed: int | None) -> None:
    """Fill each task's tensor."""
    constants: dict[float, list[Tensor]] = {}
    whole: list[Job] = []
    sharded: list[Job] = []
    for task, tensor in zip(tasks, tensors):
        split = is_sharded(tensor)
        if isinstance(task.what, Constant):
            constants.setdefault(task.what.value, []).append(local(tensor) if split else tensor)
        elif tensor.numel():
            name = task.source or task.place.stream
            (sharded if split else whole).append(Job(name, tensor, task.what, task.scheme, task.first))
    for value, equal in constants.items():
        torch._foreach_zero_(equal)
        if value:
            torch._foreach_add_(equal, value)
    fill(whole, seed)
    if sharded:
        assert seed is not None
        fill_sharded(sharded, seed)
