"""Keras 3, on every backend: whole models with `initialize_`, and initializers for the kernels of single layers."""

from ..recipe import Plan
from ._initialize import initialize_
from ._initializer import Initializer, Stiefel

__all__ = ["Initializer", "Plan", "Stiefel", "initialize_"]
