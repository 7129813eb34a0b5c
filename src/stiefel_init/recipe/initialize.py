"""One way to initialize a model of any framework: trace → roles → plan → draw.

An `Adapter` knows a framework: the parameters of a model, what its forward does, and where new values go. PyTorch, JAX
and Keras each have one; what is done to each parameter is decided here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import numpy as np

from ..core.errors import StiefelError, unknown
from ..core.sample import Member, member_scheme, of_kernel
from ..schemes import DeltaOrthogonal, Scheme, SchemeName, Stiefel, get
from ..schemes import Recipe as AsScheme
from .author import Default, follows_pattern
from .layers import (
    AN_EMBEDDING,
    CONV_MODES,
    DTYPES,
    ArrayRef,
    Constant,
    Conv,
    Layer,
    Leave,
    Matrices,
    ParamRef,
    Rule,
    Weight,
    matrices_of,
)
from .one_scheme import check_roles, needs_roles, one_scheme, refuse_torch_only
from .plan import EMBEDDING, Plan, Row, row_of
from .roles import Role, Roles, of_flow, of_order
from .rules import Draw, reason_of, recipe
from .trace import Flow, Norm

RecipeName = Literal["best", "paper"]
RECIPES: tuple[RecipeName, ...] = get_args(RecipeName)
Patterns = str | Iterable[str]
Ref = TypeVar("Ref", bound=ParamRef)
DEEP = 10
"""Layers from which on a plain network needs other rates than the usual ones."""


@dataclass(frozen=True)
class Options:
    """What the user asks for, the same in every framework."""

    scheme: Scheme | None = None
    """For every layer; None for the default recipe."""
    conv: Conv = "delta"
    inputs: Any = None
    """Example inputs."""
    stem: Patterns | None = None
    head: Patterns | None = None
    skip: Patterns = ()
    dry_run: bool = False

    @classmethod
    def of(
        cls,
        scheme: SchemeName | Scheme | None,
        recipe: RecipeName | None,
        conv: Conv | None,
        member: Member = "uniform",
        spread: float = 0.1,
        **others: Any,
    ) -> Options:
        """The options, checked; those about inputs and ends belong to the default recipe.

        Raises:
            StiefelError: for options that are not known, or contradict each other.
        """
        if recipe is not None and recipe not in RECIPES:
            raise unknown("recipe", recipe, RECIPES)
        if conv is not None and conv not in CONV_MODES:
            raise unknown("conv", conv, CONV_MODES)
        if scheme is not None and get(scheme) == AsScheme():
            if recipe == "paper":
                raise StiefelError("scheme='recipe' is recipe='best'; leave out recipe='paper'.")
            scheme = None
        chosen, as_member = get("stiefel" if scheme is None else scheme), member_scheme(member, spread)
        everywhere = scheme is not None or conv is not None or member != "uniform"
        if recipe == "best" and everywhere:
            raise StiefelError("recipe='best' chooses for every layer by itself; leave out scheme, conv and member.")
        if recipe == "paper" and chosen != Stiefel():
            raise StiefelError(f"recipe='paper' is scheme='stiefel' in every layer; leave out scheme={scheme!r}.")
        if member != "uniform" and chosen != Stiefel():
            raise StiefelError(f"member={member!r} belongs to scheme='stiefel'; leave it out for scheme={scheme!r}.")
        if not everywhere and recipe != "paper":
            return cls(**others)
        asked = cls(chosen if member == "uniform" else as_member, conv or "delta", **others)
        ends = any(option is not None for option in (asked.inputs, asked.stem, asked.head))
        if ends and not (needs_roles(chosen) or chosen.calibrates):
            raise StiefelError(
                "inputs, stem and head belong to recipe='best'; leave them out where every layer is alike."
            )
        if conv == "flatten" and isinstance(chosen, DeltaOrthogonal):
            raise StiefelError("scheme='delta-orthogonal' fills a kernel's centre; leave out conv='flatten'.")
        return asked


def matching(option: str, parameters: Sequence[ParamRef], patterns: Patterns) -> set[Hashable]:
    """The keys of the parameters that a pattern matches, under any of their names."""
    matches: set[Hashable] = set()
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        if not isinstance(pattern, str):
            raise StiefelError(
                f"{option} has {pattern!r}, a {type(pattern).__name__}; give patterns of parameter names."
            )
        matched = {each.key for each in parameters if fnmatchcase(each.name, pattern) or each.stream == pattern}
        if not matched:
            names = ", ".join(repr(each.name) for each in parameters[:3])
            raise StiefelError(
                f"{option} pattern {pattern!r} matches no parameter; the names begin "
                f"with {names or 'nothing, for there are none'}."
            )
        matches |= matched
    return matches


class Adapter(ABC, Generic[Ref]):
    """A model as `initialize` sees it."""

    parameters: Sequence[Ref]
    """All parameters under all their names."""
    normalized: Norm
    """The kind of its normalization layers, if it has any."""
    default: ClassVar[Default] = "uniform"
    """How its framework draws layers."""

    @abstractmethod
    def flow(self, streams: Mapping[Hashable, str], tables: Collection[str], inputs: Any) -> tuple[Flow | None, str]:
        """What feeds what, by the names of `streams`, and how that was found; None where it cannot be seen.

        Raises:
            StiefelError: if the model does not run on the inputs.
        """

    @abstractmethod
    def rule(self, parameter: Ref, options: Options) -> Rule:
        """What a parameter, under the first of its names, holds, or why it is left alone.

        Raises:
            StiefelError: if it cannot be changed.
        """

    @abstractmethod
    def layer(self, parameter: Ref) -> Layer | None:
        """The layer that a parameter is a weight of, or the embedding; None if there is none."""

    @abstractmethod
    def bias_of(self, parameter: Ref) -> Hashable:
        """The key of the bias of a weight's layer; None if there is none."""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[Hashable, float]:
        """The root mean square of each parameter's entries, by its key, of those that have values."""

    @property
    @abstractmethod
    def patterned(self) -> Collection[Hashable]:
        """The keys of parameters whose entries follow a pattern: matrices of mostly zeros, vectors of few values."""

    @abstractmethod
    def ordered(self) -> Iterable[Ref]:
        """The weights of linear layers and convolutions, in the model's order."""

    @abstractmethod
    def write(self, planned: list[tuple[Ref, Draw]], options: Options, roles: Roles) -> None:
        """Draw what is planned and put it into the model; with `dry_run`, only refuse what cannot be done."""

    def displayed(self, stream: str) -> str:
        """The name under which the plan speaks of a weight."""
        return stream


