"""Whole models of PyTorch: `initialize_`, and the adapter that shows them to `recipe.initialize`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...core import validate as _validate
from ...core.check import tolerance
from ...core.errors import StiefelError, said
from ...core.sample import Member
from ...recipe.author import follows_pattern
from ...recipe.initialize import Adapter, Options, Patterns, RecipeName, initialize
from ...recipe.layers import AN_ADAPTER, AN_EMBEDDING, Constant, Conv, Layer, Leave, Matrices, Rule, no_rule
from ...recipe.plan import Plan
from ...recipe.roles import Roles
from ...recipe.rules import Draw
from ...recipe.trace import Flow, Norm, norm_of
from ...schemes import Scheme, SchemeName, Stiefel
from ..inputs import check_module, shapes, tensors_in
from ..sampling import tensors
from .apply import Planned, apply_plan, fill_all, materialize_, memory_device
from .calibrate import calibrate_, check, restored_on_failure
from .layers import EMBEDDINGS, held_by, is_normalization, rule
from .parameters import TorchRef, is_uninitialized, parameters_of
from .sharded import check_placements, is_sharded, reshard
from .trace import examples, read, watch
from .wrappers import common_seed, finish_first, fresh_seed, refuse_scripted, unwrapped


def initialize_(
    model: nn.Module,
    scheme: SchemeName | Scheme | None = None,
    *,
    recipe: RecipeName | None = None,
    inputs: Any = None,
    stem: Patterns | None = None,
    head: Patterns | None = None,
    seed: int | None = None,
    conv: Conv | None = None,
    skip: Patterns = (),
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
        inputs: Example inputs: a tensor, a tuple of arguments or a mapping of keywords. The model is run on them once
            to find its ends; without them its forward is read by `torch.fx`, and failing that, its first and last
            layers are taken. `"lsuv"` measures its layers on them, `"tat"` their mean square.
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
    4 of 4 parameters drawn.
    parameter  shape      what is done               orthonormal  why
    0.weight   (64, 784)  orthogonal 64×784 × 0.577  rows         stem: reads the input (torch.fx)
    0.bias     (64,)      offsets 0.0206 64×1        —            set the units apart
    2.weight   (10, 64)   centred 10×64 × 0.577      rows         head: makes the output (torch.fx)
    2.bias     (10,)      offsets 0.0722 10×1        —            set the units apart
    """
    check_module(model)
    options = Options.of(
        scheme, recipe, conv, member, spread, inputs=inputs, stem=stem, head=head, skip=skip, dry_run=dry_run
    )
    if seed is not None:
        seed = _validate.size("seed", seed)
    with torch.no_grad():
        return initialize(TorchAdapter(model, seed, device), options, advised=True)


