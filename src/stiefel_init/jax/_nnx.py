"""Flax NNX: the parameters of a module."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..recipe.initialize import Parameter
from ..recipe.layers import Leave
from ._flax import NORMS, stream, what
from ._model import GUESSES, PIXELS, Apply, Model, example, is_floating


def read(model: nnx.Module, apply: Apply | None) -> Model:
    """An NNX module as `initialize` sees it; it is changed in place, as `nnx.update` changes it."""
    definition, state = nnx.split(model)
    flat = dict(nnx.to_flat_state(state))
    leaves: dict[Any, jax.Array] = {
        path: value for path, variable in flat.items() if is_floating(value := variable.get_value())
    }
    order = {path: place for place, path in enumerate(_paths(model))}
    parameters = [
        _parameter(model, path, flat[path], tuple(leaves[path].shape), flat)
        for path in sorted(leaves, key=lambda path: order.get(path, len(order)))
        if isinstance(flat[path], nnx.Param)
    ]

    def rebuilt(values: Mapping[Any, Any]) -> nnx.Module:
        new: Any = [(path, flat[path].replace(value)) for path, value in values.items()]
        nnx.update(model, nnx.from_flat_state(new))
        return model

    def call(values: Mapping[Hashable, Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        held: Any = [
            (path, variable.replace(values.get(path, variable.get_value()))) for path, variable in flat.items()
        ]
        running = nnx.merge(definition, nnx.from_flat_state(held))
        running.eval()
        return running(*given, **named) if apply is None else apply(running, *given, **named)

    owners = [_along(model, parameter.key[:-1])[-1] for parameter in parameters]  # type: ignore[index]
    normalized = any(type(owner).__name__ in NORMS for owner in owners)

    def trainable(spec: Any) -> set[Hashable]:
        return set(dict(nnx.to_flat_state(nnx.state(model, spec))))

    return Model(parameters, leaves, call, rebuilt, normalized, trainable, _examples(owners))


def _paths(model: Any) -> list[tuple[Any, ...]]:
    """The paths of all variables in the order in which the modules were given them, where `split` sorts by name."""
    found: list[tuple[Any, ...]] = []
    seen: set[int] = set()

    def visit(node: Any, path: tuple[Any, ...]) -> None:
        if isinstance(node, nnx.Variable):
            found.append(path)
        elif isinstance(node, list | tuple | nnx.List):
            for place, child in enumerate(node):
                visit(child, (*path, place))
        elif isinstance(node, dict):
            for name, child in node.items():
                visit(child, (*path, name))
        elif isinstance(node, nnx.Module) and id(node) not in seen:
            seen.add(id(node))
            for name, child in vars(node).items():
                visit(child, (*path, name))

    visit(model, ())
    return found


def _parameter(
    model: nnx.Module, path: tuple[Any, ...], variable: nnx.Variable, shape: tuple[int, ...], flat: Mapping[Any, Any]
) -> Parameter:
    names = tuple(str(step) for step in path)
    above, owner = ([None, None, *_along(model, path[:-1])])[-2:]
    held, layout = what(owner, above, names[-1], shape)
    if isinstance(variable, nnx.LoRAParam):
        held, layout = Leave("a LoRA adapter"), None
    bias = (*path[:-1], "bias")
    return Parameter(".".join(names), stream(names), path, shape, held, layout, bias if bias in flat else None)


def _along(model: Any, path: tuple[Any, ...]) -> list[nnx.Module]:
    """The modules on a path, from the model on."""
    nodes = [model]
    for step in path:
        node = nodes[-1]
        nodes.append(getattr(node, step) if isinstance(step, str) and hasattr(node, step) else node[step])
    return [node for node in nodes if isinstance(node, nnx.Module)]


def _examples(modules: Iterable[Any]) -> list[jax.ShapeDtypeStruct]:
    found: list[jax.ShapeDtypeStruct] = []
    for layer in modules:
        if isinstance(layer, nnx.Linear):
            found += [example(2, layer.in_features), example(2, 8, layer.in_features)]
        elif isinstance(layer, nnx.Conv | nnx.ConvTranspose):
            window = 1 if isinstance(layer.kernel_size, int) else len(layer.kernel_size)
            found += [example(2, *(pixels,) * window, layer.in_features) for pixels in PIXELS]
        elif isinstance(layer, nnx.Embed):
            found.append(example(2, 8, dtype=jnp.int32))
    return list(dict.fromkeys(found))[:GUESSES]