def initialize(adapter: Adapter[Ref], options: Options, *, advised: bool = False) -> Plan:
    """Initialize a model, and say what was done to each parameter; if `advised`, also what optimizer to write.

    Raises:
        StiefelError: for a pattern, scheme or parameter that cannot be used; the model is unchanged.
    """
    scheme = options.scheme
    skipped = matching("skip", adapter.parameters, options.skip)
    roles = roles_of(adapter, options) if scheme is None or needs_roles(scheme) else Roles()
    if scheme is not None and needs_roles(scheme):
        check_roles(scheme, roles)
    rows, planned = decide(adapter, options, roles, skipped)
    adapter.write(planned, options, roles)
    return Plan(tuple(rows), _last_line(adapter, roles) if advised and scheme is None else "")


def _last_line(adapter: Adapter[Ref], roles: Roles) -> str:
    """The optimizer to write next, for plain networks of linear layers and ReLU; shallow ones need no such care."""
    matrices = {each.stream for each in adapter.parameters if len(each.shape) == 2}
    hidden = (role for name, role in roles.items() if name in matrices and not (role.stem or role.head))
    chains = (role.chain for role in hidden if role.activation == "relu")
    return "optimizer = torch.optim.Adam(param_groups(model, 1e-3))" if max(chains, default=0) + 1 >= DEEP else ""


def roles_of(adapter: Adapter[Ref], options: Options) -> Roles:
    """The roles of the model's weights, by the names of their streams."""
    parameters = adapter.parameters
    streams = {each.key: each.stream for each in reversed(parameters)}
    # A pattern may match biases too, which have no role.
    stems, heads = (
        None if patterns is None else [streams[key] for key in matching(option, parameters, patterns)]
        for option, patterns in (("stem", options.stem), ("head", options.head))
    )
    sizes = adapter.sizes if options.scheme is None else {}
    tables = {
        streams[each.key]: sizes.get(each.key)
        for each in parameters
        if (layer := adapter.layer(each)) is not None and layer.kind == "embedding"
    }
    flow, how = adapter.flow(streams, tables, options.inputs)
    if flow is not None:
        roles = of_flow(flow, stems, heads, how, tables)
    else:
        layers = [streams[each.key] for each in adapter.ordered()]
        order = dict.fromkeys(stream for stream in layers if stream not in tables)
        first = next((each.stream for each in parameters if each.stream in order or each.stream in tables), "")
        tied = bool(layers) and layers[-1] in tables
        roles = of_order(order, stems, heads, held=adapter.normalized, embedded=first in tables, tied=tied)
    for each in parameters:  # those that a flow cannot see: the layers of an opaque block
        if each.stream not in tables and adapter.layer(each) is not None:
            roles.setdefault(each.stream, Role(held=adapter.normalized))
    return roles


