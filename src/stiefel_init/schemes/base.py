"""`Scheme`, an initialization as a value; what it draws from, `Source`; where a layer is, `Position`; the registry."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, dataclass_transform, get_args

import numpy as np

from ..core import validate
from ..core.errors import StiefelError, unknown

Array = Any


class Source(Protocol):
    """Independent random streams for `count` matrices of m rows and n columns, as arrays of one framework.

    A seeded source gives the same numbers, up to rounding, in every framework and on every device, in the precision
    that matrices are computed in: float64 for float64, float32 for everything else. `Scheme` shows one in use.
    """

    xp: Any
    """The array namespace: `numpy`, `torch` or `jax.numpy`."""
    count: int
    m: int
    """Outputs."""
    n: int
    """Fan-in: inputs, times the kernel's entries if a convolution's whole kernel is filled."""
    fan_out: int
    """Outputs, times the kernel's entries likewise."""

    def normals(self, rows: int, columns: int) -> Array:
        """N(0, 1) numbers of shape (count, rows, columns)."""

    def uniforms(self, rows: int, columns: int) -> Array:
        """Numbers uniform on (-1, 1), of shape (count, rows, columns)."""

    def orders(self, size: int) -> Array:
        """Random permutations of 0 … size-1, of shape (count, size)."""

    def semi_orthogonal(self, *, aligned: bool) -> Array:
        """Matrices of shape (count, m, n): uniform on Õ(m,n) if `aligned`, else Haar semi-orthogonal."""

    def rotations(self, size: int, spread: float) -> Array:
        """The random rotations of `Rotation`, of shape (count, size, size)."""

    def array(self, values: np.ndarray) -> Array:
        """`values` as an array of the framework."""

    def expm1_skew(self, a: Array, norm: float) -> Array:
        """exp(a) - I of each of a batch of skew-symmetric matrices, whose spectral norms are at most `norm`."""

    def erfinv(self, a: Array) -> Array:
        """The inverse of the error function, entry by entry."""

    def precise(self) -> Source:
        """The same streams in float64, where the framework has it."""


Role = Literal["hidden", "first", "last", "only"]


class Position(NamedTuple):
    """The role of one layer in its model.

    >>> Position(first=True).role, Position().role
    ('first', 'hidden')
    """

    first: bool = False
    """Whether it reads the model's input."""
    last: bool = False
    """Whether it makes the model's output."""
    branches: int = 0
    """Residual branches in the model."""
    branch: int = 0
    """Layers in the residual branch that it is in; 0 if it is in none."""
    ends_branch: bool = False
    """Whether it is the last layer of that branch."""
    row: int = 1
    """Layers of the chain it is in, with nothing but activations between them; first and last layer not counted."""
    units: int = 0
    """Its outputs; 0 if not known, as `inputs`."""
    inputs: int = 0
    activation: str = ""
    """What follows it; `""` if that is not known."""

    @property
    def role(self) -> Role:
        """`"only"`, `"first"`, `"last"` or `"hidden"`."""
        return ("only" if self.last else "first") if self.first else "last" if self.last else "hidden"


SchemeName = (
    Literal["stiefel", "lee", "he", "xavier", "orthogonal", "random", "permutation", "identity", "rotation"] | str
)
"""A registered name, followed by any parameters that differ from their defaults: `"rotation 0.03"`."""


class Distribution(NamedTuple):
    """How a scheme's m × n weights act on a signal, for `theory.propagate`.

    >>> get("he").distribution(64, 128)
    Distribution(aligned=False, variance=0.015625, non_negative=False)
    """

    aligned: bool = False
    """Members of Õ(m,n): √(n/m) times the mean, √min(n/m, 1) times the standard deviation."""
    variance: float = 0.0
    """Otherwise: Var W_ij of weights with mean zero."""
    non_negative: bool = False
    """Members without negative entries, so that no ReLU clips a signal that is already non-negative."""


Law = Distribution  # its name in release 0.2


@dataclass(frozen=True)
class Scheme(ABC):
    """An initialization: a distribution of m × n weight matrices, and how to draw from it.

    A subclass is a frozen dataclass. Its fields are the distribution's parameters, each a number or a word with a
    default; `register` makes it available by name to `initialize_`, `diagnose`, the command line and every framework.

    >>> @register
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
    embeds: ClassVar[bool] = False
    """Whether embeddings are drawn too; otherwise they are left alone."""
    activations: ClassVar[tuple[str, ...]] = ()
    """The activations it is made for, if it works with no other."""
    calibrates: ClassVar[Literal["", "inputs", "outputs"]] = ""
    """What a batch is used for: `"inputs"`, to give them mean square 1; `"outputs"`, of every layer deviation 1."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, bounds = getattr(self, each.name), each.metadata
            if "choices" in bounds and value not in bounds["choices"]:
                raise unknown(each.name, value, bounds["choices"])
            if "hint" in bounds:
                validate.number(each.name, value, **bounds)

    @abstractmethod
    def draw(self, source: Source) -> Array:
        """Draw `source.count` matrices: an array of shape (count, m, n), of the source's framework."""

    def at(self, position: Position) -> Scheme:
        """The scheme of the layer of a model that has this role: itself, unless layers differ."""
        return self

    def bias(self, fan_in: int) -> Scheme | None:
        """How the biases of a linear layer or a convolution start, as m × 1 matrices; None for zeros.

        `fan_in` is that of the layer's weight.
        """
        return None

    @property
    def varies(self) -> bool:
        """Whether layers of a model differ in more than their shape, or biases are drawn too."""
        kind = type(self)
        return kind.at is not Scheme.at or kind.bias is not Scheme.bias

    def distribution(self, m: int, n: int) -> Distribution:
        """How weights of m outputs and n inputs act on a signal, for `theory.propagate`."""
        if type(self).law is not Scheme.law:
            return self.law(m, n)
        raise StiefelError(
            f"scheme={str(self)!r} has no prediction; give it a `distribution` method, or measure with diagnose."
        )

    def law(self, m: int, n: int) -> Distribution:
        """`distribution`, by its name in release 0.2; a scheme that defines it is honoured for one release."""
        return self.distribution(m, n)

    def resolve(self, m: int, n: int) -> Scheme:
        """The scheme that is used for m × n matrices: itself, or `Stiefel` if it has no such matrix."""
        return self

    def __str__(self) -> str:
        """The text that `get` reads: the name, and the parameters that differ from their defaults."""
        parts = [self.name]
        for place, each in enumerate(fields(self)):
            value = getattr(self, each.name)
            if value != each.default:
                parts.append(_text(value) if place == 0 else f"{each.name}={_text(value)}")
        return " ".join(parts)


