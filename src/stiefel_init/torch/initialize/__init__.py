"""Whole models: `initialize_`, and the `Plan` of what it does."""

from ...recipe import Plan
from ._initialize import initialize_

__all__ = ["Plan", "initialize_"]
