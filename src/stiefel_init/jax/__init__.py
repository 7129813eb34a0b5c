"""JAX: whole models of Equinox and Flax with `initialize`; initializers with the contract of `jax.nn.initializers`."""

from ..core.errors import missing
from ..recipe.plan import Plan

try:
    from .adapter import initialize
    from .initializers import Initializer, initializer, stiefel
    from .rates import lr_scales
except ModuleNotFoundError as error:
    raise missing(error, "stiefel_init.jax", "jax", "jax") from None

__all__ = ["Initializer", "Plan", "initialize", "initializer", "lr_scales", "stiefel"]
