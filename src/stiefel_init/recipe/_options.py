"""The options that initializing a model has in every framework: one scheme or the recipe, and patterns of names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, get_args

from ..core.errors import StiefelError, unknown
from ..core.sample import Member, member_scheme
from ..schemes import DeltaOrthogonal, Scheme, SchemeName, Stiefel, get
from ..schemes import Recipe as AsScheme
from .layers import CONV_MODES, Conv
from .one_scheme import needs_roles

Recipe = Literal["best", "paper"]
RECIPES: tuple[Recipe, ...] = get_args(Recipe)


class Named(Protocol):
    """A parameter under one of its names."""

    @property
    def name(self) -> str: ...
    @property
    def stream(self) -> str:
        """The name of its random numbers."""

    @property
    def key(self) -> Hashable:
        """The same under all its names."""


def chosen_scheme(
    scheme: SchemeName | Scheme | None,
    recipe: Recipe | None,
    conv: Conv | None = None,
    member: Member = "uniform",
    spread: float = 0.1,
    *,
    ends: Iterable[Any] = (),
) -> Scheme | None:
    """The scheme for every layer; None for the default recipe, to which the options `ends` belong."""
    if recipe is not None and recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    if conv is not None and conv not in CONV_MODES:
        raise unknown("conv", conv, CONV_MODES)
    if scheme is not None and get(scheme) == AsScheme():
        if recipe == "paper":
            raise StiefelError("scheme='recipe' is recipe='best'; leave out recipe='paper'.")
        scheme = None
    as_member = member_scheme(member, spread)
    everywhere = scheme is not None or conv is not None or member != "uniform"
    if recipe == "best" and everywhere:
        raise StiefelError("recipe='best' chooses for every layer by itself; leave out scheme, conv and member.")
    chosen = get("stiefel" if scheme is None else scheme)
    if recipe == "paper" and chosen != Stiefel():
        raise StiefelError(f"recipe='paper' is scheme='stiefel' in every layer; leave out scheme={scheme!r}.")
    if member != "uniform":
        if chosen != Stiefel():
            raise StiefelError(f"member={member!r} belongs to scheme='stiefel'; leave it out for scheme={scheme!r}.")
        chosen = as_member
    if not everywhere and recipe != "paper":
        return None
    looks = needs_roles(chosen) or chosen.calibrates or chosen.attention
    if any(option is not None for option in ends) and not looks:
        raise StiefelError("inputs, stem and head belong to recipe='best'; leave them out where every layer is alike.")
    if conv == "flatten" and isinstance(chosen, DeltaOrthogonal):
        raise StiefelError("scheme='delta-orthogonal' fills a kernel's centre; leave out conv='flatten'.")
    return chosen


def matching(option: str, places: Sequence[Named], patterns: str | Iterable[str]) -> set[Hashable]:
    """The keys of the parameters that a pattern matches, under any of their names."""
    matches: set[Hashable] = set()
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        if not isinstance(pattern, str):
            raise StiefelError(
                f"{option} has {pattern!r}, a {type(pattern).__name__}; give patterns of parameter names."
            )
        matched = {place.key for place in places if fnmatchcase(place.name, pattern) or place.stream == pattern}
        if not matched:
            names = ", ".join(repr(place.name) for place in places[:3])
            raise StiefelError(
                f"{option} pattern {pattern!r} matches no parameter; the names begin "
                f"with {names or 'nothing, for there are none'}."
            )
        matches |= matched
    return matches