def decide(
    adapter: Adapter[Ref], options: Options, roles: Roles, skipped: set[Hashable]
) -> tuple[list[Row], list[tuple[Ref, Draw]]]:
    """What is done to each parameter: the rows of the plan, and what is to be drawn.

    Raises:
        StiefelError: for a parameter that cannot be changed.
    """
    scheme = options.scheme or Stiefel()
    first: dict[Hashable, Ref] = {}
    for parameter in adapter.parameters:
        first.setdefault(parameter.key, parameter)
    rules: dict[Hashable, Rule] = {
        key: Leave("skipped") if key in skipped else adapter.rule(parameter, options)
        for key, parameter in first.items()
    }
    drawn = _drawn(adapter, options, roles, first, rules)
    rows: list[Row] = []
    planned: list[tuple[Ref, Draw]] = []
    for parameter in adapter.parameters:
        name, shape, key = parameter.name, parameter.shape, parameter.key
        rule = rules[key]
        if first[key] is not parameter:
            rows.append(Row(name, shape, f"{parameter.relation} {first[key].name}"))
            continue
        if key in drawn:
            draws = drawn[key]
        elif not isinstance(rule, Leave):
            draws = [Draw(rule, scheme)]
        elif not parameter.empty:
            rows.append(Row(name, shape, "left alone", reason=rule.reason))
            continue
        elif rule.otherwise is not None:
            draws = [Draw(rule.otherwise, EMBEDDING, rule.reason)]
        else:
            raise StiefelError(
                f"{name} is on the meta device and would be left without values ({rule.reason}); give it some on a "
                "real device first."
            )
        row = row_of(name, shape, draws)
        if source := draws[0].source:
            row = row._replace(reason=row.reason.replace(source, adapter.displayed(source)))
        rows.append(row)
        planned += [(parameter, draw) for draw in draws]
    return rows, planned


def _drawn(
    adapter: Adapter[Ref], options: Options, roles: Roles, first: Mapping[Hashable, Ref], rules: dict[Hashable, Rule]
) -> dict[Hashable, list[Draw]]:
    """What is drawn into weights and biases where layers differ; `rules` then leave what its author meant.

    Raises:
        StiefelError: if the scheme is not made for the model.
    """
    scheme = options.scheme
    if scheme is not None and not scheme.varies:
        return {}
    sizes, patterned = (adapter.sizes, adapter.patterned) if scheme is None else ({}, ())
    for key in patterned:
        rule = rules[key]
        if isinstance(rule, Constant) and rule.ones is None and not math.isclose(sizes[key], rule.value, abs_tol=1e-6):
            rules[key] = Leave(f"{'as' if sizes[key] else 'zero, as'} its author made it")
    weights: dict[Hashable, Weight] = {}
    for key, each in first.items():
        if isinstance(held := rules[key], Matrices) and (layer := adapter.layer(each)) is not None:
            bias = adapter.bias_of(each)
            weights[key] = Weight(
                each.stream, each.canonical, held, layer, isinstance(rules.get(bias), Constant), each.linked,
                sizes.get(key), sizes.get(bias), key in patterned,
            )  # fmt: skip
    if scheme is None:
        chosen, left = recipe(weights.values(), roles, adapter.default)
    else:
        chosen, left = one_scheme(weights.values(), scheme, roles, options.conv), {}
    drawn: dict[Hashable, list[Draw]] = {}
    for key, weight in weights.items():
        bias = adapter.bias_of(first[key])
        if weight.name in left:
            rules[key] = Leave(left[weight.name])
            if weight.biased:
                rules[bias] = rules[key]
            continue
        drawn[key] = chosen[weight.name]
        if (distribution := drawn[key][0].bias) is not None:
            units = math.prod(first[bias].shape)
            drawn[bias] = [Draw(Matrices(1, units, 1), distribution, reason_of(distribution))]
    return drawn


