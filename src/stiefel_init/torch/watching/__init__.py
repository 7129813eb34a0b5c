"""How a training goes, layer by layer: `watch`, and the `Watch` it returns."""

from ...health.judge import Event
from .watch import Watch, watch

__all__ = ["Event", "Watch", "watch"]
