"""The rows of a plan in words."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from ..schemes import Blend, MimeticFactor, Random, Scheme
from .layers import Constant, Matrices, Shape
from .plan import NEITHER, Row
from .rules import Part

EMBEDDING = Random(1.0)  # as torch draws its own


def row(name: str, shape: Shape, parts: list[Part]) -> Row:
    """One row of the plan for all the parts of a weight."""
    part = parts[0]
    if len(parts) > 1:
        kinds = Counter((part.scheme, part.matrices.m, part.matrices.n) for part in parts)
        counts = {kind: f"{count} of " if count > 1 else "" for kind, count in kinds.items()}
        text = ", ".join(f"{_label(scheme)} {counts[scheme, m, n]}{m}×{n}" for scheme, m, n in kinds)
        side = NEITHER if any(map(_neither, (scheme for scheme, _, _ in kinds))) else "both"
    else:
        text, side = described(part.matrices, part.scheme)
    return Row(name, shape, text, side, part.reason)


@lru_cache
def described(chosen: Matrices | Constant, scheme: Scheme) -> tuple[str, str]:
    """What is done and which side is orthonormal, for the plan."""
    if isinstance(chosen, Constant):
        if chosen.ones is not None:
            return "zeros, the forget gate ones", NEITHER
        return {0.0: "zeros", 1.0: "ones"}.get(chosen.value, f"all {chosen.value:g}"), NEITHER
    if scheme is EMBEDDING:
        return "N(0, 1)", NEITHER
    m, n = chosen.m, chosen.n
    many = f"{chosen.count} of " if chosen.count > 1 else ""
    centre = " at the centre" if chosen.tap else ""
    scale = (
        "" if chosen.scale == 1 else f" / {1 / chosen.scale:.4g}" if 0 < chosen.scale < 1 else f" × {chosen.scale:.4g}"
    )
    side = NEITHER if _neither(scheme) else "rows" if m < n else "columns" if m > n else "both"
    return f"{_label(scheme.resolve(m, n))} {many}{m}×{n}{centre}{scale}", side


def _neither(scheme: Scheme) -> bool:
    return scheme.entrywise or isinstance(scheme, Blend | MimeticFactor)


def _label(scheme: Scheme) -> str:
    """The scheme's text with numbers to three digits; blends and factors in words."""
    if isinstance(scheme, MimeticFactor):
        return f"mimetic {scheme.projection}"
    if isinstance(scheme, Blend):
        return "patches" if scheme.spread >= 1 else f"permutation + {scheme.spread:.3g} patches"
    return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3g}", str(scheme))
