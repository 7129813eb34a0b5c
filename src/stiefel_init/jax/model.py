"""A model of any library as `recipe.initialize` sees it: `JaxAdapter`, and what the adapters of the libraries share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import validate
from ..core.errors import StiefelError, said
from ..recipe.initialize import ArrayAdapter, Options
from ..recipe.layers import ArrayRef, Layer
from ..recipe.trace import Flow, arguments, does_not_run, not_finite, shapes_of
from .trace import flow_of

Apply = Callable[..., Any]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]
GUESSES = 12


class JaxAdapter(ArrayAdapter):
    """A model of Equinox or Flax, as the library that it is of shows it: here, as a tree of arrays."""

    keys: Sequence[Hashable]
    """Of the leaves of the tree."""
    leaves: Mapping[Any, jax.Array]
    """All arrays of floats, by the keys of the parameters."""
    parameters: list[ArrayRef]
    examples: Iterable[jax.ShapeDtypeStruct] = ()
    """Inputs that the model may take, going by what its layers read, in their order."""

    def __init__(self, model: Any, seed: Any, apply: Apply | None, options: Options) -> None:
        super().__init__(options)
        self.seed, self.model, self.apply = _number(seed), model, apply
        given = None if options.inputs is None else _arguments(options.inputs)
        try:
            self.read(given)
        except StiefelError:
            raise
        except Exception as error:  # whatever the user's model raises
            raise _does_not_run(options.inputs, error) from None
        names = {parameter.key: parameter.name for parameter in self.parameters}
        for key, leaf in self.leaves.items():
            if isinstance(leaf, jax.core.Tracer | jax.ShapeDtypeStruct):
                kind = "traced" if isinstance(leaf, jax.core.Tracer) else "a shape without values"
                name = names.get(key, key)
                raise StiefelError(f"{name} is {kind}; call initialize on a real model, outside jit and vmap.")
        self.result: Any = model

    @abstractmethod
    def read(self, given: Inputs | None) -> None:
        """Find parameters, leaves and normalizations."""

    @abstractmethod
    def running(self, values: Mapping[Hashable, Any]) -> Any:
        """The model with other arrays in place of the leaves, in evaluation mode."""

    def call(self, values: Mapping[Hashable, Any], given: Inputs) -> Any:
        """Run it."""
        model = self.running(values)
        return model(*given[0], **given[1]) if self.apply is None else self.apply(model, *given[0], **given[1])

    def rebuilt(self, values: Mapping[Hashable, Any]) -> Any:
        """The model with new arrays in place of some leaves."""
        leaves, structure = jax.tree.flatten(self.model)
        return jax.tree.unflatten(structure, [values.get(key, leaf) for key, leaf in zip(self.keys, leaves)])

    def is_state(self, node: Any) -> bool:
        """Whether a node of the inputs is a state of the model."""
        return False

    def flow(self, streams: Mapping[Hashable, str], tables: Collection[str], inputs: Any) -> tuple[Flow | None, str]:
        layers = {streams[each.key] for each in self.parameters if isinstance(each.what, Layer)}
        names = {key: streams.get(key, str(key)) for key in self.leaves}

        def traced(given: Inputs) -> Flow:
            return flow_of(self.call, self.leaves, given, names, {*layers, *tables}, self.is_state)

        if inputs is not None:
            try:
                flow = traced(_arguments(inputs))
            except Exception as error:  # whatever the user's model raises
                raise _does_not_run(inputs, error) from None
            if layers and not flow.reads:
                raise StiefelError(
                    f"no layer of the model works on inputs={_shapes(inputs)}, so it has no ends; give other inputs, "
                    "or name them with stem= and head=."
                )
            return flow, "traced"
        for example in list(dict.fromkeys(self.examples))[:GUESSES]:
            try:
                return traced(((example,), {})), f"traced with an input of shape {example.shape}"
            except Exception:  # a guess that does not fit
                continue
        return None, ""

    def dtype(self, key: Hashable) -> str:
        return str(self.leaves[key].dtype.name)

    def value(self, key: Hashable) -> np.ndarray:
        return np.asarray(self.leaves[key])

    def put(self, values: Mapping[Hashable, np.ndarray]) -> None:
        self.result = self.rebuilt({key: _like(self.leaves[key], value) for key, value in values.items()})


def is_floating(leaf: Any) -> bool:
    """Whether a leaf is an array of real or complex floats."""
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def example(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """The shape of an input."""
    return jax.ShapeDtypeStruct(shape, dtype)


def _like(leaf: jax.Array, value: np.ndarray) -> jax.Array:
    """The value with the dtype of a leaf, and where that is."""
    array = jnp.asarray(value, leaf.dtype)
    return jax.device_put(array, leaf.sharding) if leaf.committed else array


def _number(seed: Any) -> int:
    """The seed; of a key, 64 of its bits."""
    if isinstance(seed, jax.core.Tracer):
        raise StiefelError("seed is traced; call initialize outside jit and vmap.")
    if isinstance(seed, jax.Array) and (jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) or seed.shape == (2,)):
        high, low = (int(word) for word in jax.random.bits(seed, (2,), "uint32"))
        return high << 32 | low
    if seed is None:
        raise StiefelError("seed=None; give an int or a jax.random.key.")
    return validate.size("seed", seed)


def _arguments(inputs: Any) -> Inputs:
    """Example inputs as positional and named arguments, all of them finite."""
    given = arguments(inputs)
    for leaf in jax.tree.leaves(given):
        numbers = isinstance(leaf, jax.Array | np.ndarray | float) and not isinstance(leaf, jax.core.Tracer)
        if numbers and jnp.issubdtype(jnp.result_type(leaf), jnp.floating) and not bool(jnp.isfinite(leaf).all()):
            raise not_finite(_shapes(inputs))
    return given


def _shapes(inputs: Any) -> str:
    return shapes_of(jax.tree.leaves(inputs))


def _does_not_run(inputs: Any, error: Exception) -> StiefelError:
    what = "an array, a tuple of arguments or a dict of keywords"
    give = f"what it is called with (most Equinox modules take one example): {what}"
    return does_not_run(_shapes(inputs), f"{type(error).__name__}: {said(error)}", give)
