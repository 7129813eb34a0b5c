"""The default recipe of `initialize_`, as a scheme for plain networks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .base import Array, Position, Scheme, Source, Start, register
from .entrywise import Offsets
from .level import level
from .on_set import Centred, Rotation, Stiefel


@register
@dataclass(frozen=True)
class Recipe(Start):
    """What `initialize_` does by default: members of the set inside, and ends of another kind.

    Square layers in a row are small rotations, other hidden layers uniform members; a first layer with more units than
    inputs is lifted, and its biases set the units apart; before many smooth activations they raise the level, too. The
    last layer does not see the common level. For whole models of any kind use `initialize_(model)`, of which this is
    the part for plain networks of linear layers: `"recipe"` is what compares it with other schemes.

    >>> str(Recipe().at(Position(row=100, units=64, inputs=64))), str(Recipe().at(Position(last=True)))
    ('rotation 0.03', 'centred')
    """

    name = "recipe"
    positional = True

    def at(self, position: Position) -> Scheme:
        m, n = position.units, position.inputs
        if position.last:
            return Centred()
        if position.first:
            raised = level(position.activation, position.row + 1)
            return Lifted(raised) if m > n else Raised(raised) if raised else Stiefel()
        return Rotation.in_a_row(position.row) if position.row > 1 and m == n else Stiefel()


@dataclass(frozen=True)
class Lifted(Scheme):
    """√(m/2n) times a member of Õ(m,n), m > n, and biases as wide as the signal behind it, for inputs of deviation 1.

    For a single input, whose units differ in nothing else, the biases are twice as wide: units bend at -b/w, and have
    to cover the range of the input.

    >>> str(Lifted().bias(fan_in=1))
    'offsets 1.4142135623730951'
    """

    name = "lifted"
    level: float = 0.0
    """Of the biases."""

    def scale(self, m: int, n: int) -> float:
        """Of the member."""
        return math.sqrt(m / (2 * n))

    def draw(self, source: Source) -> Array:
        return self.scale(source.m, source.n) * Stiefel().draw(source)

    def bias(self, fan_in: int) -> Scheme:
        return Offsets(math.sqrt(2 if fan_in == 1 else 0.5), self.level)


@dataclass(frozen=True)
class Raised(Stiefel):
    """A member of Õ(m,n), and biases that raise all units by `level`."""

    name = "raised"
    level: float = 0.0

    def bias(self, fan_in: int) -> Scheme:
        return Offsets(0.0, self.level)
