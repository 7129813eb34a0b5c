"""How a training goes, layer by layer: `watch`, and the `Watch` it returns."""

from ._judge import Event
from ._watch import Watch, watch

__all__ = ["Event", "Watch", "watch"]
