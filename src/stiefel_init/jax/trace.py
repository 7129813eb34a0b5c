"""The flow of a model in JAX: its jaxpr, from the leaves of the model and its inputs to what it returns.

Every value is followed as a signal on its way through the layers, or as something that the model holds: a weight, its
transpose, a normalization's statistics. A product of the two is a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core.activations import SATURATING
from ..core.activations import short as short_name
from ..recipe.trace import ACTIVATIONS, INPUT, Flow, Signal, join


class Value(NamedTuple):
    """What is known of a value in a jaxpr."""

    signal: Signal | None = None
    held: tuple[str, ...] = ()
    """The parts of the model that it is computed from, where it is no signal."""
    root: bool = False
    """Whether a root of these was taken, as of a variance."""
    reduced: bool = False
    """Whether a signal has been summed up: limits on a variance are no activations."""


_NOTHING = Value()
_ARRAYS = jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct
_PRODUCTS = {
    "dot_general": "linear",
    "ragged_dot_general": "linear",
    "ragged_dot": "linear",
    "conv_general_dilated": "conv2d",
    "gather": "embedding",
}
_FUNCTIONS = {  # a function, and the primitives that it is
    "tanh": ("tanh", "erf", "erfc"),
    "sigmoid": ("logistic",),
    "exp": ("exp", "exp2"),
    "maxpool2d": ("reduce_window_max",),
    "rsqrt": ("rsqrt", "sqrt"),
    "add": ("add", "add_any", "sub"),
    "cat": ("concatenate",),
}
_CALLS = {name: name for name in ("sin", "cos", "clamp")}
_CALLS |= {primitive: name for name, primitives in _FUNCTIONS.items() for primitive in primitives}
_NAMED = {"logaddexp": "softplus", "hardsilu": "hardswish", "swish": "silu", "squareplus": "softplus"}
_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "psum", "pmax")
_COMPARISONS = ("eq", "ne", "ge", "gt", "le", "lt", "is_finite")


def flow_of(
    call: Callable[[Mapping[Hashable, Any], Any], Any],
    leaves: Mapping[Hashable, jax.Array],
    inputs: Any,
    names: Mapping[Hashable, str],
    weights: Collection[str],
    is_state: Callable[[Any], bool],
) -> Flow:
    """The flow through `call`, a function of the model's leaves and of inputs: arrays, or shapes, in any structure.

    `weights` are the names of those leaves that layers multiply signals by; `is_state` says whether a node of the
    inputs is a model's state rather than an example.
    """
    nodes, structure = jax.tree.flatten(inputs, is_leaf=is_state)
    traced = [place for place, node in enumerate(nodes) if is_state(node) or isinstance(node, _ARRAYS)]

    def run(held: list[Any], given: list[Any]) -> Any:
        every = list(nodes)
        for place, node in zip(traced, given):
            every[place] = node
        return call(dict(zip(leaves, held)), jax.tree.unflatten(structure, every))

    given = [nodes[place] for place in traced]
    closed = jax.make_jaxpr(run)(list(leaves.values()), given)
    state = Value(held=("state",))
    known = [jax.tree.map((lambda leaf: state) if is_state(node) else _input, node) for node in given]
    flat = jax.tree.leaves(
        ([Value(held=(names[key],)) for key in leaves], known), is_leaf=lambda node: isinstance(node, Value)
    )
    walker = _Walker(frozenset(weights))
    returned = walker.run(closed.jaxpr, flat)
    walker.flow.returned = [value.signal for value in returned if value.signal is not None]
    return walker.flow


def _input(leaf: Any) -> Value:
    kind = leaf.dtype
    numbers = jnp.issubdtype(kind, jnp.number) or kind == jnp.bool_
    return Value(Signal(frozenset({INPUT}))) if numbers else _NOTHING


class _Walker:
    """Tells a flow of every equation of a jaxpr."""

    def __init__(self, weights: frozenset[str]) -> None:
        self.flow = Flow()
        self.weights = weights

    def run(self, jaxpr: Any, given: Sequence[Value]) -> list[Value]:
        """What comes out of a jaxpr that is given these values."""
        known: dict[Any, Value] = dict(zip(jaxpr.invars, given))

        def value(atom: Any) -> Value:
            return _NOTHING if hasattr(atom, "val") else known.get(atom, _NOTHING)

        for equation in jaxpr.eqns:
            made = self.step(equation, [value(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, made))
        return [value(atom) for atom in jaxpr.outvars]

    def step(self, equation: Any, given: list[Value]) -> list[Value]:
        """What comes out of one equation."""
        primitive, parameters = equation.primitive.name, equation.params
        if primitive == "scan":
            return self.loop(parameters["jaxpr"], given, parameters["num_consts"], parameters["num_carry"])
        if primitive == "while":
            constants = parameters["cond_nconsts"]
            return self.loop(parameters["body_jaxpr"], given[constants:], parameters["body_nconsts"], None)
        if primitive == "cond":
            branches = [self.run(branch.jaxpr, given[1:]) for branch in parameters["branches"]]
            return [_either(values) for values in zip(*branches)]
        inner = next((parameters[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in parameters), None)
        if inner is not None:
            short = short_name(str(parameters.get("name", "")))
            short = _NAMED.get(short, short)
            if short in ACTIVATIONS and sum(value.signal is not None for value in given) == 1:
                plain = [value._replace(reduced=False) for value in given]
                return [self.made(short, plain)] * len(equation.outvars)
            body = getattr(inner, "jaxpr", inner)
            if len(body.invars) == len(given):
                return self.run(body, given)
        return [self.simple(primitive, equation, given)] * len(equation.outvars)

    def loop(self, closed: Any, given: list[Value], constants: int, carried: int | None) -> list[Value]:
        """A loop's body, twice: what it carries reaches the layers that read it."""
        carried = len(given) - constants if carried is None else carried
        first = self.run(closed.jaxpr, given)
        again = [_either(pair) for pair in zip(given[constants : constants + carried], first)]
        return self.run(closed.jaxpr, [*given[:constants], *again, *given[constants + carried :]])

    def simple(self, primitive: str, equation: Any, given: list[Value]) -> Value:
        """What comes out of a primitive that is no function of functions."""
        signals = [value.signal for value in given if value.signal is not None]
        if not signals:
            held = tuple(dict.fromkeys(name for value in given for name in value.held))
            root = bool(held) and (primitive in ("rsqrt", "sqrt") or any(value.root for value in given))
            return Value(None, held, root)
        if primitive in _PRODUCTS:
            weights = [name for value in given for name in value.held if name in self.weights]
            return self.made(_PRODUCTS[primitive], given, weights)
        if primitive in ("max", "min"):
            return self.made("maximum", given)
        if primitive in ("mul", "div"):
            return self.scaled(given, signals)
        if primitive == "select_n":
            return self.selected(given)
        if primitive in _COMPARISONS:
            return Value(join(signals))
        made = self.made(_CALLS.get(primitive, "identity"), given)
        return made._replace(reduced=True) if primitive in _REDUCTIONS else made

    def scaled(self, given: list[Value], signals: list[Signal]) -> Value:
        """A product or quotient: a normalization, an activation of the form x f(x), or a gate."""
        if any(value.root for value in given if value.signal is None):
            return self.made("batch_norm", given)  # by statistics that the model holds
        same = len(signals) == 2 and signals[0].origins == signals[1].origins
        kinds = {signal.activation for signal in signals}
        if same and len(kinds) == 2 and "" in kinds and (inner := max(kinds)) in SATURATING:
            for origin in signals[0].origins:
                if self.flow.next.get(origin) == inner:
                    self.flow.next[origin] = "gelu"
            plain = join(signals)
            return Value(Signal(plain.origins, plain.normalized, plain.merged, "gelu"))
        return self.made("mul", given)

    def selected(self, given: list[Value]) -> Value:
        """x where it is positive and something else where not is a rectifier; by a mask, a choice."""
        chooser, *cases = given
        signals = [case.signal for case in cases if case.signal is not None]
        if not signals:
            return Value(chooser.signal)
        if chooser.signal is not None and chooser.signal.origins == signals[0].origins:
            return self.made("relu", cases)
        return self.made("where", cases)

    def made(self, name: str, given: Sequence[Value], weights: Sequence[str] = ()) -> Value:
        """What a function makes of signals, as the flow has it."""
        signals = [value.signal for value in given if value.signal is not None]
        reduced = not weights and all(value.reduced for value in given if value.signal is not None)
        name = "identity" if reduced and name in ACTIVATIONS else name
        return Value(self.flow.call(name, signals, dict.fromkeys(weights)), reduced=reduced)


def _either(values: Sequence[Value]) -> Value:
    """One value or another."""
    signals = [value.signal for value in values if value.signal is not None]
    held = tuple(dict.fromkeys(name for value in values for name in value.held))
    return Value(join(signals)) if signals else Value(None, held, any(value.root for value in values))
