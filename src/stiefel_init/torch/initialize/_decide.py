"""What is done to each parameter, or why it cannot be done: the rows of the plan, and the tasks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...core.check import tolerance
from ...core.errors import StiefelError
from ...recipe._describe import EMBEDDING, described, row
from ...recipe._start import StartOf
from ...recipe.layers import ZEROS, Constant, Conv, Leave, Matrices, Rule, Weight
from ...recipe.plan import Row
from ...recipe.rules import Part, reason_of
from ...schemes import Scheme
from ..sampling import tensors
from ._carry_out import Task, fill_all
from .layers import RULED_BY_SHAPE, layer_of, rule
from .parameters import Place, is_uninitialized
from .sharded import check_placements, is_sharded

AN_EMBEDDING = "an embedding"
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


# A deep model has thousands of parameters; so made, from a tuple of all fields, a row takes half the time.
_row = partial(tuple.__new__, Row)


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
    tasks: dict[Hashable, Task] = {}
    words: dict[Rule, tuple[str, str]] = {}
    for place in places:
        name, shape, key = place.name, place.shape, place.key
        chosen, law, reason = rules[key], scheme, ""
        if first[key] is not place:
            how = "part of" if isinstance(place.module, parametrize.ParametrizationList) else "tied to"
            rows.append(Row(name, shape, f"{how} {first[key].name}"))
            continue
        if key in recipe:
            rows.append(row(name, shape, recipe[key]))
            for matrices, law, _, source, number, _ in recipe[key]:
                alike = matrices, id(law), source, number
                if alike not in tasks:
                    tasks[alike] = Task([], matrices, law, source, number)
                tasks[alike].places.append(place)
            continue
        if isinstance(chosen, Leave):
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
        if chosen not in tasks:
            tasks[chosen], words[chosen] = Task([], chosen, law), described(chosen, law)
        tasks[chosen].places.append(place)
        action, side = words[chosen]
        rows.append(_row((name, shape, action, side, reason)))
    return rows, list(tasks.values())


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
    name, _, module, leaf, tensor, shape, key, _, _ = place
    kind = type(module)
    if kind not in RULED_BY_SHAPE or leaf not in ("weight", "bias") or "lora_" in name:
        return None
    if type(key) is not int or key < 0:
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
    if (trouble := tensors.flaw(tensor)) is not None:
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
        fill_all([Task([place], chosen, scheme)], 0, {place.key: value})
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
