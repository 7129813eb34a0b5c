"""Flax: the parameters of Linen's variables and of NNX modules, whose layers have attributes of the same names."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
from flax import nnx

from ..recipe.layers import (
    ONES,
    ZEROS,
    ArrayRef,
    Constant,
    Layer,
    Layout,
    Leave,
    Shape,
    axes,
    dense,
    each_axis,
    einsum,
    kernel,
)
from ..recipe.trace import norm_of
from .model import GUESSES, PIXELS, Apply, Model, example, is_floating, kept, no_rule
from .trace import flow_of

Held = tuple[Layer | Constant | Leave, Layout | None]
_NORMS = ("LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm", "InstanceNorm")
_RECURRENT = ("LSTMCell", "OptimizedLSTMCell", "GRUCell", "MGUCell", "SimpleCell", "DenseParams")
_ATTENTION = ("MultiHeadAttention", "MultiHeadDotProductAttention", "SelfAttention")
_CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvLocal")


def _what(owner: Any, above: Any, leaf: str, shape: Shape) -> Held:
    """What the parameter `leaf` of a layer holds; `above` is the module that the layer is part of, if any."""
    kind, part_of = _kind(owner), _kind(above)
    if kind in _NORMS:
        return {"scale": ONES, "bias": ZEROS}.get(leaf, no_rule(owner)), None
    if kind in ("Embed", "PReLU"):
        return Leave("an embedding" if kind == "Embed" else "the slope of PReLU"), None
    if leaf.startswith("lora_") or "LoRA" in kind:
        return Leave("a LoRA adapter"), None
    known = ("Linear", "Dense", "LinearGeneral", "DenseGeneral", "Einsum", *_CONVOLUTIONS, *_RECURRENT)
    if kind not in known or kind == "ConvLocal":
        return no_rule(owner), None
    if leaf == "bias":
        return ZEROS, None
    if leaf != "kernel":
        return no_rule(owner), None
    if kind in ("Linear", "Dense", "DenseParams"):
        if part_of in _RECURRENT:
            gates = max(shape[-1] // getattr(above, "hidden_features", shape[-1]), 1)
            gated = part_of in ("LSTMCell", "OptimizedLSTMCell")  # from state to state it is square
            return Layer("gates" if gated else "members", math.prod(shape[:-2]) * gates), dense(shape)
        return Layer(count=math.prod(shape[:-2])), dense(shape)
    if kind in _CONVOLUTIONS:
        return _convolution(owner, shape, transposed=kind == "ConvTranspose")
    if kind == "Einsum":
        return einsum(owner.einsum_str, shape)
    return _general(owner, shape, "members" if part_of in _ATTENTION else "linear")


def _guess(path: tuple[str, ...], shape: Shape) -> Held:
    """What a parameter holds, from its name and shape alone."""
    leaf, owner = path[-1], path[-2] if len(path) > 1 else ""
    if leaf == "embedding":
        return Leave("an embedding"), None
    if leaf == "scale":
        return ONES, None
    if leaf == "bias":
        return ZEROS, None
    if leaf != "kernel" or len(shape) < 2:
        return Leave(f"no rule for a parameter called {leaf}"), None
    if len(shape) == 2:
        return Layer(), dense(shape)
    if len(shape) == 3 and owner in ("query", "key", "value"):
        return Layer("members"), axes(shape, (), (1, 2), (0,))
    if len(shape) == 3 and owner == "out":
        return Layer("members"), axes(shape, (), (2,), (0, 1))
    return Layer("convolution", 1, (1,) * (len(shape) - 2), (1,) * (len(shape) - 2)), kernel(shape, len(shape) - 2)


def _stream(names: tuple[str, ...]) -> str:
    """The name of a parameter's random numbers: as PyTorch would call it."""
    return ".".join(
        (*names[:-1], {"kernel": "weight", "scale": "weight", "embedding": "weight"}.get(names[-1], names[-1]))
    )


def _kind(owner: Any) -> str:
    """The class of Flax's own that a module is, or comes from."""
    own = (base.__name__ for base in type(owner).__mro__ if base.__module__.startswith("flax."))
    return next(own, type(owner).__name__)


def _convolution(layer: Any, shape: Shape, *, transposed: bool) -> Held:
    size = layer.kernel_size
    window = 1 if isinstance(size, int) else len(size)
    stride, dilation = (each_axis(getattr(layer, name), window) for name in ("strides", "kernel_dilation"))
    groups = math.prod(shape[: len(shape) - 2 - window]) * getattr(layer, "feature_group_count", 1)
    held = Layer("convolution", groups, stride, dilation, transposed)
    # A transposed convolution's kernel is (…, inputs, outputs), or (…, outputs, inputs) if `transpose_kernel`.
    swapped = transposed and not layer.transpose_kernel
    return held, kernel(shape, window, swapped=swapped)


def _general(layer: Any, shape: Shape, kind: Any) -> Held:
    """(*batch, *inputs, *outputs)."""
    features = getattr(layer, "out_features", None) or layer.features
    outputs = 1 if isinstance(features, int) else len(features)
    batch = layer.batch_axis if hasattr(layer, "batch_axis") else layer.batch_dims
    batched, rank = len(batch), len(shape)
    count = math.prod(shape[:batched])
    order = range(batched), range(rank - outputs, rank), range(batched, rank - outputs)
    return Layer(kind, count), axes(shape, *order)


def read_linen(variables: Any, apply: Apply | None, inputs: tuple[tuple[Any, ...], dict[str, Any]] | None) -> Model:
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
        held, layout = _what(owner, layers.get(names[:-2]), names[-1], shape) if known else _guess(names, shape)
        bias = (*path[:-1], "bias")
        biased = bias if isinstance(held, Layer) and bias in leaves else None
        parameters.append(ArrayRef(".".join(names), _stream(names), path, shape, held, layout, biased))
    scaled = ["" for path in paths if path[-1] == "scale"]
    normalized = norm_of({type(layer).__name__ for layer in layers.values()} & {*_NORMS} if layers else scaled)

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
    found: dict[tuple[str, ...], Any] = {}

    def look(method: Any, given: Any, named: Any, context: Any) -> Any:
        found.setdefault(context.module.path, context.module)
        return method(*given, **named)

    with linen.intercept_methods(look):
        flow_of(lambda held, given: call(held, *given), leaves, inputs, dict.fromkeys(leaves, ""), (), lambda _: False)
    return found


def read_nnx(model: nnx.Module, apply: Apply | None) -> Model:
    """An NNX module as `initialize` sees it; it is changed in place, as `nnx.update` changes it."""
    definition, state = nnx.split(model)
    flat = dict(nnx.to_flat_state(state))
    leaves: dict[Any, jax.Array] = {
        path: value for path, variable in flat.items() if is_floating(value := variable.get_value())
    }
    order = {path: place for place, path in enumerate(_paths(model))}
    parameters, owners = [], []
    for path in sorted(leaves, key=lambda path: order.get(path, len(order))):
        if not isinstance(flat[path], nnx.Param):
            continue
        names, shape = tuple(str(step) for step in path), tuple(leaves[path].shape)
        above, owner = [None, *_along(model, path[:-1])][-2:]
        owners.append(owner)
        held = _what(owner, above, names[-1], shape)
        held = (Leave("a LoRA adapter"), None) if isinstance(flat[path], nnx.LoRAParam) else held
        bias = (*path[:-1], "bias") if (*path[:-1], "bias") in flat else None
        parameters.append(ArrayRef(".".join(names), _stream(names), path, shape, *held, bias))

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

    normalized = norm_of({type(owner).__name__ for owner in owners} & {*_NORMS})

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
