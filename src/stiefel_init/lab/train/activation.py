"""Activations of a stack and their derivatives, in place where the output tells the derivative; and as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...theory import tailored_slope
from ...theory.moments import LEAKY_SLOPE, SELU_ALPHA, SELU_SCALE, resolve
from ...theory.tailored import tailored_scale
from ...torch import TailoredReLU

_aten = torch.ops.aten
MODULES: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "prelu": nn.PReLU, "elu": nn.ELU, "selu": nn.SELU, "tanh": nn.Tanh,
    "gelu": nn.GELU, "silu": nn.SiLU,
}  # fmt: skip
"""PyTorch's own modules, which `diagnose` and `watch` recognise."""


class Applied(NamedTuple):
    """An activation as the graph engine applies it; `slope` is PReLU's, of shape (E, 1, 1), else None."""

    forward: Callable[[Tensor, Tensor | None], Tensor]
    """(pre-activations, slope) -> activations; in place, unless the input is kept."""
    backward: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """(derivative by the activations, what was kept, slope) -> derivative by the pre-activations."""
    keeps_input: bool = False
    """Whether the backward pass needs the pre-activations; else the activations do."""


def _where_positive(y: Tensor, values: Tensor, slope: Tensor | None) -> Tensor:
    assert slope is not None
    return torch.where(y > 0, values, values * slope)


_BUILT_IN: dict[str, Applied] = {
    "relu": Applied(lambda y, _: y.relu_(), lambda d, x, _: _aten.threshold_backward(d, x, 0)),
    "leaky_relu": Applied(
        lambda y, _: F.leaky_relu_(y, LEAKY_SLOPE), lambda d, x, _: _aten.leaky_relu_backward(d, x, LEAKY_SLOPE, True)
    ),
    "prelu": Applied(  # its slope may turn negative
        lambda y, slope: _where_positive(y, y, slope), lambda d, y, slope: _where_positive(y, d, slope), True
    ),
    "elu": Applied(lambda y, _: F.elu_(y), lambda d, x, _: _aten.elu_backward(d, 1.0, 1.0, 1.0, True, x)),
    "selu": Applied(
        lambda y, _: torch.selu_(y), lambda d, x, _: _aten.elu_backward(d, SELU_ALPHA, SELU_SCALE, 1.0, True, x)
    ),
    "tanh": Applied(lambda y, _: y.tanh_(), lambda d, x, _: _aten.tanh_backward(d, x)),
    "gelu": Applied(lambda y, _: F.gelu(y), lambda d, y, _: _aten.gelu_backward(d, y), True),
    "silu": Applied(lambda y, _: F.silu(y), lambda d, y, _: _aten.silu_backward(d, y), True),
}


def applied(name: str, depth: int) -> Applied:
    """The activation of that name, in a network with `depth` hidden layers.

    Any that `theory.activations` lists, those of the user too; `tat` is √(2/(1+a²)) · LeakyReLU_a.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name == "tat":
        a = tailored_slope(depth)
        scale = tailored_scale(a)
        return Applied(
            lambda y, _: F.leaky_relu_(y, a).mul_(scale),
            lambda d, x, _: _aten.leaky_relu_backward(d * scale, x, a, True),
        )
    function: Any = resolve(name, {})
    return Applied(lambda y, _: function(y, torch), lambda d, y, _: d * function.slope(y, torch), keeps_input=True)


class Pointwise(nn.Module):
    """An activation that has no module of its own in PyTorch, or PReLU with a slope that is trained elsewhere."""

    def __init__(self, name: str, depth: int, slope: Tensor | None = None) -> None:
        super().__init__()
        self._apply_to: Any = applied(name, depth).forward
        self._slope = slope

    def forward(self, y: Tensor) -> Tensor:
        """f(y)."""
        result: Tensor = self._apply_to(y.clone().unsqueeze(0), self._slope)
        return result.squeeze(0)


def module(name: str, depth: int, slope: Tensor | None = None) -> nn.Module:
    """The activation of that name as a module, in a network with `depth` hidden layers."""
    if name in MODULES and slope is None:
        return MODULES[name]()
    return TailoredReLU(depth) if name == "tat" else Pointwise(name, depth, slope)
