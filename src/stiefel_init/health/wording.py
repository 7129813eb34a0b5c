"""Numbers in words, for the sentences of rules."""

from __future__ import annotations

import math
from collections.abc import Sequence


def times(factor: float, digits: int = 0) -> str:
    """ "1,200 times"."""
    if math.isinf(factor):
        return "infinitely"
    return f"{factor:,.{digits}f} times" if factor < 1e6 else f"{factor:.0e} times"


def percent(fraction: float) -> str:
    """ "99.9 %"."""
    return f"{100 * fraction:.0f} %" if fraction < 0.995 or fraction == 1 else f"{100 * fraction:.1f} %"


def per_layer(layers: int, factor: float) -> str:
    """ ", a factor 0.7 per layer", where `factor` is that from the first of the layers to the last."""
    if layers < 3 or not 0 < factor < math.inf:
        return ""
    return f", a factor {factor ** (1 / (layers - 1)):.2g} per layer"


def listed(parts: Sequence[str]) -> str:
    """ "a, b, and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def capital(text: str) -> str:
    """The text as a sentence begins."""
    return text[:1].upper() + text[1:]