class TorchAdapter(Adapter[TorchRef]):
    """Any module, whose parameters are drawn where they are."""

    def __init__(self, model: nn.Module, seed: int | None, device: torch.device | str | None) -> None:
        self.model, self.seed = model, seed
        self.modules = list(model.named_modules(remove_duplicate=False))
        refuse_scripted(self.modules)
        reshard(self.modules)
        self.parameters = parameters_of(self.modules)
        self.memory = memory_device(self.modules, [ref.tensor for ref in self.parameters], device)

    @cached_property
    def normalized(self) -> Norm:  # type: ignore[override]
        return norm_of({type(ref.module).__name__ for ref in self.parameters if is_normalization(ref.module)})

    @cached_property
    def _tables(self) -> dict[Hashable, TorchRef]:
        """The weights of embeddings, which are embeddings whichever of their names comes first."""
        return {ref.key: ref for ref in self.parameters if isinstance(ref.module, EMBEDDINGS)}

    @cached_property
    def _keys(self) -> dict[int, Hashable]:
        return {id(ref.tensor): ref.key for ref in self.parameters}

    def flow(self, streams: Mapping[Hashable, str], tables: Collection[str], inputs: Any) -> tuple[Flow | None, str]:
        weights = {
            id(ref.tensor): streams[ref.key]
            for ref in self.parameters
            if len(ref.shape) > 1 or isinstance(ref.module, parametrize.ParametrizationList)
        }
        flow, how = self._flow(weights, inputs)
        if flow is not None:  # a parametrization is known, and takes what is assigned to it
            flow.altered -= {streams[ref.key] for ref in self.parameters if ref.parametrization is not None}
        return flow, how

    def _flow(self, weights: Mapping[int, str], inputs: Any) -> tuple[Flow | None, str]:
        # A model without values runs on none, and FSDP shows other tensors than its parameters while it runs.
        model = unwrapped(self.model)
        runs = not any(ref.empty for ref in self.parameters) or any(x.is_meta for x in tensors_in(inputs))
        if inputs is not None and runs:
            watched = watch(model, inputs, weights)
            if watched.reads or not weights:
                return watched, "traced"
        found = read(model, weights)
        if (found is None or found.opaque) and not any(is_sharded(ref.tensor) for ref in self.parameters):
            for example in examples(model):
                with suppress(Exception), warnings.catch_warnings(action="ignore"):  # a guess that does not fit
                    watched = watch(model, example, weights)
                    if watched.reads:
                        return watched, f"traced with {shapes(example)}"
        return found, "torch.fx"

    def ordered(self) -> Iterable[TorchRef]:
        layers = nn.Linear, nn.modules.conv._ConvNd
        return (ref for ref in self.parameters if isinstance(ref.module, layers) and ref.leaf == "weight")

    def layer(self, parameter: TorchRef) -> Layer | None:
        if parameter.key in self._tables:
            return Layer("embedding")
        held = held_by(parameter.module, parameter.leaf, parameter.shape)
        if not isinstance(held, Layer):
            return None
        return held if parameter.heads is None else replace(held, heads=parameter.heads)

    @cached_property
    def _values(self) -> tuple[dict[Hashable, Tensor], dict[Hashable, Tensor]]:
        """The values of parameters in usual memory that have some, and of sharded ones."""
        held = {ref.key: ref.tensor for ref in self.parameters if _has_values(ref.tensor)}
        split = {key: tensor.detach() for key, tensor in held.items() if is_sharded(tensor)}
        return {key: tensor.detach() for key, tensor in held.items() if key not in split}, split

    @cached_property
    def sizes(self) -> Mapping[Hashable, float]:
        plain, split = self._values
        norms = list(torch._foreach_norm(list(plain.values()))) if plain else []
        norms += [torch.linalg.vector_norm(x).full_tensor() for x in split.values()]
        values = {**plain, **split}
        return {key: size / math.sqrt(x.numel()) for (key, x), size in zip(values.items(), _numbers(norms))}

    @cached_property
    def patterned(self) -> Collection[Hashable]:
        """Of matrices the first rows tell; of vectors, those that begin with two equal entries are looked at."""
        alike: dict[Hashable, dict[Hashable, Tensor]] = {}
        for key, x in self._values[0].items():
            if x.numel() > 1:
                alike.setdefault((x.shape, x.dtype), {})[key] = x
        if not alike:
            return ()
        told = [_tell_a_pattern(list(group.values())) for group in alike.values()]
        kept = zip((item for group in alike.values() for item in group.items()), torch.cat(told).tolist())
        return {
            key for (key, x), suspect in kept if suspect and (x.ndim > 1 or follows_pattern(x.float().cpu().numpy()))
        }

    def bias_of(self, parameter: TorchRef) -> Hashable:
        bias = parameter.module._parameters.get("bias")
        return None if bias is None else self._keys[id(bias)]

    def rule(self, parameter: TorchRef, options: Options) -> Rule:
        return _rule(parameter, self._tables.get(parameter.key, parameter), options)

    def write(self, planned: Planned, options: Options, roles: Roles) -> None:
        scheme, inputs = options.scheme, options.inputs
        if scheme is not None:
            check(self.model, scheme, (ref for ref, _ in planned), inputs)
        if options.dry_run:
            return
        calibrated = scheme if scheme is not None and scheme.calibrates and inputs is not None else None
        tensors = [ref.tensor for ref in self.parameters]
        seed = self.seed if self.seed is not None else common_seed(self.modules, tensors)
        if seed is None and any(draw.source for _, draw in planned):
            seed = fresh_seed(planned[0][0].tensor.device if self.memory is None else self.memory)
        with finish_first():
            if self.memory is not None:
                materialize_(self.model, self.memory)
            with nullcontext() if calibrated is None else restored_on_failure(self.parameters):
                apply_plan(planned, seed)
                if calibrated is not None:
                    stems = [name for name, role in roles.items() if role.stem]
                    drawn = [ref for ref, draw in planned if isinstance(draw.what, Matrices)]
                    calibrate_(self.model, calibrated, drawn, inputs, stems)


_LOOKED_AT = 1024  # entries of a matrix


def _has_values(tensor: Tensor) -> bool:
    usual = type(tensor) in (nn.Parameter, Tensor) or is_sharded(tensor)
    usual = usual and tensor.layout is torch.strided and tensor.is_floating_point()
    return usual and not tensor.is_meta and tensor.numel() > 0


def _numbers(scalars: list[Tensor]) -> list[float]:
    """The values of scalars, those of one dtype fetched at once."""
    kinds = {each.dtype for each in scalars}
    if len(kinds) > 1:
        scalars = [each.double() for each in scalars]
    return torch.stack(scalars).double().tolist() if scalars else []


