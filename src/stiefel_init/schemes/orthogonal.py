"""Orthogonal initialization."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _validate
from ._scheme import Law, Scheme, register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class Orthogonal(Scheme):
    """gain · W, W Haar semi-orthogonal: the distribution of `torch.nn.init.orthogonal_`.

    Saxe, McClelland, Ganguli: Exact solutions to the nonlinear dynamics of learning in deep linear networks (2014).

    >>> str(Orthogonal(gain=2.0))
    'orthogonal 2'
    """

    name = "orthogonal"
    gain: float = 1.0

    def __post_init__(self) -> None:
        _validate.number("gain", self.gain, hint="√2 suits ReLU")

    def draw(self, source: Source) -> Array:
        matrices = source.semi_orthogonal(aligned=False)
        return matrices if self.gain == 1 else self.gain * matrices

    def law(self, m: int, n: int) -> Law:
        return Law(variance=self.gain**2 / max(m, n))