class ArrayAdapter(Adapter[ArrayRef]):
    """An adapter of a framework that takes values as NumPy arrays: drawn on the host, and laid out as stored."""

    seed: int

    def __init__(self, options: Options) -> None:
        refuse_torch_only(options.scheme)

    @cached_property
    def _left(self) -> dict[Hashable, Leave]:
        """What is left alone under any name: a weight that an embedding shares is an embedding."""
        return {each.key: each.what for each in self.parameters if isinstance(each.what, Leave)}

    @cached_property
    def _names(self) -> dict[str, str]:
        return {each.stream: each.name for each in reversed(self.parameters)}

    @abstractmethod
    def dtype(self, key: Hashable) -> str:
        """The name of a parameter's dtype."""

    @abstractmethod
    def put(self, values: Mapping[Hashable, np.ndarray]) -> None:
        """Put new values into the model, by the keys of parameters."""

    def rule(self, parameter: ArrayRef, options: Options) -> Rule:
        what = self._left.get(parameter.key, parameter.what)
        if not isinstance(what, Layer):
            return what
        entrywise = (options.scheme or Stiefel()).entrywise
        return matrices_of(what, parameter.canonical, options.conv, entrywise=entrywise)

    @abstractmethod
    def value(self, key: Hashable) -> np.ndarray:
        """A parameter's values."""

    @cached_property
    def sizes(self) -> Mapping[Hashable, float]:
        values = ((each.key, np.abs(self.value(each.key)).astype(np.float64)) for each in self.parameters)
        return {key: math.sqrt(float(np.square(value).mean())) for key, value in values if value.size}

    @cached_property
    def patterned(self) -> Collection[Hashable]:
        return {each.key for each in self.parameters if follows_pattern(self.value(each.key))}

    def layer(self, parameter: ArrayRef) -> Layer | None:
        if parameter.what == AN_EMBEDDING:
            return Layer("embedding")
        return parameter.what if isinstance(parameter.what, Layer) else None

    def bias_of(self, parameter: ArrayRef) -> Hashable:
        return parameter.bias

    def displayed(self, stream: str) -> str:
        return self._names[stream]

    def ordered(self) -> Iterable[ArrayRef]:
        kinds = ("linear", "convolution")
        return (each for each in self.parameters if isinstance(each.what, Layer) and each.what.kind in kinds)

    def write(self, planned: list[tuple[ArrayRef, Draw]], options: Options, roles: Roles) -> None:
        for parameter, _ in planned:
            if (kind := self.dtype(parameter.key)) not in DTYPES:
                name = parameter.name
                raise StiefelError(f"{name} has dtype {kind}; use one of {', '.join(DTYPES)}, or pass skip={name!r}.")
        if not options.dry_run:
            self.put(self._values(planned))

    def _values(self, planned: Iterable[tuple[ArrayRef, Draw]]) -> dict[Hashable, np.ndarray]:
        """The new values by key, as they are stored: matrix i is `stiefel_init.draw(…, seed=seed, name=stream)[i]`."""
        values: dict[Hashable, np.ndarray] = {}
        weights: dict[Hashable, ArrayRef] = {}
        for parameter, draw in planned:
            what, key = draw.what, parameter.key
            dtype = np.float64 if self.dtype(key) == "float64" else np.float32
            if isinstance(what, Constant):
                values[key] = what.filled(np.empty(parameter.shape, dtype))
                continue
            layer = isinstance(parameter.what, Layer)
            whole = values.setdefault(key, np.zeros(parameter.canonical if layer else (what.m, 1), dtype))
            weights[key] = parameter
            if not whole.size:
                continue
            seed, name = self.seed, draw.source or parameter.stream
            drawn = of_kernel(
                draw.scheme, what.m, what.n, what.receptive, what.count, seed, name, dtype, first=draw.first
            )
            drawn *= dtype(what.scale)
            blocks = what.blocks(np.ascontiguousarray(drawn.mT) if what.mirrored else drawn, whole.shape)
            places = what.places(whole)
            places[...] = blocks.reshape(places.shape)
        for key, parameter in weights.items():
            layout, shape = parameter.layout, parameter.shape
            values[key] = values[key].reshape(shape) if layout is None else layout.stored(values[key], shape)
        return values
