"""Looks-linear initialization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from .._errors import unknown
from ._haar import haar
from ._position import Position, Role
from ._scheme import Scheme, register
from ._source import Array, Source

ROLES: tuple[Role, ...] = get_args(Role)


@register
@dataclass(frozen=True)
class LooksLinear(Scheme):
    """First layer (V; -V), hidden layers (V, -V; -V, V), last layer (V, -V), with V Haar semi-orthogonal.

    Units come in pairs that hold x⁺ and x⁻, so a plain ReLU network is exactly linear, and isometric where V is square.
    V has half the units on each side that is paired; of an odd number of units, the last one has zero weights.

    Balduzzi, Frean, Leary, Lewis, Ma, McWilliams: The Shattered Gradients Problem (2017).

    >>> str(LooksLinear("first"))
    'looks-linear first'
    """

    name = "looks-linear"
    positional = True
    activations = ("relu",)
    role: Role = "hidden"

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise unknown("role", self.role, ROLES)

    def at(self, position: Position) -> Scheme:
        return LooksLinear(position.role)

    def draw(self, source: Source) -> Array:
        precise = source.precise()
        xp, m, n = precise.xp, source.m, source.n
        above, beside = self.role in ("hidden", "first"), self.role in ("hidden", "last")
        rows, columns = m // 2 if above else m, n // 2 if beside else n
        none = 0 * precise.normals(m, n)
        if not (rows and columns):
            return none
        v = haar(precise, rows, columns)
        if above:
            v = xp.concatenate([v, -v, none[:, : m - 2 * rows, :columns]], -2)
        if beside:
            v = xp.concatenate([v, -v, none[:, :, : n - 2 * columns]], -1)
        return v
