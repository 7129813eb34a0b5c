"""The initialization of the maximal update parametrization."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _validate
from ._position import Position
from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class MuP(Scheme):
    """W_ij ~ N(0, gain²/fan_in), in the last layer N(0, gain²/fan_in²).

    Only the start is μP's: its learning rates, 1/fan_in for hidden and last layers under Adam, are for your optimizer.

    Yang, Hu and others: Tensor Programs V, Table 3 (2022).

    >>> str(MuP().at(Position(last=True)))
    'mup power=2'
    """

    name = "mup"
    entrywise = True
    positional = True
    gain: float = 1.0
    power: int = 1
    """Of 1/fan_in in the variance."""

    def __post_init__(self) -> None:
        _validate.number("gain", self.gain, hint="√2 suits ReLU")

    def at(self, position: Position) -> Scheme:
        return MuP(self.gain, 2) if position.last else self

    def draw(self, source: Source) -> Array:
        return self.gain * source.n ** (-self.power / 2) * source.normals(source.m, source.n)

    def law(self, m: int, n: int) -> Law:
        return Law(variance=self.gain**2 / n**self.power)
