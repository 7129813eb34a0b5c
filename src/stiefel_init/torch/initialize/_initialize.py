"""Whole models: `initialize_`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves

from ...core import validate as _validate
from ...core.errors import StiefelError
from ...core.sample import Member
from ...recipe._options import Recipe, chosen_scheme, matching
from ...recipe._start import start_of
from ...recipe.advice import note
from ...recipe.layers import Conv
from ...recipe.one_scheme import needs_roles
from ...recipe.plan import Plan
from ...recipe.roles import Roles, of_flow, of_order
from ...schemes import Scheme, SchemeName, Stiefel
from ._calibrate import calibrate_, check, restored_on_failure
from ._carry_out import carry_out
from ._decide import EMBEDDINGS, decide
from ._meta import materialize_, memory_device
from .layers import is_normalization
from .parameters import Place, modules_of, places_of
from .sharded import reshard
from .trace import read, watch
from .wrappers import common_seed, finish_first, fresh_seed, refuse_scripted, unwrapped


def initialize_(
    model: nn.Module,
    scheme: SchemeName | Scheme | None = None,
    *,
    recipe: Recipe | None = None,
    inputs: Any = None,
    stem: str | Iterable[str] | None = None,
    head: str | Iterable[str] | None = None,
    seed: int | None = None,
    conv: Conv | None = None,
    skip: str | Iterable[str] = (),
    dry_run: bool = False,
    device: torch.device | str | None = None,
    member: Member = "uniform",
    spread: float = 0.1,
) -> Plan:
    r"""Initialize all layers of `model` in place, and say what was done to each parameter.

    Hidden linear, attention and recurrent layers become members of Õ(m,n) (q, k and v of an attention and the gates of
    a recurrent layer each); layers at the two ends and convolutions get rules of their own (docs/initialize.md). Biases
    become zero, except where they set the units of a stem apart; normalization layers become the identity. Embeddings,
    frozen parameters, LoRA adapters and parameters of the user's own modules are left alone. Everything is checked
    first: when something is refused, the model is unchanged.

    Args:
        model: Any module, also on the meta device, sharded, or wrapped for data parallelism.
        scheme: Use this scheme (a name of `stiefel_init.schemes.names()`, or a `Scheme`) for every layer instead.
        recipe: `"best"`, the default, or `"paper"`: every layer in the set, as scheme `"stiefel"` does.
        inputs: Example inputs: a tensor, a tuple of arguments or a dict of keywords. The model is run on them once to
            find its ends; without them its forward is read by `torch.fx`, and failing that, its first and last layers
            are taken. `"lsuv"` measures its layers on them, `"tat"` their mean square, `"meta-init"` how gradients
            change.
        stem: Patterns, as in `fnmatch`, of the names of weights that read the input, if you know better; `()` for none.
        head: Likewise, of those that make the output.
        seed: `None` draws from the global generator of the model's device. With an int, matrix i of the parameter
            `name` is member i of the batch `stiefel_init.sample(m, n, batch=…, seed=seed, name=name)`, whatever the
            device, the sharding, the wrapper and the rest of the model.
        conv: How schemes that draw matrices fill a kernel. `"delta"`, the default, puts a matrix at its centre, place
            (k-1)//2, and zeros elsewhere; `"flatten"` makes it one out × in·|kernel| matrix, divided by √|kernel|.
            With stride 1, both carry the image of ones to √(in/out) times the image of ones.
        skip: Patterns of the names of parameters to leave alone.
        dry_run: Change nothing, only make the plan.
        device: Where a model on the meta device gets its memory; torch's default device if not given.
        member: Which member of the set `"stiefel"` draws, and with which `spread`, as in `stiefel_init.sample`.
        spread: Of `member="rotation"`.

    Returns:
        What was done to each parameter, and why; it prints as a table.

    Raises:
        StiefelError: for a model, option, name or parameter that cannot be used; the model is unchanged.

    >>> model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> print(initialize_(model, seed=0))
    parameter  shape      what is done    orthonormal  why
    0.weight   (64, 784)  stiefel 64×784  rows         stem: reads the input (as torch.fx reads it)
    0.bias     (64,)      zeros           —
    2.weight   (10, 64)   centred 10×64   rows         head: makes the output (as torch.fx reads it)
    2.bias     (10,)      zeros           —
    """
    if not isinstance(model, nn.Module):
        raise StiefelError(f"model is a {type(model).__name__}; give a torch.nn.Module.")
    chosen = chosen_scheme(scheme, recipe, conv, member, spread, ends=(inputs, stem, head))
    if seed is not None:
        seed = _validate.size("seed", seed)
    with torch.no_grad():
        modules = modules_of(model)
        refuse_scripted(modules)
        reshard(modules)
        places = places_of(modules)
        memory = memory_device(modules, [place.tensor for place in places], device)
        skipped = matching("skip", places, skip)
        roles = cache(lambda: _roles(model, places, inputs, stem, head))
        start = start_of(chosen, conv or "delta", roles)
        zeroed = Counter(roles().gains.values() if chosen is not None and chosen.zeroes_gains else ())
        rows, tasks = decide(places, skipped, chosen or Stiefel(), conv or "delta", start, zeroed)
        if chosen is not None:
            check(model, chosen, tasks, inputs)
        calibrated = chosen if chosen is not None and chosen.calibrates and inputs is not None else None
        if not dry_run:
            shared = seed if seed is not None else common_seed(modules, (place.tensor for place in places))
            if shared is None and any(task.source for task in tasks):
                shared = fresh_seed(tasks[0].places[0].tensor.device if memory is None else memory)
            with finish_first():
                if memory is not None:
                    materialize_(model, memory)
                with nullcontext() if calibrated is None else restored_on_failure(places):
                    carry_out(tasks, shared)
                    if calibrated is not None:
                        stems = roles().stems if needs_roles(calibrated) else ()
                        calibrate_(model, calibrated, tasks, inputs, stems, shared)
    advice = note({place.stream: tuple(place.tensor.shape) for place in places}, roles()) if chosen is None else ""
    return Plan(tuple(rows), advice)


def _roles(
    model: nn.Module,
    places: list[Place],
    inputs: Any,
    stem: str | Iterable[str] | None,
    head: str | Iterable[str] | None,
) -> Roles:
    """The parts that the model's weights play, by the names of their random numbers."""
    name_of = {place.key: place.stream for place in reversed(places)}
    weights = {
        id(place.tensor): name_of[place.key]
        for place in places
        if len(place.shape) > 1 or isinstance(place.module, parametrize.ParametrizationList)
    }
    # A pattern may match biases too, which have no part.
    stems, heads = (
        None if patterns is None else [name_of[key] for key in matching(option, places, patterns)]
        for option, patterns in (("stem", stem), ("head", head))
    )
    gains = {
        id(place.tensor): name_of[place.key]
        for place in places
        if place.leaf != "bias" and math.prod(place.shape) == max(place.shape, default=1)
    }
    tables = {name_of[place.key] for place in places if isinstance(place.module, EMBEDDINGS)}
    # A model without values runs on none, and FSDP shows other tensors than its parameters while it runs.
    empty = any(place.tensor.is_meta for place in places) and not any(map(_is_meta, tree_leaves(inputs)))
    if inputs is not None and not empty:
        watched = watch(unwrapped(model), inputs, weights, gains)
        if watched.reads or not weights:
            return of_flow(watched, stems, heads, "traced", tables)
    flow = read(unwrapped(model), weights, gains)
    if flow is not None:
        return of_flow(flow, stems, heads, "as torch.fx reads it", tables)
    layers = nn.Linear, nn.modules.conv._ConvNd
    names = dict.fromkeys(
        name_of[place.key] for place in places if isinstance(place.module, layers) and place.leaf == "weight"
    )
    normalized = any(is_normalization(place.module) for place in places)
    return of_order(names, stems, heads, normalized=normalized)


def _is_meta(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_meta
