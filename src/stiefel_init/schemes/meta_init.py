"""MetaInit: norms of weights at which gradients change little along themselves."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _validate
from .._errors import StiefelError
from ._position import Position
from ._scheme import Scheme, Start, get, register


@register
@dataclass(frozen=True)
class MetaInit(Start):
    """The weights of `base`, and of each its norm ‖W‖ by signed gradient steps with momentum on the gradient quotient.

    The quotient is the mean of |(g - Hg)/(g + ε sign g) - 1| = |Hg/g|, up to ε, over all parameters: how much a
    gradient step g changes the gradient itself, H the Hessian. It needs a batch of inputs; the targets are drawn, anew
    at each step.

    Dauphin, Schoenholz: MetaInit: Initializing learning by learning to initialize (2019).

    >>> str(MetaInit("xavier", steps=100))
    'meta-init xavier steps=100'
    """

    name = "meta-init"
    calibrates = "quotient"
    base: str = "he"
    steps: int = 500
    rate: float = 0.1
    momentum: float = 0.9
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        base = get(self.base)
        if base.positional or base.residual or base.attention or base.activations or base.calibrates:
            raise StiefelError(
                f"base={self.base!r} looks at a layer's place in its model; give one that starts every layer alike, "
                "such as 'he'."
            )
        _validate.size("steps", self.steps)
        _validate.number("rate", self.rate, above=0, hint="the authors use 0.1")
        _validate.number("momentum", self.momentum, at_least=0, hint="the authors use 0.9")
        _validate.number("epsilon", self.epsilon, above=0, hint="the authors use 1e-5")

    def at(self, position: Position) -> Scheme:
        return get(self.base).at(position)
