"""SkipInit and ReZero: residual branches that start at zero."""

from __future__ import annotations

from dataclasses import dataclass

from ._position import Position
from ._scheme import Scheme, Start, register
from .he import He
from .zeros import Zeros


@register
@dataclass(frozen=True)
class SkipInit(Start):
    """He's weights, and every residual branch times zero, x + 0 · f(x): the network starts as its skip connections.

    The zero is the model's own gain of the branch, a parameter that multiplies it; without one, the weight of the
    normalization that ends the branch; without one, the branch's last layer.

    De, Smith: Batch Normalization Biases Residual Blocks Towards the Identity Function in Deep Networks (2020).
    Bachlechner and others: ReZero is All You Need (2021).

    >>> str(SkipInit().at(Position(ends_branch=True))), str(SkipInit().at(Position(ends_branch=True, gained=True)))
    ('zeros', 'he')
    """

    name = "skip-init"
    residual = True
    zeroes_gains = True

    def at(self, position: Position) -> Scheme:
        return Zeros() if position.ends_branch and not position.gained else He()
