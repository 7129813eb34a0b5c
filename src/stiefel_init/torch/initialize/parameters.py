"""A model's parameters under all their names: `TorchRef`."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ...core.errors import StiefelError
from ...recipe.attention import QUERIES
from ...recipe.layers import ParamRef
from .wrappers import first_of, unwrapped_names


@dataclass(slots=True, eq=False)
class TorchRef(ParamRef):
    """A parameter under one of its names; or what a parametrization computes, under the name that it stands for.

    The shape of a lazy parameter is (). The key is also that of a parametrization and its parts. Of a usual parameter
    in memory of its own it is its address, a positive number; others have no such key.
    """

    module: nn.Module
    leaf: str
    tensor: Tensor
    parametrization: parametrize.ParametrizationList | None = None
    heads: int | None = None
    """Of a weight that holds an attention's query: its heads, where they are known."""

    @property
    def relation(self) -> str:
        """What it is to its first name, where it has several."""
        return "part of" if isinstance(self.module, parametrize.ParametrizationList) else "tied to"

    @property
    def linked(self) -> bool:
        """Whether it may take the matrices of another weight."""
        return self.parametrization is None

    @property
    def empty(self) -> bool:
        """Whether it is on the meta device."""
        return self.tensor.is_meta


def parameters_of(modules: list[tuple[str, nn.Module]]) -> list[TorchRef]:
    """All parameters under all their names, in the order of `named_parameters`."""
    if (
        quantized := first_of(modules, lambda kind: re.match(r"torch\.ao\.nn.*quantized", kind.__module__))
    ) is not None:
        raise StiefelError(f"{quantized} is a quantized layer; initialize the model before quantizing it.")
    inner, by_name = unwrapped_names(modules), dict(modules)
    held: dict[int, Tensor] = {}
    refs: list[TorchRef] = []
    for prefix, module in modules:
        parameters, parametrized = module._parameters, "parametrizations" in module._modules
        if not (parameters or parametrized):
            continue
        dot = f"{prefix}." if prefix else ""
        inner_dot = f"{inner[prefix]}.".removeprefix(".") if inner else dot
        if parametrized:
            for leaf, steps in module.parametrizations.items():  # type: ignore[operator, union-attr]
                with _evaluating(steps):
                    value = getattr(module, leaf).detach()
                names, shape = (dot + leaf, inner_dot + leaf), tuple(value.shape)
                refs.append(TorchRef(*names, -id(steps), shape, module, leaf, value, steps))
        part_of = -id(module) if isinstance(module, parametrize.ParametrizationList) else 0
        for leaf, tensor in parameters.items():
            if tensor is None:
                continue
            name = dot + leaf
            stream = inner_dot + leaf if inner else name
            usual = type(tensor) is nn.Parameter
            shape = tuple(tensor.shape) if usual or not is_lazy(tensor) else ()
            key = part_of or (_identity(tensor, held) if usual else -id(tensor))
            heads = None
            if leaf == "in_proj_weight":
                heads = _heads(module)
            elif leaf == "weight" and prefix.rpartition(".")[2] in QUERIES:
                heads = _heads(by_name[prefix.rpartition(".")[0]])
            refs.append(TorchRef(name, stream, key, shape, module, leaf, tensor, None, heads))
    return refs


def _heads(attention: nn.Module) -> int | None:
    """The heads of an attention, where it tells them."""
    for holder in (attention, getattr(attention, "config", None)):
        for attribute in ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead", "heads"):
            if isinstance(heads := getattr(holder, attribute, None), int) and heads > 0:
                return heads
    return None


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, in which no parametrization advances its buffers."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _identity(tensor: Tensor, held: dict[int, Tensor]) -> Hashable:
    """The same for two parameters with the same entries of one storage. `held` has the first at each address."""
    if tensor.layout is not torch.strided or not (address := tensor.data_ptr()):
        return -id(tensor)  # without entries, or not in memory; no address is negative
    if (first := held.setdefault(address, tensor)) is tensor or _layout(first) == (layout := _layout(tensor)):
        return address
    return address, layout


def _layout(tensor: Tensor) -> tuple[Hashable, ...]:
    return tensor.shape, tensor.stride()


def is_uninitialized(tensor: Tensor) -> bool:
    return type(tensor) is not nn.Parameter and is_lazy(tensor)