def number(default: float, hint: str, **bounds: float) -> Any:
    """A parameter of a scheme: a finite number, `at_least` or `above` another."""
    return field(default=default, metadata={"hint": hint, **bounds})


def choice(of: Any) -> Any:
    """A parameter of a scheme: one of the words of a Literal, the first by default."""
    return field(default=get_args(of)[0], metadata={"choices": get_args(of)})


class Fixed(Scheme):
    """A scheme without randomness: one matrix for each shape."""

    @abstractmethod
    def matrix(self, m: int, n: int) -> np.ndarray:
        """The matrix of m outputs and n inputs, in float64."""

    def draw(self, source: Source) -> Array:
        matrix = source.array(self.matrix(source.m, source.n))
        return source.xp.broadcast_to(matrix, (source.count, source.m, source.n))


class WholeModel(Scheme):
    """An initialization of whole models: it says which scheme each layer has, and draws nothing by itself."""

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


Start = WholeModel  # its name in release 0.2


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_Kind = TypeVar("_Kind", bound=type[Scheme])
_REGISTRY: dict[str, type[Scheme]] = {}


@dataclass_transform(frozen_default=True)
def register(kind: _Kind) -> _Kind:
    """Make a class with a `name` a scheme that is available by it: a frozen dataclass. As a decorator, see `Scheme`.

    >>> register(type(get("he"))).name  # again: nothing changes
    'he'
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise StiefelError(f"name={name!r} of {kind.__name__} cannot name a scheme; use letters, digits, '_' and '-'.")
    known = _REGISTRY.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise StiefelError(f"name={name!r} is taken by {known.__module__}.{known.__qualname__}; choose another.")
    _REGISTRY[name] = kind if "__dataclass_params__" in vars(kind) else dataclass(frozen=True)(kind)
    return kind


def forget(name: str) -> None:
    """Remove a scheme from the registry; an unknown name is ignored.

    >>> forget("no such scheme")
    """
    _REGISTRY.pop(name, None)


def names() -> tuple[str, ...]:
    """The names of all schemes, in the order of registration.

    >>> "stiefel" in names()
    True
    """
    return tuple(_REGISTRY)


def get(scheme: SchemeName | Scheme) -> Scheme:
    """Look up a scheme by name: a frozen value, which `str()` turns back into text.

    Args:
        scheme: A name, followed by any parameters that differ from their defaults: the first as a plain value, any as
            `key=value`. A `Scheme` is returned unchanged.

    >>> get("rotation 0.3"), str(get("orthogonal gain=2")), str(get("he"))
    (Rotation(spread=0.3), 'orthogonal 2', 'he')
    """
    if isinstance(scheme, Scheme):
        return scheme
    name, *rest = (scheme.split() if isinstance(scheme, str) else ()) or ("",)
    kind = _REGISTRY.get(name)
    if kind is None:
        raise unknown("scheme", scheme, _REGISTRY)
    defaults: dict[str, Any] = {each.name: each.default for each in fields(kind)}
    given: dict[str, Any] = {}
    for place, part in enumerate(rest):
        key, equals, text = part.rpartition("=")
        if not equals and place == 0 and defaults:
            key = next(iter(defaults))
        if key not in defaults:
            takes = ", ".join(f"{key}={_text(value)}" for key, value in defaults.items())
            raise StiefelError(f"scheme={scheme!r} has {part!r}; {name} takes {takes or 'no parameters'}.")
        try:
            given[key] = type(defaults[key])(text)
        except ValueError:
            raise StiefelError(f"scheme={scheme!r} has {text!r} where a number is expected.") from None
    return kind(**given)


def haar(source: Source, rows: int, columns: int) -> Array:
    """`source.count` Haar semi-orthogonal matrices of shape (rows, columns), by QR."""
    xp = source.xp
    normals = source.normals(rows, columns)
    q, r = xp.linalg.qr(normals if rows > columns else normals.mT)
    diagonal = xp.diagonal(r, 0, -2, -1)
    tall = q * xp.where(diagonal < 0, -1.0, 1.0)[..., None, :]
    return tall if rows > columns else tall.mT
