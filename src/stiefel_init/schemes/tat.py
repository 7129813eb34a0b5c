"""The weights of tailored activation transformations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class TAT(Scheme):
    """max(1, √(m/n)) · W, W Haar semi-orthogonal, for networks whose activation is √(2/(1+a²)) · LeakyReLU_a.

    The slope a makes the correlation of two orthogonal inputs 0.9 at the end of the network: `theory.tailored_slope`.
    Inputs are to have mean square 1; where they are known, the first layer is divided by their root mean square.

    Zhang, Botev, Martens: Deep Learning without Shortcuts (2022).

    >>> str(TAT())
    'tat'
    """

    name = "tat"
    activations = ("tat",)
    calibrates = "inputs"

    def draw(self, source: Source) -> Array:
        matrices = source.semi_orthogonal(aligned=False)
        gain = math.sqrt(max(1.0, source.m / source.n))
        return matrices if gain == 1 else gain * matrices

    def law(self, m: int, n: int) -> Law:
        return Law(variance=1 / n)
