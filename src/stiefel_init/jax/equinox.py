"""Equinox: the parameters of a module. Its weights are stored as PyTorch's are."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..recipe.layers import ONES, ZEROS, ArrayRef, Constant, Layer, Layout, Leave
from ..recipe.trace import norm_of
from .model import GUESSES, PIXELS, Apply, Model, example, is_floating, kept, no_rule

_NORMS = eqx.nn.LayerNorm, eqx.nn.GroupNorm, eqx.nn.RMSNorm, eqx.nn.BatchNorm
_REPARAMETRIZED = eqx.nn.WeightNorm, eqx.nn.SpectralNorm


def read(model: eqx.Module, apply: Apply | None) -> Model:
    """An Equinox module as `initialize` sees it."""
    flat, structure = jax.tree_util.tree_flatten_with_path(model)
    keys: list[Hashable] = [
        id(leaf) if is_floating(leaf) else None for _, leaf in flat
    ]  # one array may be in two places
    leaves = {key: leaf for key, (_, leaf) in zip(keys, flat) if key is not None}
    parameters = []
    owners: list[Any] = []
    for key, (path, leaf) in zip(keys, flat):
        if key is None:
            continue
        chain, node = [model], model
        for step in path:
            node = _child(node, step)
            if isinstance(node, eqx.Module):
                chain.append(node)
        owners.append(chain[-1])
        name, shape = jax.tree_util.keystr(path, simple=True, separator="."), tuple(leaf.shape)
        last, bias = name.rpartition(".")[2], getattr(chain[-1], "bias", None)
        biased = id(bias) if last == "weight" and is_floating(bias) else None
        parameters.append(ArrayRef(name, name, key, shape, *_what(chain[-1], last, shape, chain), biased))

    def rebuilt(values: Mapping[Hashable, Any]) -> eqx.Module:
        return jax.tree.unflatten(
            structure, [leaf if key is None else values.get(key, leaf) for key, (_, leaf) in zip(keys, flat)]
        )

    def call(values: Mapping[Hashable, Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        running = eqx.nn.inference_mode(rebuilt(values))
        result = running(*given, **named) if apply is None else apply(running, *given, **named)
        return eqx.filter(result, eqx.is_array)

    normalized = norm_of(type(owner).__name__ for owner in owners if isinstance(owner, _NORMS))

    def trainable(spec: Any) -> set[Hashable]:
        return kept(model, spec, keys)

    return Model(
        parameters, leaves, call, rebuilt, normalized, trainable, _examples(owners),
        lambda node: isinstance(node, eqx.nn.State),
    )  # fmt: skip


def _child(node: Any, step: Any) -> Any:
    if isinstance(step, jax.tree_util.GetAttrKey):
        return getattr(node, step.name)
    if isinstance(step, jax.tree_util.SequenceKey):
        return node[step.idx]
    return node[step.key] if isinstance(step, jax.tree_util.DictKey) else None


def _what(
    owner: Any, leaf: str, shape: tuple[int, ...], chain: list[Any]
) -> tuple[Layer | Constant | Leave, Layout | None]:
    if any(isinstance(node, _REPARAMETRIZED) for node in chain):
        kind = next(type(node).__name__ for node in chain if isinstance(node, _REPARAMETRIZED))
        return Leave(f"{kind} computes its weight; initialize the layer before it is wrapped"), None
    rule = next((rule for kinds, rule in _KINDS if isinstance(owner, kinds)), None)
    found = None if rule is None else rule(owner, leaf, shape)
    if found is None:
        return no_rule(owner), None
    what, layout = found if isinstance(found, tuple) else (found, None)
    if isinstance(what, Layer) and any(isinstance(node, eqx.nn.MultiheadAttention) for node in chain):
        return Layer("members", what.count), layout
    return what, layout


Found = Layer | Constant | Leave | tuple[Layer, Layout] | None


def _linear(layer: Any, leaf: str, shape: tuple[int, ...]) -> Found:
    if leaf != "weight":
        return ZEROS
    stacked = math.prod(shape[:-2])  # layers made under vmap
    return Layer(count=stacked), Layout(shape, tuple(range(len(shape))), (stacked * shape[-2], shape[-1]))


def _convolution(layer: Any, leaf: str, shape: tuple[int, ...]) -> Found:
    if leaf != "weight":
        return ZEROS
    window = layer.num_spatial_dims
    *stack, outputs, inputs = shape[: len(shape) - window]
    count, groups = math.prod(stack), layer.groups
    rest = tuple(range(len(shape) - window, len(shape)))
    kernel = shape[len(shape) - window :]
    transposed = isinstance(layer, eqx.nn.ConvTranspose)
    what = Layer("convolution", count * groups, tuple(layer.stride), tuple(layer.dilation), transposed)
    if not transposed:
        return what, Layout(shape, tuple(range(len(shape))), (count * outputs, inputs, *kernel))
    # (stack, groups · outputs, inputs, …) to (stack · groups · inputs, outputs, …)
    split = (count, groups, outputs // groups, inputs, *kernel)
    return what, Layout(
        split, (0, 1, 3, 2, *range(4, 4 + len(rest))), (count * groups * inputs, outputs // groups, *kernel)
    )


def _recurrent(layer: Any, leaf: str, shape: tuple[int, ...]) -> Found:
    if not leaf.startswith("weight"):
        return ZEROS
    gated = leaf == "weight_ih" and isinstance(layer, eqx.nn.LSTMCell)
    return Layer("gates" if gated else "members", shape[0] // layer.hidden_size)


_KINDS: tuple[tuple[Any, Callable[[Any, str, tuple[int, ...]], Found]], ...] = (
    (eqx.nn.Linear, _linear),
    ((eqx.nn.Conv, eqx.nn.ConvTranspose), _convolution),
    ((eqx.nn.LSTMCell, eqx.nn.GRUCell), _recurrent),
    (_NORMS, lambda layer, leaf, shape: {"weight": ONES, "bias": ZEROS}.get(leaf)),
    (eqx.nn.Embedding, lambda layer, leaf, shape: Leave("an embedding")),
    (eqx.nn.PReLU, lambda layer, leaf, shape: Leave("the slope of PReLU")),
)


def _examples(owners: list[Any]) -> list[jax.ShapeDtypeStruct]:
    found: list[jax.ShapeDtypeStruct] = []
    for layer in owners:
        if isinstance(layer, eqx.nn.Linear):
            size = layer.in_features
            found += [example()] if size == "scalar" else [example(size), example(8, size)]
        elif isinstance(layer, eqx.nn.Conv | eqx.nn.ConvTranspose):
            found += [example(layer.in_channels, *(pixels,) * layer.num_spatial_dims) for pixels in PIXELS]
        elif isinstance(layer, eqx.nn.Embedding):
            found += [example(8, dtype=jnp.int32), example(dtype=jnp.int32)]
    return list(dict.fromkeys(found))[:GUESSES]
