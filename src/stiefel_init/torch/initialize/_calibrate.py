"""Schemes that look at a batch: weights are drawn first and then divided by what the batch measures."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ...core.errors import StiefelError
from ...recipe.layers import Matrices
from ...schemes import MetaInit, Scheme
from ..sampling.tensors import WORKING
from ._carry_out import Task
from ._tailored import TailoredReLU
from .parameters import Place
from .quotient import descend_
from .sharded import is_sharded, local
from .trace import runs_undisturbed
from .wrappers import unwrapped


def check(model: nn.Module, scheme: Scheme, tasks: list[Task], inputs: Any) -> None:
    """Refuse what the scheme cannot start, before anything is changed.

    Raises:
        StiefelError: without a batch where one is needed, for parametrized weights, or without the right activation.
    """
    name = str(scheme)
    if scheme.activations == ("tat",) and not any(isinstance(module, TailoredReLU) for module in model.modules()):
        raise StiefelError(
            f"scheme={name!r} is made for its own activation; put stiefel_init.torch.TailoredReLU(depth) between the "
            "model's layers."
        )
    if scheme.calibrates in ("", "inputs"):
        return
    if inputs is None:
        raise StiefelError(f"scheme={name!r} measures a batch; give one as inputs=.")
    for place in (place for task in tasks for place in task.places):
        if place.parametrization is not None:
            raise StiefelError(
                f"{place.name} is parametrized, and scheme={name!r} would have to scale it; initialize the model "
                "before it is parametrized."
            )
        tensor = place.tensor
        if scheme.calibrates == "quotient" and (is_sharded(tensor) or tensor.dtype not in WORKING):
            trouble = "is sharded" if is_sharded(tensor) else f"has dtype {str(tensor.dtype).removeprefix('torch.')}"
            raise StiefelError(
                f"{place.name} {trouble}, and scheme={name!r} differentiates the whole model three times; "
                "initialize it before, in float32 or float64."
            )


def calibrate_(
    model: nn.Module, scheme: Scheme, tasks: list[Task], inputs: Any, stems: Collection[str], seed: int | None
) -> None:
    """Scale freshly drawn weights by what the batch measures.

    Raises:
        StiefelError: if the model does not run on the batch, or a layer's outputs do not vary.
    """
    drawn = [place for task in tasks if isinstance(task.what, Matrices) for place in task.places]
    if isinstance(scheme, MetaInit):
        held = [place for place in drawn if len(place.shape) > 1]
        tensors = {id(tensor): tensor for place in held if (tensor := place.module._parameters[place.leaf]) is not None}
        runs_undisturbed(unwrapped(model), inputs)  # refuses inputs that do not fit
        descend_(unwrapped(model), scheme, list(tensors.values()), inputs, seed)
        return
    places = {id(place.module): place for place in drawn if _is_weight(place)}
    if scheme.calibrates == "inputs":
        size = _root_mean_square(inputs)
        factors = {key: size for key, place in places.items() if place.stream in stems}
    else:
        factors = _deviations(unwrapped(model), inputs, places)
    for key, factor in factors.items():
        place = places[key]
        weight: Any = place.module._parameters[place.leaf]
        (local(weight) if is_sharded(weight) else weight.detach()).mul_(1 / factor)


def _is_weight(place: Place) -> bool:
    kinds = isinstance(place.module, nn.Linear | nn.modules.conv._ConvNd | nn.Bilinear)
    return place.leaf == "weight" and (kinds or type(place.module).__name__ == "Conv1D")


def _root_mean_square(inputs: Any) -> float:
    numbers = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    size = math.sqrt(float(torch.cat([leaf.double().flatten() for leaf in numbers]).square().mean())) if numbers else 0
    if not 0 < size < math.inf:
        raise StiefelError("inputs have no finite mean square above 0; give a batch of what the model is called with.")
    return size


def _deviations(model: nn.Module, inputs: Any, places: dict[int, Place]) -> dict[int, float]:
    """The standard deviation of each layer's outputs, those before it already divided by theirs.

    One pass is enough: with zero biases, dividing a layer's outputs is dividing its weights.
    """
    found: dict[int, float] = {}

    def measure(module: nn.Module, _: Any, out: Tensor) -> Tensor:
        key = id(module)
        if key not in found:
            whole = out.full_tensor() if is_sharded(out) else out  # type: ignore[attr-defined]
            size = float(whole.double().std(correction=0))
            if not 0 < size < math.inf:
                raise StiefelError(
                    f"the outputs of {places[key].name} have deviation {size:g} on the batch; give more "
                    "inputs, which differ."
                )
            found[key] = size
        return out / found[key]

    with _hooked([place.module for place in places.values()], measure):
        runs_undisturbed(model, inputs)
    return found


@contextmanager
def _hooked(modules: list[nn.Module], hook: Any) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def restored_on_failure(places: list[Place]) -> Iterator[None]:
    """Put the parameters' values back if something goes wrong."""
    tensors = [tensor for place in places if (tensor := place.module._parameters.get(place.leaf)) is not None]
    before = [
        (tensor, (local(tensor) if is_sharded(tensor) else tensor.detach()).clone())
        for tensor in tensors
        if not tensor.is_meta
    ]
    try:
        yield
    except BaseException:
        for tensor, old in before:
            (local(tensor) if is_sharded(tensor) else tensor.detach()).copy_(old)
        raise
