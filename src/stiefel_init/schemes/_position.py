"""Where a layer is in its model: what `Scheme.at` is told."""

from __future__ import annotations

from typing import Literal, NamedTuple

Role = Literal["hidden", "first", "last", "only"]
InAttention = Literal["", "query", "key", "value", "output"]


class Position(NamedTuple):
    """The part that one layer plays.

    >>> Position(first=True).role, Position().role
    ('first', 'hidden')
    """

    first: bool = False
    """Whether it reads the model's input."""
    last: bool = False
    """Whether it makes the model's output."""
    branches: int = 0
    """Residual branches in the model."""
    branch: int = 0
    """Layers in the residual branch that it is in; 0 if it is in none."""
    ends_branch: bool = False
    """Whether it is the last layer of that branch."""
    gained: bool = False
    """Whether a parameter scales that branch: the model's own gain, or the weight of a normalization at its end."""
    projection: InAttention = ""
    """What it makes in an attention; `""` if it is in none."""
    layers: int = 0
    """Self-attentions in its stack of transformer blocks; of an embedding, in the largest stack; 0 if it is in none."""
    crossed: bool = False
    """Whether those blocks attend to another sequence too, as in a decoder."""
    table: bool = False
    """Whether it is an embedding."""
    row: int = 1
    """Layers of the row it is in, one after the other with nothing but activations between them; without the ends."""
    units: int = 0
    """Its outputs; 0 if not known, as `inputs`."""
    inputs: int = 0
    activation: str = ""
    """What follows it; `""` if that is not known."""

    @property
    def role(self) -> Role:
        """`"only"`, `"first"`, `"last"` or `"hidden"`."""
        return ("only" if self.last else "first") if self.first else "last" if self.last else "hidden"
