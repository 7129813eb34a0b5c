"""What `check_depths` measures of one network: `Point`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The last hidden layer of a network of one depth and start."""

    start: str
    depth: int
    std: float
    """Of what leaves its activation."""
    spread: float
    """How far apart different inputs still are, as `Layer.spread`."""
    active: float | None
    """The fraction of pre-activations above 0."""
    distinct: float | None
    """Effectively distinct units."""
    gradient: float | None
    """The gradient's norm at the first layer over that at the last; None without targets."""
    finding: str
    """The first finding of `diagnose`; empty if the network is healthy."""
