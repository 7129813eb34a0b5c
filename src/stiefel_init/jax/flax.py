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

from ..core.errors import StiefelError
from ..recipe import layers
from ..recipe.layers import AN_ADAPTER, AN_EMBEDDING, ONES, ZEROS, ArrayRef, Layer, Layout, Leave, Shape, no_rule
from ..recipe.trace import SIDES, norm_of
from .model import Inputs, JaxAdapter, example, is_floating
from .trace import flow_of

Held = tuple[layers.Held, Layout | None]
_NORMS = ("LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm", "InstanceNorm")
_RECURRENT = ("LSTMCell", "OptimizedLSTMCell", "GRUCell", "MGUCell", "SimpleCell", "DenseParams")
_ATTENTION = ("MultiHeadAttention", "MultiHeadDotProductAttention", "SelfAttention")
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_LAYERS = ("Linear", "Dense", "LinearGeneral", "DenseGeneral", "Einsum", *_CONVOLUTIONS, *_RECURRENT)


def _what(owner: Any, above: Any, leaf: str, shape: Shape) -> Held:
    """What the parameter `leaf` of a layer holds; `above` is the module that the layer is part of, if any."""
    kind, part_of = _kind(owner), _kind(above)
    if kind in _NORMS:
        return {"scale": ONES, "bias": ZEROS}.get(leaf, no_rule(owner)), None
    if kind in ("Embed", "PReLU"):
        return AN_EMBEDDING if kind == "Embed" else layers.A_SLOPE, None
    if leaf.startswith("lora_") or "LoRA" in kind:
        return AN_ADAPTER, None
    if kind not in _LAYERS or leaf not in ("kernel", "bias"):
        return no_rule(owner), None
    if leaf == "bias":
        return ZEROS, None
    if kind in ("Linear", "Dense", "DenseParams"):
        if part_of in _RECURRENT:
            gates = max(shape[-1] // getattr(above, "hidden_features", shape[-1]), 1)
            gated = part_of in ("LSTMCell", "OptimizedLSTMCell")  # from state to state it is square
            relu = getattr(getattr(above, "activation_fn", None), "__name__", "") == "relu"
            held = Layer("gates" if gated else "members" if relu else "recurrent", math.prod(shape[:-2]) * gates)
            return held, layers.dense(shape)
        return Layer(count=math.prod(shape[:-2])), layers.dense(shape)
    if kind in _CONVOLUTIONS:
        return _convolution(owner, shape, transposed=kind == "ConvTranspose")
    if kind == "Einsum":
        return layers.einsum(owner.einsum_str, shape)
    return _general(owner, shape, "members" if part_of in _ATTENTION else "linear")


def _guess(path: tuple[str, ...], shape: Shape) -> Held:
    """What a parameter holds, from its name and shape alone."""
    leaf, owner = path[-1], path[-2] if len(path) > 1 else ""
    named: dict[str, layers.Held] = {"embedding": AN_EMBEDDING, "scale": ONES, "bias": ZEROS}
    if leaf in named:
        return named[leaf], None
    if leaf != "kernel" or len(shape) < 2:
        return Leave(f"no rule for a parameter called {leaf}"), None
    if len(shape) == 2:
        return Layer(), layers.dense(shape)
    if len(shape) == 3 and owner in ("query", "key", "value"):
        return Layer("members"), layers.axes(shape, (), (1, 2), (0,))
    if len(shape) == 3 and owner == "out":
        return Layer("members"), layers.axes(shape, (), (2,), (0, 1))
    window = len(shape) - 2
    return Layer("convolution", 1, (1,) * window, (1,) * window), layers.kernel(shape, window)


def _stream(names: tuple[str, ...]) -> str:
    """The name of a parameter's random numbers: as PyTorch would call it."""
    return ".".join((*names[:-1], "weight" if names[-1] in ("kernel", "scale", "embedding") else names[-1]))


def _kind(owner: Any) -> str:
    """The class of Flax's own that a module is, or comes from."""
    own = (base.__name__ for base in type(owner).__mro__ if base.__module__.startswith("flax."))
    return next(own, type(owner).__name__)


def _convolution(layer: Any, shape: Shape, *, transposed: bool) -> Held:
    size = layer.kernel_size
    window = 1 if isinstance(size, int) else len(size)
    stride, dilation = (layers.each_axis(getattr(layer, name), window) for name in ("strides", "kernel_dilation"))
    groups = math.prod(shape[: len(shape) - 2 - window]) * getattr(layer, "feature_group_count", 1)
    held = Layer("convolution", groups, stride, dilation, transposed)
    # A transposed convolution's kernel is (…, inputs, outputs), or (…, outputs, inputs) if `transpose_kernel`.
    swapped = transposed and not layer.transpose_kernel
    return held, layers.kernel(shape, window, swapped=swapped)


def _general(layer: Any, shape: Shape, kind: Any) -> Held:
    """(*batch, *inputs, *outputs)."""
    features = getattr(layer, "out_features", None) or layer.features
    outputs = 1 if isinstance(features, int) else len(features)
    batch = layer.batch_axis if hasattr(layer, "batch_axis") else layer.batch_dims
    batched, rank = len(batch), len(shape)
    count = math.prod(shape[:batched])
    order = range(batched), range(rank - outputs, rank), range(batched, rank - outputs)
    return Layer(kind, count), layers.axes(shape, *order)


class LinenAdapter(JaxAdapter):
    """A dict of variables, or of parameters alone.

    With `apply` and inputs, the layers are asked what they are; without, their names and shapes tell.
    """

    default = "lecun"

    def read(self, given: Inputs | None) -> None:
        flat = jax.tree_util.tree_flatten_with_path(self.model)[0]
        self.keys = [tuple(str(step.key) for step in path if hasattr(step, "key")) for path, _ in flat]
        self.leaves = {path: leaf for path, (_, leaf) in zip(self.keys, flat) if is_floating(leaf)}
        if given is not None and self.apply is None:
            raise StiefelError("inputs are given but not how to call the model; pass apply=module.apply too.")
        modules = {} if given is None else self._modules(given)
        first = int("params" in self.model)
        self.parameters = []
        for path in (path for path in _in_order(self.model) if path in self.leaves):
            if first and path[0] != "params":
                continue
            names, shape = path[first:], tuple(self.leaves[path].shape)
            if (owner := modules.get(names[:-1])) is not None:
                held, layout = _what(owner, modules.get(names[:-2]), names[-1], shape)
            else:
                held, layout = _guess(names, shape)
            bias = (*path[:-1], "bias")
            biased = bias if isinstance(held, Layer) and bias in self.leaves else None
            self.parameters.append(ArrayRef(".".join(names), _stream(names), path, shape, held, layout, biased))
        found = {type(layer).__name__ for layer in modules.values()}
        scaled = ["" for path in _in_order(self.model) if path[-1] == "scale"]
        self.normalized = norm_of(found & {*_NORMS} if modules else scaled)

    def running(self, values: Mapping[Hashable, Any]) -> Any:
        return self.rebuilt(values)

    def _modules(self, given: Inputs) -> dict[tuple[str, ...], Any]:
        """The modules that are called when the model runs, by their paths."""
        found: dict[tuple[str, ...], Any] = {}

        def look(method: Any, given: Any, named: Any, context: Any) -> Any:
            found.setdefault(context.module.path, context.module)
            return method(*given, **named)

        with linen.intercept_methods(look):
            flow_of(self.call, self.leaves, given, dict.fromkeys(self.leaves, ""), (), self.is_state)
        return found


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


class NnxAdapter(JaxAdapter):
    """An NNX module; it is changed in place, as `nnx.update` changes it."""

    default = "lecun"

    def read(self, given: Inputs | None) -> None:
        self.definition, state = nnx.split(self.model)
        self.flat: dict[Any, Any] = dict(nnx.to_flat_state(state))
        values = {path: variable.get_value() for path, variable in self.flat.items()}
        self.leaves = {path: value for path, value in values.items() if is_floating(value)}
        order = {path: place for place, path in enumerate(_paths(self.model))}
        self.parameters = []
        owners = []
        for path in sorted(self.leaves, key=lambda path: order.get(path, len(order))):
            if not isinstance(self.flat[path], nnx.Param):
                continue
            names, shape = tuple(str(step) for step in path), tuple(self.leaves[path].shape)
            above, owner = [None, *_along(self.model, path[:-1])][-2:]
            owners.append(owner)
            lora = isinstance(self.flat[path], nnx.LoRAParam)
            held = (AN_ADAPTER, None) if lora else _what(owner, above, names[-1], shape)
            bias = (*path[:-1], "bias") if (*path[:-1], "bias") in self.flat else None
            self.parameters.append(ArrayRef(".".join(names), _stream(names), path, shape, *held, bias))
        self.normalized = norm_of({type(owner).__name__ for owner in owners} & {*_NORMS})
        self.examples = _examples(owners)

    def rebuilt(self, values: Mapping[Any, Any]) -> nnx.Module:
        new: Any = [(path, self.flat[path].replace(value)) for path, value in values.items()]
        nnx.update(self.model, nnx.from_flat_state(new))
        return self.model

    def running(self, values: Mapping[Hashable, Any]) -> Any:
        new = [(path, each.replace(values.get(path, each.get_value()))) for path, each in self.flat.items()]
        model: Any = nnx.merge(self.definition, nnx.from_flat_state(new))
        model.eval()
        return model


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


def _examples(modules: Iterable[Any]) -> Iterator[jax.ShapeDtypeStruct]:
    for layer in modules:
        if isinstance(layer, nnx.Linear):
            yield from (example(2, layer.in_features), example(2, 8, layer.in_features))
        elif isinstance(layer, nnx.Conv | nnx.ConvTranspose):
            window = 1 if isinstance(layer.kernel_size, int) else len(layer.kernel_size)
            yield from (example(2, *(side,) * window, layer.in_features) for side in SIDES)
        elif isinstance(layer, nnx.Embed):
            yield example(2, 8, dtype=jnp.int32)
