"""`Scheme`, an initialization as a value, and the registry of all of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from .._errors import StiefelError, unknown
from ._position import Position
from ._source import Array, Source

SchemeName = (
    Literal["stiefel", "lee", "he", "xavier", "orthogonal", "random", "permutation", "identity", "rotation"] | str
)
"""A registered name, followed by any parameters that differ from their defaults: `"rotation 0.03"`."""


class Law(NamedTuple):
    """How a scheme's m × n weights act on a signal, for `theory.propagate`.

    >>> get("he").law(64, 100)
    Law(aligned=False, variance=0.02, non_negative=False)
    """

    aligned: bool = False
    """Members of Õ(m,n): √(n/m) times the mean, √min(n/m, 1) times the standard deviation."""
    variance: float = 0.0
    """Otherwise: Var W_ij of weights with mean zero."""
    non_negative: bool = False
    """Members without negative entries, so that no ReLU clips a signal that is already non-negative."""


@dataclass(frozen=True)
class Scheme(ABC):
    """An initialization: a distribution of m × n weight matrices, and how to draw from it.

    A subclass is a frozen dataclass. Its fields are the distribution's parameters, each a number or a word with a
    default; `register` makes it available by name to `initialize_`, `diagnose`, the command line and every framework.

    >>> @register
    ... @dataclass(frozen=True)
    ... class Small(Scheme):
    ...     name = "small"
    ...     entrywise = True
    ...     std: float = 0.02
    ...
    ...     def draw(self, source: Source) -> Array:
    ...         return self.std * source.normals(source.m, source.n)
    >>> get("small 0.5"), forget("small")
    (Small(std=0.5), None)
    """

    name: ClassVar[str]
    entrywise: ClassVar[bool] = False
    """Whether entries are independent, so that a convolution's whole kernel is filled; otherwise it holds a matrix."""
    positional: ClassVar[bool] = False
    """Whether `at` looks at a layer's position, so that whole models are traced first."""
    residual: ClassVar[bool] = False
    """Whether it is for residual networks alone."""
    activations: ClassVar[tuple[str, ...]] = ()
    """The activations it is made for, if it works with no other."""
    calibrates: ClassVar[Literal["", "inputs", "outputs"]] = ""
    """What a batch is used for: `"inputs"`, to give them mean square 1; `"outputs"`, of every layer deviation 1."""

    @abstractmethod
    def draw(self, source: Source) -> Array:
        """Draw `source.count` matrices.

        Args:
            source: Random numbers, and the sizes m and n.

        Returns:
            An array of shape (count, m, n), of the source's framework.
        """

    def at(self, position: Position) -> Scheme:
        """The scheme of one layer of a model.

        Args:
            position: The part that the layer plays.

        Returns:
            Itself, unless layers differ.
        """
        return self

    def bias(self, fan_in: int) -> Scheme | None:
        """How the biases of a linear layer or a convolution start, as m × 1 matrices.

        Args:
            fan_in: That of the layer's weight.

        Returns:
            None for zeros.
        """
        return None

    @property
    def embeddings(self) -> Scheme | None:
        """How embeddings start; None to leave them alone."""
        return None

    @property
    def varies(self) -> bool:
        """Whether layers of a model differ in more than their shape, or biases are drawn too."""
        kind = type(self)
        return kind.at is not Scheme.at or kind.bias is not Scheme.bias

    def law(self, m: int, n: int) -> Law:
        """How m × n weights act on a signal.

        Args:
            m: Outputs.
            n: Inputs.

        Returns:
            The law that `theory.propagate` uses.

        Raises:
            StiefelError: if the scheme has none.
        """
        raise StiefelError(f"scheme={str(self)!r} has no prediction; give it a `law` method, or measure with diagnose.")

    def resolve(self, m: int, n: int) -> Scheme:
        """The scheme that is used for m × n matrices: itself, or `Stiefel` if it has no such matrix.

        Args:
            m: Outputs.
            n: Inputs.

        Returns:
            A scheme.
        """
        return self

    def __str__(self) -> str:
        """The text that `get` reads: the name, and the parameters that differ from their defaults."""
        parts = [self.name]
        for place, field in enumerate(fields(self)):
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(_text(value) if place == 0 else f"{field.name}={_text(value)}")
        return " ".join(parts)


