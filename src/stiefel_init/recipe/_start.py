"""What a model's weights start as: by the default recipe, or by one scheme for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..core.errors import StiefelError
from ..schemes import Scheme
from .layers import Conv, Weight
from .one_scheme import check_roles, needs_roles, parts_of_scheme
from .roles import Roles
from .rules import Part, parts

StartOf = Callable[[Iterable[Weight]], dict[str, list[Part]]]
"""Weights → the parts of each, by name."""


def start_of(scheme: Scheme | None, conv: Conv, roles: Callable[[], Roles]) -> StartOf | None:
    """The start of a scheme, None for the default recipe; None where every weight has the scheme as it is.

    Raises:
        StiefelError: if the scheme is not made for the model.
    """
    if scheme is None:
        known = roles()
        return lambda weights: parts(weights, known)
    traced = roles() if needs_roles(scheme) or scheme.attention else None
    if traced is not None and needs_roles(scheme):  # attention is known by its names
        check_roles(scheme, traced)
    return (lambda weights: parts_of_scheme(weights, scheme, traced, conv)) if scheme.varies else None


def refuse_torch_only(scheme: Scheme | None) -> None:
    """Refuse a scheme that needs more than the other frameworks' `initialize` finds out about a model."""
    if scheme is None:
        return
    needs = (
        "measures a batch"
        if scheme.calibrates not in ("", "inputs")
        else "looks for attention and its heads"
        if scheme.attention
        else "looks for the gains of residual branches"
        if scheme.zeroes_gains
        else ""
    )
    if needs:
        raise StiefelError(
            f"scheme={str(scheme)!r} {needs}, which only PyTorch's initialize_ does; use another scheme."
        )
