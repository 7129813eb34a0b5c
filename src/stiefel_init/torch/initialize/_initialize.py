"""Whole models: `initialize_`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ... import _validate
from ..._check import tolerance
from ..._errors import StiefelError, unknown
from ..._sample import Member, member_scheme
from ...schemes import Random, Scheme, SchemeName, Stiefel, get
from ..sampling import _tensors
from ._draw import Job, fill
from ._layers import CONV_MODES, Constant, Conv, Leave, Matrices, Rule, rule
from ._meta import materialize_, memory_device
from ._plan import NEITHER, Plan, Row
from ._sharded import check_placements, common_mesh, fill_sharded, is_sharded, local, reshard, shared_seed


def initialize_(
    model: nn.Module,
    scheme: SchemeName | Scheme = "stiefel",
    *,
    seed: int | None = None,
    conv: Conv = "delta",
    skip: str | Iterable[str] = (),
    dry_run: bool = False,
    device: torch.device | str | None = None,
    member: Member = "uniform",
    spread: float = 0.1,
) -> Plan:
    r"""Initialize all layers of `model` in place, and say what was done to each parameter.

    Weights of linear, convolution, attention and recurrent layers are drawn by the scheme, matrix by matrix (q, k and
    v of an attention, the gates of a recurrent layer and the groups of a convolution each); biases become zero and
    normalization layers the identity. Embeddings, frozen parameters and parameters of the user's own modules are left
    alone. Everything is checked first: when something is refused, the model is unchanged.

    Args:
        scheme: one of `SCHEMES`.
        seed: `None` draws from the global generator of the model's device. With an int, matrix i of the parameter
            `name` is member i of the batch `stiefel_init.sample(m, n, batch=…, seed=seed, name=name)`, whatever the
            device, the sharding and the rest of the model.
        conv: how `"stiefel"`, `"lee"` and `"orthogonal"` fill a kernel. `"delta"` puts a matrix at its centre, place
            (k-1)//2, and zeros elsewhere; `"flatten"` makes it one out × in·|kernel| matrix, divided by √|kernel|.
            Both carry the image of ones to √(in/out) times the image of ones.
        skip: patterns, as in `fnmatch`, of the names of parameters to be left alone.
        dry_run: change nothing, only make the plan.
        device: where a model on the meta device gets its memory; torch's default device if not given.
        member: which member of the set `"stiefel"` draws, and with which `spread`, as in `stiefel_init.sample`.

    >>> model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> print(initialize_(model, seed=0))
    parameter  shape      what is done    orthonormal  why
    0.weight   (64, 784)  stiefel 64×784  rows
    0.bias     (64,)      zeros           —
    2.weight   (10, 64)   stiefel 10×64   rows
    2.bias     (10,)      zeros           —
    """
    if not isinstance(model, nn.Module):
        raise StiefelError(f"model is a {type(model).__name__}; give a torch.nn.Module.")
    chosen, as_member = get(scheme), member_scheme(member, spread)
    if member != "uniform":
        if chosen != Stiefel():
            raise StiefelError(f"member={member!r} belongs to scheme='stiefel'; leave it out for scheme={scheme!r}.")
        chosen = as_member
    if conv not in CONV_MODES:
        raise unknown("conv", conv, CONV_MODES)
    if seed is not None:
        seed = _validate.size("seed", seed)
    with torch.no_grad():
        modules = list(model.named_modules(remove_duplicate=False))
        reshard(modules)
        places = list(_places(modules))
        memory = memory_device(modules, [place.tensor for place in places], device)
        rows, tasks = _decide(places, _skipped(places, skip), chosen, conv)
        mesh = common_mesh(place.tensor for place, _, _ in tasks) if seed is None else None
        if not dry_run:
            if memory is not None:
                materialize_(model, memory)
            _carry_out(tasks, shared_seed(mesh) if mesh is not None else seed)
    return Plan(tuple(rows))


_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_EMBEDDING = Random(1.0)  # as torch draws its own


class _Place(NamedTuple):
    """A parameter under one of its names; or what a parametrization computes, under the name that it stands for."""

    name: str
    module: nn.Module
    leaf: str
    tensor: Tensor
    shape: tuple[int, ...]
    """Of a lazy parameter, ()."""
    key: int
    """The same under all names, and for a parametrization and its parts."""
    parametrization: parametrize.ParametrizationList | None = None


_Task = tuple[_Place, Matrices | Constant, Scheme]  # what is done to a parameter, and by which scheme


def _places(modules: list[tuple[str, nn.Module]]) -> Iterator[_Place]:
    """All parameters under all their names, in the order of `named_parameters`."""
    for prefix, module in modules:
        if _quantized(type(module)):  # type: ignore[arg-type]
            raise StiefelError(f"{prefix or 'model'} is a quantized layer; initialize the model before quantizing it.")
        parametrized = "parametrizations" in module._modules
        if not (module._parameters or parametrized):
            continue
        dot = f"{prefix}." if prefix else ""
        if parametrized:
            for leaf, steps in module.parametrizations.items():  # type: ignore[operator, union-attr]
                value = getattr(module, leaf).detach()
                yield _Place(dot + leaf, module, leaf, value, tuple(value.shape), id(steps), steps)
        part_of = id(module) if isinstance(module, parametrize.ParametrizationList) else 0
        for leaf, tensor in module._parameters.items():
            if tensor is not None:
                shape = () if _lazy(tensor) else tuple(tensor.shape)
                yield _Place(dot + leaf, module, leaf, tensor, shape, part_of or id(tensor))


@lru_cache
def _quantized(kind: type[nn.Module]) -> bool:
    return kind.__module__.startswith("torch.ao.nn") and "quantized" in kind.__module__


def _lazy(tensor: Tensor) -> bool:
    return type(tensor) is not nn.Parameter and is_lazy(tensor)


def _skipped(places: list[_Place], skip: str | Iterable[str]) -> set[int]:
    """The keys of the parameters that a pattern matches, under any of their names."""
    found: set[int] = set()
    for pattern in (skip,) if isinstance(skip, str) else skip:
        if not isinstance(pattern, str):
            raise StiefelError(f"skip has {pattern!r}, a {type(pattern).__name__}; give patterns of parameter names.")
        matched = {place.key for place in places if fnmatchcase(place.name, pattern)}
        if not matched:
            names = ", ".join(repr(place.name) for place in places[:3])
            raise StiefelError(
                f"skip pattern {pattern!r} matches no parameter; the names, as in model.named_parameters(), begin with "
                f"{names or 'nothing, for there are none'}."
            )
        found |= matched
    return found


def _decide(places: list[_Place], skipped: set[int], scheme: Scheme, conv: Conv) -> tuple[list[Row], list[_Task]]:
    """What is done to each parameter; or why it cannot be done."""
    embeddings = {place.key: place for place in places if isinstance(place.module, _EMBEDDINGS)}
    first: dict[int, _Place] = {}
    rows: list[Row] = []
    tasks: list[_Task] = []
    for place in places:
        key = place.key
        if (known := first.setdefault(key, place)) is not place:
            how = "part of" if isinstance(place.module, parametrize.ParametrizationList) else "tied to"
            rows.append(Row(place.name, place.shape, f"{how} {known.name}"))
            continue
        # A weight that an embedding shares is an embedding, whichever of its names comes first.
        chosen = Leave("skipped") if key in skipped else _rule(place, embeddings.get(key, place), scheme, conv)
        reason, law = "", scheme
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
        rows.append(Row(place.name, place.shape, *_described(chosen, law), reason))
        tasks.append((place, chosen, law))
    return rows, tasks


def _rule(place: _Place, owner: _Place, scheme: Scheme, conv: Conv) -> Rule:
    name, tensor = place.name, place.tensor
    if _lazy(tensor):
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
    found = rule(module, leaf, place.shape, conv, entrywise=scheme.entrywise)
    if found is None:
        return Leave(f"no rule for parameters of {type(module).__name__}")
    if isinstance(found, Leave):
        return found
    _check_tensor(name, tensor)
    steps = place.parametrization
    if not (tensor.requires_grad if steps is None else any(part.requires_grad for part in steps.parameters())):
        return Leave("frozen: requires_grad is False")
    if steps is not None:
        _check_parametrization(place, found, scheme)
    return found


def _check_tensor(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that cannot be filled."""
    if is_sharded(tensor):
        check_placements(name, tensor)
    elif type(tensor) is not nn.Parameter and is_traceable_wrapper_subclass(tensor):
        raise StiefelError(
            f"{name} is a {type(tensor).__name__}, not a plain tensor; initialize the model before converting it, or "
            f"pass skip={name!r}."
        )
    if (trouble := _tensors.flaw(tensor)) is not None:
        raise StiefelError(f"{name} {trouble}, or pass skip={name!r}.")


