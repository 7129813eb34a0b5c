"""What is done to each parameter, or why it cannot be done: the rows of the plan, and the tasks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..._check import tolerance
from ..._errors import StiefelError
from ...recipe._describe import EMBEDDING, described, row
from ...recipe._matrices import ZEROS, Constant, Conv, Leave, Matrices, Rule, Weight
from ...recipe._parts import Part, reason_of
from ...recipe._plan import Row
from ...recipe._start import StartOf
from ...schemes import Scheme
from ..sampling import _tensors
from ._draw import Job, fill, new_job
from ._layers import RULED_BY_SHAPE, layer_of, rule
from ._places import Place, is_uninitialized
from ._sharded import check_placements, fill_sharded, is_sharded, local

AN_EMBEDDING = "an embedding"
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


class Task(NamedTuple):
    """What is done to a parameter, and by which scheme."""

    place: Place
    what: Matrices | Constant
    scheme: Scheme
    source: str = ""
    """The parameter whose matrices are drawn once more, if not its own."""
    first: int = 0


# A deep model has thousands of parameters; so made, from a tuple of all fields, a named tuple takes half the time.
new_row, task = partial(tuple.__new__, Row), partial(tuple.__new__, Task)


def decide(
    places: list[Place],
    skipped: set[Hashable],
    scheme: Scheme,
    conv: Conv,
    start: StartOf | None,
    zeroed: Mapping[str, int],
) -> tuple[list[Row], list[Task]]:
    """What is done to each parameter, or why it cannot be done: by the scheme, or by `start` where weights differ.

    `zeroed` are the gains of residual branches that start at zero, by name, and how many branches each scales.
    """
    first: dict[Hashable, Place] = {}
    for place in places:
        first.setdefault(place.key, place)
    embeddings = _embeddings(places)
    rules = _rules(first, embeddings, skipped, scheme, conv, zeroed)
    recipe = {} if start is None else _parts(places, first, embeddings, rules, start)
    rows: list[Row] = []
    tasks: list[Task] = []
    said: dict[Rule, tuple[str, str]] = {}
    for place in places:
        name, shape, key = place.name, place.shape, place.key
        chosen, law, reason = rules[key], scheme, ""
        if first[key] is not place:
            how = "part of" if isinstance(place.module, parametrize.ParametrizationList) else "tied to"
            rows.append(Row(name, shape, f"{how} {first[key].name}"))
            continue
        if key in recipe:
            rows.append(row(name, shape, recipe[key]))
            tasks += [task((place, part.matrices, part.scheme, part.source, part.first)) for part in recipe[key]]
            continue
        if type(chosen) is Leave:
            reason, law = chosen.reason, EMBEDDING
            if not place.tensor.is_meta:
                rows.append(Row(name, shape, "left alone", reason=reason))
                continue
            if chosen.otherwise is None:
                raise StiefelError(
                    f"{name} is on the meta device and would be left without values ({reason}); give it some on "
                    "a real device first."
                )
            chosen = chosen.otherwise
        elif zeroed and place.stream in zeroed and isinstance(chosen, Constant):
            reason = f"scales {zeroed[place.stream]} of {sum(zeroed.values())} residual branches"
        if (words := said.get(chosen)) is None:
            words = said[chosen] = described(chosen, law)
        rows.append(new_row((name, shape, *words, reason)))
        tasks.append(task((place, chosen, law, "", 0)))
    return rows, tasks


def _embeddings(places: list[Place]) -> dict[Hashable, Place]:
    """The weights of embeddings, which are embeddings whichever of their names comes first."""
    if not any(issubclass(kind, EMBEDDINGS) for kind in {type(place.module) for place in places}):
        return {}
    return {place.key: place for place in places if isinstance(place.module, EMBEDDINGS)}


def _rules(
    first: Mapping[Hashable, Place],
    embeddings: Mapping[Hashable, Place],
    skipped: set[Hashable],
    scheme: Scheme,
    conv: Conv,
    zeroed: Mapping[str, int],
) -> dict[Hashable, Rule]:
    """What each parameter holds; found out once for all that look alike, since deep models repeat themselves."""
    rules: dict[Hashable, Rule] = {}
    alike: dict[Hashable, Rule] = {}
    for key, place in first.items():
        if key in skipped:
            rules[key] = Leave("skipped")
            continue
        part = ZEROS if zeroed and place.stream in zeroed else None
        owner = embeddings.get(key, place)
        look = _look(place) if part is None and owner is place else None
        known = alike.get(look)
        if known is None:
            known = _rule(place, owner, scheme, conv, part)
            if look is not None:
                alike[look] = known
        rules[key] = known
    return rules


def _look(place: Place) -> Hashable:
    """All that decides the rule of a parameter of a usual layer; None where more does."""
    name, _, module, leaf, tensor, shape, _, parametrization, _ = place
    kind = type(module)
    if kind not in RULED_BY_SHAPE or type(tensor) is not nn.Parameter or leaf not in ("weight", "bias"):
        return None
    if parametrization is not None or "lora_" in name or tensor.layout is not torch.strided:
        return None
    return kind, leaf, shape, tensor.dtype, tensor.requires_grad, tensor.is_contiguous(), tensor.is_inference()


def _parts(
    places: list[Place],
    first: Mapping[Hashable, Place],
    embeddings: Mapping[Hashable, Place],
    rules: Mapping[Hashable, Rule],
    start: StartOf,
) -> dict[Hashable, list[Part]]:
    """What weights and biases start as, by the keys of the parameters."""
    weights: dict[Hashable, Weight] = {}
    key_of = {id(place.tensor): place.key for place in places}
    for key, place in first.items():
        if isinstance(held := rules[key], Matrices):
            bias = place.module._parameters.get("bias")
            free = bias is not None and isinstance(rules.get(key_of[id(bias)]), Constant)
            owner = embeddings.get(key, place)
            layer = layer_of(owner.module, owner.leaf)
            if place.heads is not None:
                layer = replace(layer, heads=place.heads)
            weights[key] = Weight(place.stream, place.shape, held, layer, free, place.parametrization is None)
    by_name = start(weights.values())
    found: dict[Hashable, list[Part]] = {key: by_name[weight.name] for key, weight in weights.items()}
    for key in weights:
        if (apart := found[key][0].bias) is not None:
            bias = first[key].module._parameters["bias"]
            assert bias is not None
            found[key_of[id(bias)]] = [Part(Matrices(1, bias.numel(), 1), apart, reason_of(apart))]
    return found


def _rule(place: Place, owner: Place, scheme: Scheme, conv: Conv, part: Constant | None) -> Rule:
    """What a parameter holds; `part` where that follows from its part in the model."""
    name, tensor = place.name, place.tensor
    usual = type(tensor) is nn.Parameter
    if not usual and is_uninitialized(tensor):
        raise StiefelError(
            f"{name} is uninitialized, a lazy layer's parameter without a shape; run one forward pass first."
        )
    module, leaf = owner.module, owner.leaf
    computed = "_" in leaf and leaf.rpartition("_")[0]  # as in weight_g and weight_v, weight_orig
    if computed and isinstance(vars(module).get(computed), Tensor) and rule(module, computed, place.shape, conv):
        raise StiefelError(
            f"{name} is what a hook computes {computed} from (weight norm, spectral norm or pruning); remove the hook, "
            f"use torch.nn.utils.parametrizations instead, or pass skip={name.removesuffix(leaf) + computed + '_*'!r}."
        )
    if "lora_" in name and any(word.startswith("lora_") for word in name.split(".")):
        return Leave("a LoRA adapter")
    chosen = part or rule(module, leaf, place.shape, conv, entrywise=scheme.entrywise)
    if isinstance(chosen, Leave) and chosen.reason == AN_EMBEDDING and scheme.embeds:
        chosen = chosen.otherwise
    if chosen is None:
        return Leave(f"no rule for parameters of {type(module).__name__}")
    if isinstance(chosen, Leave):
        return chosen
    if not usual:
        _check_kind(name, tensor)
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise StiefelError(
            f"{name} was made under torch.inference_mode and cannot be changed outside; make the model outside, or "
            f"pass skip={name!r}."
        )
    if (trouble := _tensors.flaw(tensor)) is not None:
        raise StiefelError(f"{name} {trouble}, or pass skip={name!r}.")
    steps = place.parametrization
    if not (tensor.requires_grad if steps is None else any(part.requires_grad for part in steps.parameters())):
        return Leave("frozen: requires_grad is False")
    if steps is not None:
        _check_parametrization(place, chosen, scheme)
    return chosen


def _check_kind(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that does not hold its values as others do."""
    if is_sharded(tensor):
        check_placements(name, tensor)
    elif is_traceable_wrapper_subclass(tensor):
        raise StiefelError(
            f"{name} is a {type(tensor).__name__}, not a plain tensor; initialize the model before converting it, or "
            f"pass skip={name!r}."
        )


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


def fill_all(tasks: list[Task], tensors: list[Tensor], seed: int | None) -> None:
    """Fill each task's tensor."""
    constants: dict[float, list[Tensor]] = {}
    whole: list[Job] = []
    sharded: list[Job] = []
    for (place, what, scheme, source, number), tensor in zip(tasks, tensors):
        split = is_sharded(tensor)
        if isinstance(what, Constant):
            constants.setdefault(what.value, []).append(local(tensor) if split else tensor)
        elif tensor.numel():
            (sharded if split else whole).append(new_job((source or place.stream, tensor, what, scheme, number)))
    for value, equal in constants.items():
        torch._foreach_zero_(equal)
        if value:
            torch._foreach_add_(equal, value)
    fill(whole, seed)
    if sharded:
        assert seed is not None
        fill_sharded(sharded, seed)
