"""`audit`: which law each parameter of a model holds, and which look as if nobody had initialized them."""

from ._audit import Audit, audit

__all__ = ["Audit", "audit"]
