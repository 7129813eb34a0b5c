"""Whole models: `initialize_`, and the `Plan` of what it does."""

from ...recipe.plan import Plan
from .adapter import initialize_
from .layers import TailoredReLU

__all__ = ["Plan", "TailoredReLU", "initialize_"]
