"""The default recipe for whole models, for every framework: what each layer starts as, and the plan that says so.

The plan is imported when it is asked for: the scheme `recipe` is made of `rules`, and `plan` uses the schemes.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plan import Plan, Row

__all__ = ["Plan", "Row"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import plan

        return getattr(plan, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