def _check_parametrization(place: _Place, chosen: Matrices | Constant, scheme: Scheme) -> None:
    """Refuse a parametrization that does not give back what is assigned to it, tried on a copy of it."""
    assert place.parametrization is not None
    kinds = ", ".join(type(step).__name__ for step in place.parametrization)
    if place.tensor.is_meta:
        raise StiefelError(f"{place.name} is parametrized ({kinds}) and on the meta device; parametrize it afterwards.")
    value, device = torch.empty_like(place.tensor), place.tensor.device
    trial = deepcopy(place.parametrization)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        _fill([(place, chosen, scheme)], [value], 0)
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
    scale = f" / {1 / chosen.scale:.4g}" if chosen.scale != 1 else ""
    side = "rows" if m < n else "columns" if m > n else "both"
    return f"{scheme.resolve(m, n)} {many}{m}×{n}{centre}{scale}", NEITHER if scheme.entrywise else side


def _carry_out(tasks: list[_Task], seed: int | None) -> None:
    """Do all tasks; the parameters are looked up anew, since those on meta have been replaced."""
    tensors = [
        torch.empty_like(place.tensor) if place.parametrization is not None else _parameter(place)
        for place, _, _ in tasks
    ]
    _fill(tasks, tensors, seed)
    for (place, _, _), tensor in zip(tasks, tensors):
        if place.parametrization is not None:
            setattr(place.module, place.leaf, tensor)


def _parameter(place: _Place) -> Tensor:
    found = place.module._parameters[place.leaf]
    assert found is not None
    return found


def _fill(tasks: list[_Task], tensors: list[Tensor], seed: int | None) -> None:
    """Fill each task's tensor."""
    constants: dict[float, list[Tensor]] = {}
    whole: list[Job] = []
    sharded: list[Job] = []
    for (place, chosen, scheme), tensor in zip(tasks, tensors):
        split = is_sharded(tensor)
        if isinstance(chosen, Constant):
            constants.setdefault(chosen.value, []).append(local(tensor) if split else tensor)
        elif tensor.numel():
            (sharded if split else whole).append(Job(place.name, tensor, chosen, scheme))
    for value, equal in constants.items():
        torch._foreach_zero_(equal)
        if value:
            torch._foreach_add_(equal, value)
    fill(whole, seed)
    if sharded:
        assert seed is not None
        fill_sharded(sharded, seed)
