"""Initializations of whole models: of residual networks alone, or calibrated on a batch of inputs."""

from __future__ import annotations

from .base import Position, Scheme, WholeModel, register
from .entrywise import He, ScaledHe, Zeros
from .orthogonal import Orthogonal


@register
class Fixup(WholeModel):
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


@register
class SkipInit(WholeModel):
    """He's weights, and zeros at the end of every residual branch: the network starts as its skip connections.

    For branches that no normalization ends. The authors multiply each by a parameter that starts at zero; one that your
    model has is left alone.

    De, Smith: Batch Normalization Biases Residual Blocks Towards the Identity Function in Deep Networks (2020).
    Bachlechner and others: ReZero is All You Need (2021).

    >>> str(SkipInit().at(Position(ends_branch=True))), str(SkipInit().at(Position()))
    ('zeros', 'he')
    """

    name = "skip-init"
    residual = True

    def at(self, position: Position) -> Scheme:
        return Zeros() if position.ends_branch else He()


@register
class LSUV(WholeModel):
    """Haar semi-orthogonal W, then layer by layer W / std(W x) on a batch, std over examples and units.

    Mishkin, Matas: All you need is a good init (2016).

    >>> str(LSUV())
    'lsuv'
    """

    name = "lsuv"
    calibrates = "outputs"

    def at(self, position: Position) -> Scheme:
        return Orthogonal()