class Fixed(Scheme):
    """A scheme without randomness: one matrix for each shape."""

    @abstractmethod
    def matrix(self, m: int, n: int) -> np.ndarray:
        """W.

        Args:
            m: Outputs.
            n: Inputs.

        Returns:
            An m × n array in float64.
        """

    def draw(self, source: Source) -> Array:
        matrix = source.array(self.matrix(source.m, source.n))
        return source.xp.broadcast_to(matrix, (source.count, source.m, source.n))


class Start(Scheme):
    """A start of whole models: it says which scheme each layer has, and draws nothing by itself."""

    @abstractmethod
    def at(self, position: Position) -> Scheme:
        """The scheme of one layer."""

    def draw(self, source: Source) -> Array:
        """Refused, since one layer's sizes are not enough to know."""
        place = "the residual branch that a layer is in" if self.residual else "a layer's place in the model"
        needs = "a batch of inputs" if self.calibrates else place
        raise StiefelError(
            f"scheme={str(self)!r} needs {needs}; use stiefel_init.torch.initialize_ on the whole model."
        )


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_Kind = TypeVar("_Kind", bound=type[Scheme])
_REGISTRY: dict[str, type[Scheme]] = {}


def register(kind: _Kind) -> _Kind:
    """Make a scheme available by its name; use it as a decorator, as in the example of `Scheme`.

    Args:
        kind: A subclass of `Scheme`: a frozen dataclass with a `name`.

    Returns:
        `kind` itself.

    Raises:
        StiefelError: if the name is not a word, or is taken.

    >>> register(type(get("he"))).name  # again: nothing changes
    'he'
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise StiefelError(f"name={name!r} of {kind.__name__} cannot name a scheme; use letters, digits, '_' and '-'.")
    known = _REGISTRY.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise StiefelError(f"name={name!r} is taken by {known.__module__}.{known.__qualname__}; choose another.")
    _REGISTRY[name] = kind
    return kind


def forget(name: str) -> None:
    """Remove a scheme from the registry.

    Args:
        name: Its name; an unknown one is ignored.

    >>> forget("no such scheme")
    """
    _REGISTRY.pop(name, None)


def names() -> tuple[str, ...]:
    """The names of all schemes.

    Returns:
        In the order of registration.

    >>> "stiefel" in names()
    True
    """
    return tuple(_REGISTRY)


def get(scheme: SchemeName | Scheme) -> Scheme:
    """Look up a scheme by name.

    Args:
        scheme: A name, followed by any parameters that differ from their defaults: the first as a plain value, any as
            `key=value`. A `Scheme` is returned unchanged.

    Returns:
        The scheme, a frozen value; `str()` turns it back into text.

    Raises:
        StiefelError: for an unknown name, parameter or value.

    >>> get("rotation 0.3"), str(get("orthogonal gain=2")), str(get("he"))
    (Rotation(spread=0.3), 'orthogonal 2', 'he')
    """
    if isinstance(scheme, Scheme):
        return scheme
    name, *rest = (scheme.split() if isinstance(scheme, str) else ()) or ("",)
    kind = _REGISTRY.get(name)
    if kind is None:
        raise unknown("scheme", scheme, _REGISTRY)
    parameters = fields(kind)
    given: dict[str, Any] = {}
    for place, part in enumerate(rest):
        key, equals, text = part.rpartition("=")
        if not equals and place == 0 and parameters:
            key = parameters[0].name
        field = next((field for field in parameters if field.name == key), None)
        if field is None:
            takes = ", ".join(f"{field.name}={_text(field.default)}" for field in parameters)
            raise StiefelError(f"scheme={scheme!r} has {part!r}; {name} takes {takes or 'no parameters'}.")
        given[key] = _value(scheme, text, field.default)
    return kind(**given)


def _value(scheme: str, text: str, default: Any) -> Any:
    try:
        return type(default)(text)
    except ValueError:
        raise StiefelError(f"scheme={scheme!r} has {text!r} where a number is expected.") from None
