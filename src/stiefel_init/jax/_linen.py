"""Flax Linen: the parameters in a nested dict, as `Module.init` returns it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import jax

from ..recipe.initialize import Parameter
from ..recipe.layers import Layer
from ._flax import NORMS, guess, stream, what
from ._flow import flow_of
from ._model import Apply, Model, is_floating, kept


def read(variables: Any, apply: Apply | None, inputs: tuple[tuple[Any, ...], dict[str, Any]] | None) -> Model:
    """A dict of variables, or of parameters alone, as `initialize` sees it.

    With `apply` and inputs, the layers are asked what they are; without, their names and shapes tell.
    """
    flat, structure = jax.tree_util.tree_flatten_with_path(variables)
    paths = [tuple(str(step.key) for step in path if hasattr(step, "key")) for path, _ in flat]
    collections = "params" in variables
    leaves: dict[Hashable, jax.Array] = {path: leaf for path, (_, leaf) in zip(paths, flat) if is_floating(leaf)}

    def rebuilt(values: Mapping[Hashable, Any]) -> Any:
        return jax.tree.unflatten(structure, [values.get(path, leaf) for path, (_, leaf) in zip(paths, flat)])

    def call(values: Mapping[Hashable, Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        assert apply is not None
        return apply(rebuilt(values), *given, **named)

    layers = {} if apply is None or inputs is None else _layers(call, leaves, inputs)
    parameters = []
    for path in (path for path in _in_order(variables) if path in leaves):
        if collections and path[0] != "params":
            continue
        names = path[1:] if collections else path
        shape, owner = tuple(leaves[path].shape), layers.get(names[:-1])
        known = owner is not None
        held, layout = what(owner, layers.get(names[:-2]), names[-1], shape) if known else guess(names, shape)
        bias = (*path[:-1], "bias")
        biased = bias if isinstance(held, Layer) and bias in leaves else None
        parameters.append(Parameter(".".join(names), stream(names), path, shape, held, layout, biased))
    found = {type(layer).__name__ for layer in layers.values()}
    normalized = bool(found & set(NORMS)) if layers else any(path[-1] == "scale" for path in paths)

    def trainable(spec: Any) -> set[Hashable]:
        return kept(variables, spec, list(paths))

    return Model(parameters, leaves, call, rebuilt, normalized, trainable, [])


def _in_order(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all leaves in the order of the dicts; where JAX has sorted one, `Dense_10` comes after `Dense_2`."""
    if not isinstance(tree, Mapping):
        yield path
        return
    keys = list(tree)
    if keys == sorted(keys):
        keys.sort(key=lambda key: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(key))])
    for key in keys:
        yield from _in_order(tree[key], (*path, str(key)))


def _layers(call: Any, leaves: Any, inputs: Any) -> dict[tuple[str, ...], Any]:
    """The modules that are called when the model runs, by their paths."""
    import flax.linen as nn

    found: dict[tuple[str, ...], Any] = {}

    def look(method: Any, given: Any, named: Any, context: Any) -> Any:
        found.setdefault(context.module.path, context.module)
        return method(*given, **named)

    with nn.intercept_methods(look):
        flow_of(lambda held, given: call(held, *given), leaves, inputs, dict.fromkeys(leaves, ""), (), lambda _: False)
    return found
