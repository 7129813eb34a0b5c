"""What a sample needs to know about a model: `Structure`, kept from sample to sample until the model changes."""

from __future__ import annotations

from operator import is_
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..diagnosis._weights import weight_layers
from ..initialize.wrappers import unwrapped_names

BIASES = ("bias", "bias_ih_l0", "bias_ih")


class Structure:
    """The layers of a model with their names and weights, and the modules around them."""

    def __init__(self, model: nn.Module) -> None:
        modules, self._parts = _parts_of(model)
        self._kinds = [*map(type, self._parts)]
        self.layers = _layers(modules)
        self.names = {module: name for name, module in self.layers}
        self.around = _around(model, set(self.names))
        self.weights = {module: weights_of(module) for module in self.names}
        self.known = {id(weight) for weights in self.weights.values() for weight in weights}
        self.sharded = {module for module, weights in self.weights.items() if any(map(is_sharded, weights))}
        self.biased = {module for module in self.names if bias_of(module) is not None}
        self.optimized = False
        """Whether one of torch's optimizers was seen to step these weights."""

    def holds(self, model: nn.Module) -> bool:
        """Whether the model is still what it was: the same modules and parameters, at the same places."""
        _, parts = _parts_of(model)
        same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        return same and all(map(is_, map(type, parts), self._kinds))  # a lazy parameter changes its type


def _parts_of(model: nn.Module) -> tuple[list[tuple[str, nn.Module]], list[Any]]:
    modules = list(model.named_modules())
    parts: list[Any] = []
    for _, module in modules:
        parts.append(module)
        parts += module._parameters.values()
    return modules, parts


def _layers(modules: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    plain = unwrapped_names(modules)
    layers = weight_layers(modules)
    inside = {below for _, layer in layers for below in list(layer.modules())[1:]}
    return [(plain.get(name, name) or "model", layer) for name, layer in layers if layer not in inside]


def _around(model: nn.Module, layers: set[nn.Module]) -> list[nn.Module]:
    """The model, and what has layers in it without being one."""
    found = {model: None}

    def has_layers(module: nn.Module) -> bool:
        if module in layers:
            return True
        below = [has_layers(child) for child in module.children()]
        if any(below):
            found[module] = None
        return any(below)

    has_layers(model)
    return list(found)


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    """A layer's weights, trained or not."""
    parameters = module.parameters() if module._modules else module._parameters.values()
    known = [p for p in parameters if p is not None and not is_lazy(p) and not p.is_meta]
    return [p for p in known if p.ndim >= 2 and p.is_floating_point()]


def is_sharded(parameter: Any) -> bool:
    """Whether this rank holds a part of it only."""
    return type(parameter) not in (Tensor, nn.Parameter) and hasattr(parameter, "to_local")


def local(parameter: Tensor) -> Tensor:
    """The values on this rank."""
    value: Any = parameter.detach()
    return value.to_local() if is_sharded(value) else value


def bias_of(module: nn.Module) -> Any:
    """A layer's first bias, None if it has none."""
    return next((bias for name in BIASES if (bias := module._parameters.get(name)) is not None), None)
