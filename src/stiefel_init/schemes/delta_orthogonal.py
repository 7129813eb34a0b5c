"""Delta-orthogonal initialization."""

from __future__ import annotations

from dataclasses import dataclass

from ._scheme import register
from .orthogonal import Orthogonal


@register
@dataclass(frozen=True)
class DeltaOrthogonal(Orthogonal):
    """gain · W at the centre of a kernel and zeros elsewhere, W Haar semi-orthogonal.

    What `orthogonal` does with `conv="delta"`, under the name it has in its paper.

    Xiao, Bahri, Sohl-Dickstein, Schoenholz, Pennington: Dynamical Isometry and a Mean Field Theory of CNNs (2018).

    >>> str(DeltaOrthogonal(2.0))
    'delta-orthogonal 2'
    """

    name = "delta-orthogonal"
