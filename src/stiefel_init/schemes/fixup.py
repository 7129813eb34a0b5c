"""Fixup initialization."""

from __future__ import annotations

from dataclasses import dataclass

from ._position import Position
from ._scheme import Scheme, Start, register
from .scaled_he import ScaledHe
from .zeros import Zeros


@register
@dataclass(frozen=True)
class Fixup(Start):
    """He's weights, times B^(-1/(2k-2)) inside B residual branches of k layers; zeros at their ends and in the head.

    For residual networks without normalization. The scalar biases and multipliers of the paper are parameters that the
    model must have itself; they are left alone.

    Zhang, Dauphin, Ma: Fixup Initialization: Residual Learning Without Normalization (2019).

    >>> str(Fixup().at(Position(branches=16, branch=2))), str(Fixup().at(Position(last=True)))
    ('he-scaled 0.25', 'zeros')
    """

    name = "fixup"
    residual = True

    def at(self, position: Position) -> Scheme:
        if position.ends_branch or position.last:
            return Zeros()
        if position.branch < 2:
            return ScaledHe()
        return ScaledHe(position.branches ** (-1 / (2 * position.branch - 2)))
