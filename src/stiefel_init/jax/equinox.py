"""Equinox: the parameters of a module. Its weights are stored as PyTorch's are."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..recipe.layers import A_SLOPE, AN_EMBEDDING, ONES, ZEROS, ArrayRef, Held, Layer, Layout, Leave, Shape, no_rule
from ..recipe.trace import SIDES, norm_of
from .model import Inputs, JaxAdapter, example, is_floating

_NORMS = eqx.nn.LayerNorm, eqx.nn.GroupNorm, eqx.nn.RMSNorm, eqx.nn.BatchNorm


class EquinoxAdapter(JaxAdapter):
    """An Equinox module."""

    def read(self, given: Inputs | None) -> None:
        flat = jax.tree_util.tree_flatten_with_path(self.model)[0]
        self.keys = [id(leaf) if is_floating(leaf) else None for _, leaf in flat]  # one array may be in two places
        self.leaves = {key: leaf for key, (_, leaf) in zip(self.keys, flat) if key is not None}
        self.parameters = []
        owners: list[Any] = []
        for key, (path, leaf) in zip(self.keys, flat):
            if key is None:
                continue
            chain, node = [self.model], self.model
            for step in path:
                node = _child(node, step)
                if isinstance(node, eqx.Module):
                    chain.append(node)
            owners.append(chain[-1])
            name, shape = jax.tree_util.keystr(path, simple=True, separator="."), tuple(leaf.shape)
            last, bias = name.rpartition(".")[2], getattr(chain[-1], "bias", None)
            biased = id(bias) if last == "weight" and is_floating(bias) else None
            self.parameters.append(ArrayRef(name, name, key, shape, *_what(chain, last, shape), biased))
        self.normalized = norm_of(type(owner).__name__ for owner in owners if isinstance(owner, _NORMS))
        self.examples = _examples(owners)

    def running(self, values: Mapping[Hashable, Any]) -> Any:
        return eqx.nn.inference_mode(self.rebuilt(values))

    def call(self, values: Mapping[Hashable, Any], given: Inputs) -> Any:
        return eqx.filter(super().call(values, given), eqx.is_array)

    def is_state(self, node: Any) -> bool:
        return isinstance(node, eqx.nn.State)


def _child(node: Any, step: Any) -> Any:
    if isinstance(step, jax.tree_util.GetAttrKey):
        return getattr(node, step.name)
    if isinstance(step, jax.tree_util.SequenceKey):
        return node[step.idx]
    return node[step.key] if isinstance(step, jax.tree_util.DictKey) else None


def _what(chain: list[Any], leaf: str, shape: Shape) -> tuple[Held, Layout | None]:
    """What the parameter `leaf` of the last of a chain of modules holds."""
    owner = chain[-1]
    for node in chain:
        if isinstance(node, eqx.nn.WeightNorm | eqx.nn.SpectralNorm):
            return Leave(f"{type(node).__name__} computes its weight; initialize the layer before it is wrapped"), None
    if isinstance(owner, _NORMS):
        return {"weight": ONES, "bias": ZEROS}.get(leaf, no_rule(owner)), None
    if isinstance(owner, eqx.nn.Embedding | eqx.nn.PReLU):
        return AN_EMBEDDING if isinstance(owner, eqx.nn.Embedding) else A_SLOPE, None
    if not isinstance(owner, _LAYERS):
        return no_rule(owner), None
    if not leaf.startswith("weight"):
        return ZEROS, None
    if isinstance(owner, eqx.nn.LSTMCell | eqx.nn.GRUCell):
        gated = leaf == "weight_ih" and isinstance(owner, eqx.nn.LSTMCell)
        return Layer("gates" if gated else "recurrent", shape[0] // owner.hidden_size), None
    if not isinstance(owner, eqx.nn.Linear):
        return _convolution(owner, shape)
    attends = any(isinstance(node, eqx.nn.MultiheadAttention) for node in chain)
    stacked = math.prod(shape[:-2])  # layers made under vmap
    rows = Layout(shape, tuple(range(len(shape))), (stacked * shape[-2], shape[-1]))
    return Layer("members" if attends else "linear", stacked), rows


_LAYERS = eqx.nn.Linear, eqx.nn.Conv, eqx.nn.ConvTranspose, eqx.nn.LSTMCell, eqx.nn.GRUCell


def _convolution(layer: Any, shape: Shape) -> tuple[Held, Layout]:
    window = layer.num_spatial_dims
    *stack, outputs, inputs = shape[: len(shape) - window]
    count, groups, kernel = math.prod(stack), layer.groups, shape[len(shape) - window :]
    transposed = isinstance(layer, eqx.nn.ConvTranspose)
    held = Layer("convolution", count * groups, tuple(layer.stride), tuple(layer.dilation), transposed)
    if not transposed:
        return held, Layout(shape, tuple(range(len(shape))), (count * outputs, inputs, *kernel))
    # (stack, groups · outputs, inputs, …) to (stack · groups · inputs, outputs, …)
    split, order = (count, groups, outputs // groups, inputs, *kernel), (0, 1, 3, 2, *range(4, 4 + window))
    return held, Layout(split, order, (count * groups * inputs, outputs // groups, *kernel))


def _examples(owners: list[Any]) -> Iterator[jax.ShapeDtypeStruct]:
    for layer in owners:
        if isinstance(layer, eqx.nn.Linear):
            size = layer.in_features
            yield from [example()] if size == "scalar" else [example(size), example(8, size)]
        elif isinstance(layer, eqx.nn.Conv | eqx.nn.ConvTranspose):
            yield from (example(layer.in_channels, *(side,) * layer.num_spatial_dims) for side in SIDES)
        elif isinstance(layer, eqx.nn.Embedding):
            yield from (example(8, dtype=jnp.int32), example(dtype=jnp.int32))
