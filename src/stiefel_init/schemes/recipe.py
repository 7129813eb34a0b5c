"""The default recipe of `initialize_`, as a scheme for plain networks; `recipe.rules` decides."""

from __future__ import annotations

from ..recipe.roles import Role
from ..recipe.rules import Lifted, Raised, linear
from .base import Position, Scheme, WholeModel, register

__all__ = ["Lifted", "Raised", "Recipe"]


@register
class Recipe(WholeModel):
    """What `initialize_` does by default: members of the set inside, and ends of another kind.

    Square layers in a chain are small rotations, other hidden layers uniform on the set; a first layer with more units
    than inputs is lifted, and its biases set the units apart; before many smooth activations they raise the level, too.
    The last layer does not see the common level. For whole models of any kind use `initialize_(model)`, of which this
    is what plain networks of linear layers get: `"recipe"` is what compares it with other schemes.

    >>> str(Recipe().at(Position(row=100, units=64, inputs=64))), str(Recipe().at(Position(last=True)))
    ('rotation 0.03', 'centred')
    """

    name = "recipe"
    positional = True

    def at(self, position: Position) -> Scheme:
        activation = position.activation or "relu"  # of what is not known, the usual
        role = Role(
            stem="by its position" if position.first else "",
            head="by its position" if position.last else "",
            chain=position.row,
            activation=None if activation == "identity" else activation,
        )
        return linear(position.units, position.inputs, role)[0]
