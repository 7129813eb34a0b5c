"""What a model's weights start as: by the default recipe, or by one scheme for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .._errors import StiefelError
from ..schemes import Scheme
from ._matrices import Conv
from ._one_scheme import check_roles, needs_roles, parts_of_scheme
from ._parts import Part, Weight, parts
from ._roles import Roles

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
    traced = roles() if needs_roles(scheme) else None
    if traced is not None:
        check_roles(scheme, traced)
    return (lambda weights: parts_of_scheme(weights, scheme, traced, conv)) if scheme.varies else None


def refuse_calibration(scheme: Scheme | None) -> None:
    """Refuse a scheme that measures a batch, in frameworks where that is not written."""
    if scheme is not None and scheme.calibrates == "outputs":
        raise StiefelError(
            f"scheme={str(scheme)!r} measures a batch, which only PyTorch's initialize_ does; use another scheme."
        )
