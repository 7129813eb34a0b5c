"""Keras 3, on every backend: whole models with `initialize_`, and initializers for the kernels of single layers."""

from ..core.errors import missing
from ..recipe.plan import Plan

try:
    from .adapter import initialize_
    from .initializers import Initializer, Stiefel
    from .rates import scale_rates
except ModuleNotFoundError as error:
    raise missing(error, "stiefel_init.keras", "keras", "keras") from None

__all__ = ["Initializer", "Plan", "Stiefel", "initialize_", "scale_rates"]
