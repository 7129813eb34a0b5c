"""stiefel-init: weight initialization on the Stiefel manifold for deep ReLU networks.

The core, with NumPy and SciPy alone: draw a member of Õ(m,n), or from any other scheme; check membership; the set's
structure. `stiefel_init.schemes` holds the initializations, `.theory` the analysis, `.torch`, `.jax`, `.keras` and
`.sklearn` the frameworks, `.lab` the experiments.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.errors import StiefelError

if TYPE_CHECKING:
    from .core.check import Membership, check
    from .core.construct import cholesky_factor, complement
    from .core.sample import draw, sample

__version__ = "0.3.0"
__all__ = ["Membership", "StiefelError", "check", "cholesky_factor", "complement", "draw", "sample"]

# Loaded on first use: NumPy takes longer to import than the command line takes to show its help.
_HOME = {
    "Membership": "check",
    "check": "check",
    "cholesky_factor": "construct",
    "complement": "construct",
    "draw": "sample",
    "sample": "sample",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".core.{_HOME[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