def _tell_a_pattern(alike: list[Tensor]) -> Tensor:
    """Of tensors of one shape, on the device: of matrices, as `follows_pattern`; of vectors, whether they may."""
    shape = alike[0].shape
    first = 2 if len(shape) == 1 else max(1, _LOOKED_AT // shape[1:].numel())
    some = torch.stack([x[:first] for x in alike])
    if some.ndim == 2:
        return some[:, 0] == some[:, 1]
    filled = some != 0
    axes = range(1, some.ndim if some.ndim > 3 else 1)
    used = [filled.any(tuple({*axes} - {axis})).sum(-1) for axis in axes]
    share = filled.flatten(1).sum(1) / (torch.stack(used).prod(0) if used else some[0].numel())
    return (share > 0) & (share < 0.5)


def _rule(ref: TorchRef, owner: TorchRef, options: Options) -> Rule:
    """What a parameter holds, as the parameter `owner` of an embedding if it is one."""
    name, tensor, scheme, conv = ref.name, ref.tensor, options.scheme or Stiefel(), options.conv
    usual = type(tensor) is nn.Parameter
    if not usual and is_uninitialized(tensor):
        raise StiefelError(
            f"{name} is uninitialized, a lazy layer's parameter without a shape; run one forward pass first."
        )
    module, leaf = owner.module, owner.leaf
    computed = "_" in leaf and leaf.rpartition("_")[0]  # as in weight_g and weight_v, weight_orig
    if computed and isinstance(vars(module).get(computed), Tensor) and rule(module, computed, ref.shape, conv):
        raise StiefelError(
            f"{name} is what a hook computes {computed} from (weight norm, spectral norm or pruning); remove the hook, "
            f"use torch.nn.utils.parametrizations instead, or pass skip={name.removesuffix(leaf) + computed + '_*'!r}."
        )
    if "lora_" in name and any(word.startswith("lora_") for word in name.split(".")):
        return AN_ADAPTER
    chosen = rule(module, leaf, ref.shape, conv, entrywise=scheme.entrywise)
    if isinstance(chosen, Leave) and chosen.reason == AN_EMBEDDING.reason and scheme.embeds:
        chosen = chosen.otherwise
    if chosen is None and is_normalization(module):
        return Leave("a normalization")
    if chosen is None:
        return no_rule(module)
    if isinstance(chosen, Leave):
        return chosen
    if is_sharded(tensor):
        check_placements(name, tensor)
    elif not usual and is_traceable_wrapper_subclass(tensor):
        raise StiefelError(
            f"{name} is a {type(tensor).__name__}, not a plain tensor; initialize the model before converting it, or "
            f"pass skip={name!r}."
        )
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise StiefelError(
            f"{name} was made under torch.inference_mode and cannot be changed outside; make the model outside, or "
            f"pass skip={name!r}."
        )
    if (trouble := tensors.flaw(tensor)) is not None:
        raise StiefelError(f"{name} {trouble}, or pass skip={name!r}.")
    steps = ref.parametrization
    if not (tensor.requires_grad if steps is None else any(each.requires_grad for each in steps.parameters())):
        return Leave("frozen: requires_grad is False")
    if steps is not None:
        try:
            _check_parametrization(ref, chosen, scheme)
        except StiefelError:
            if options.scheme is not None or tensor.is_meta:
                raise
            return Leave("its parametrization does not give back what is assigned")
    return chosen


def _check_parametrization(ref: TorchRef, chosen: Matrices | Constant, scheme: Scheme) -> None:
    """Refuse a parametrization that does not give back what is assigned to it, tried on a copy of it."""
    assert ref.parametrization is not None
    kinds = ", ".join(type(step).__name__ for step in ref.parametrization)
    if ref.tensor.is_meta:
        raise StiefelError(f"{ref.name} is parametrized ({kinds}) and on the meta device; parametrize it afterwards.")
    value, device = torch.empty_like(ref.tensor), ref.tensor.device
    trial = deepcopy(ref.parametrization)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        fill_all([(ref, Draw(chosen, scheme))], 0, {ref.key: value})
        try:
            trial.right_inverse(value)
            same = torch.allclose(
                trial(), value, rtol=0, atol=tolerance(max(value.shape), 1, torch.finfo(value.dtype).eps)
            )
            trouble = "" if same else "does not give back what is assigned"
        except Exception as error:  # whatever the user's right_inverse raises
            trouble = f"cannot be assigned to ({said(error)})"
    if trouble:
        raise StiefelError(
            f"{ref.name} has a parametrization ({kinds}) that {trouble}; initialize the model before it is "
            f"parametrized, or pass skip={ref.name!r}."
        )
