"""The default recipe for whole models, for every framework: what each layer starts as, and the plan that says so."""

from .plan import Plan, Row

__all__ = ["Plan", "Row"]
