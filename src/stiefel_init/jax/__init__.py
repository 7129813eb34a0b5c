"""JAX: whole models of Equinox and Flax with `initialize`; initializers with the contract of `jax.nn.initializers`."""

from ..recipe import Plan
from ._initialize import initialize
from ._initializer import Initializer, initializer, stiefel

__all__ = ["Initializer", "Plan", "initialize", "initializer", "stiefel"]
