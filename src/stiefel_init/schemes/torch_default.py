"""PyTorch's own initialization of linear layers and convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._scheme import Scheme, register
from ._source import Array, Source
from .uniform import Uniform


@register
@dataclass(frozen=True)
class TorchDefault(Scheme):
    """W_ij and b_i ~ U(±1/√fan_in): `kaiming_uniform_` with a = √5, as `torch.nn.Linear` and `Conv2d` start.

    Biases of attention and recurrent layers are zero.

    PyTorch: `reset_parameters` of its linear layers and convolutions.

    >>> str(TorchDefault())
    'torch'
    """

    name = "torch"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return math.sqrt(1 / source.n) * source.uniforms(source.m, source.n)

    def bias(self, fan_in: int) -> Scheme:
        return Uniform(1 / math.sqrt(max(fan_in, 1)))
