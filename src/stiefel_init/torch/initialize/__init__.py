"""Whole models: `initialize_`, and the `Plan` of what it does."""

from ...recipe import Plan
from ._initialize import initialize_
from ._tailored import TailoredReLU

__all__ = ["Plan", "TailoredReLU", "initialize_"]
