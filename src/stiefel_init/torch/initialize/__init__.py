"""Whole models: `initialize_`, and the `Plan` of what it does."""

from ._initialize import initialize_
from ._plan import Plan

__all__ = ["Plan", "initialize_"]
