"""Layer-sequential unit variance."""

from __future__ import annotations

from dataclasses import dataclass

from ._position import Position
from ._scheme import Scheme, Start, register
from .orthogonal import Orthogonal


@register
@dataclass(frozen=True)
class LSUV(Start):
    """Haar semi-orthogonal W, then layer by layer W / std(W x) on a batch, std over examples and units.

    Mishkin, Matas: All you need is a good init (2016).

    >>> str(LSUV())
    'lsuv'
    """

    name = "lsuv"
    calibrates = "outputs"

    def at(self, position: Position) -> Scheme:
        return Orthogonal()
