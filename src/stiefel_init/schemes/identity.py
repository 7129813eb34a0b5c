"""The identity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._grouped import Grouped, one_in_each_column
from ._scheme import register
from ._source import Array, Source


@register
@dataclass(frozen=True)
class Identity(Grouped):
    """The identity; for q = kp, row i of the p × q form has k entries 1/√k, in columns ki … ki+k-1.

    >>> str(Identity())
    'identity'
    """

    name = "identity"

    def wide(self, source: Source, p: int, q: int) -> Array:
        return one_in_each_column(source, source.array(np.arange(q) // (q // p)), p, q)
