"""What the layers of Keras hold: matrices in their layouts, constants, or something to be left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras
from keras import layers

from ..core.errors import StiefelError
from ..recipe import layers as of_weights
from ..recipe.layers import ZEROS, ArrayRef, Constant, Layer, Layout, Leave, Shape, dense, each_axis, kernel

Held = tuple[of_weights.Held, Layout | None]
CONVOLUTIONS = layers.Conv1D, layers.Conv2D, layers.Conv3D
TRANSPOSED = layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose
DEPTHWISE = layers.DepthwiseConv1D, layers.DepthwiseConv2D
SEPARABLE = layers.SeparableConv1D, layers.SeparableConv2D
PRODUCTS = layers.Dense, layers.EinsumDense, *CONVOLUTIONS, *TRANSPOSED, *DEPTHWISE, *SEPARABLE
CELLS = layers.SimpleRNNCell, layers.LSTMCell, layers.GRUCell
ATTENTION = layers.MultiHeadAttention, layers.GroupQueryAttention
NORMS = layers.BatchNormalization, layers.LayerNormalization, layers.GroupNormalization, layers.RMSNormalization


def inner(layer: Any) -> list[Any]:
    """The layers that a layer holds itself."""
    if isinstance(layer, keras.Model):
        return list(layer.layers)
    return list(layer._flatten_layers(include_self=False, recursive=False))


_AS_TORCH = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


def parameters_of(model: Any) -> list[ArrayRef]:
    """All trainable parameters of a model, under all their names."""
    counts: dict[str, int] = {}
    streams: dict[int, str] = {}

    def visit(layer: Any, above: tuple[Any, ...], names: tuple[str, ...], own: tuple[str, ...]) -> Iterator[ArrayRef]:
        if not layer.built:
            raise StiefelError(
                f"{'.'.join(names) or 'model'} is not built, so it has no weights yet; call the model on an example "
                "first."
            )
        biases = {variable.name: id(variable) for variable in layer._trainable_variables}
        for variable in layer._trainable_variables:
            leaf, shape = variable.name, tuple(variable.shape)
            what, layout = _what(layer, above, leaf, shape)
            if not (variable.trainable and layer.trainable) and not isinstance(what, Leave):
                what, layout = Leave("frozen: trainable is False"), None
            name, stream = ".".join((*names, leaf)), ".".join((*own, _AS_TORCH.get(leaf, leaf)))
            bias = biases.get("bias") if isinstance(what, Layer) else None
            yield ArrayRef(name, stream, id(variable), shape, what, layout, bias)
        for child in inner(layer):
            if isinstance(child, layers.InputLayer):
                continue
            if id(child) not in streams:
                streams[id(child)] = _renumbered(child, counts)
            yield from visit(child, (*above, layer), (*names, child.name), (*own, streams[id(child)]))

    return list(visit(model, (), (), ()))


def _renumbered(layer: Any, counts: dict[str, int]) -> str:
    """A layer's name; where Keras has numbered it, counted in this model alone, whatever was made before."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(layer).__name__).lower()
    if not re.fullmatch(rf"{re.escape(plain)}(_\d+)?", layer.name):
        return str(layer.name)
    number = counts[plain] = counts.get(plain, -1) + 1
    return f"{plain}_{number}" if number else plain


def _what(layer: Any, above: tuple[Any, ...], leaf: str, shape: Shape) -> Held:
    if leaf.startswith("lora_"):
        return of_weights.AN_ADAPTER, None
    if isinstance(layer, NORMS):
        return Leave("a normalization"), None
    if isinstance(layer, layers.Embedding):
        return of_weights.AN_EMBEDDING, None
    if isinstance(layer, layers.PReLU):
        return of_weights.A_SLOPE, None
    if isinstance(layer, CELLS):
        return _gates(layer, leaf, shape)
    if not isinstance(layer, PRODUCTS):
        return of_weights.no_rule(layer), None
    if leaf == "bias":
        return ZEROS, None
    if isinstance(layer, layers.Dense):
        return Layer(), dense(shape)
    if isinstance(layer, layers.EinsumDense):
        held, layout = of_weights.einsum(layer.equation, shape)
        if isinstance(held, Layer) and any(isinstance(parent, ATTENTION) for parent in above):
            return Layer("members", held.count), layout
        return held, layout
    return _convolution(layer, leaf, shape)


def _gates(cell: Any, leaf: str, shape: Shape) -> Held:
    units = cell.units
    if getattr(cell.activation, "__name__", "") == "relu" and shape[1] == units and leaf != "bias":
        return Layer("state" if leaf == "recurrent_kernel" else "members"), dense(shape)
    if leaf != "bias":
        gated = leaf == "kernel" and isinstance(cell, layers.LSTMCell)
        return Layer("gates" if gated else "recurrent", shape[1] // units), dense(shape)
    forget = isinstance(cell, layers.LSTMCell) and cell.unit_forget_bias
    return (Constant(0.0, (units, 2 * units)) if forget else ZEROS), None


def _convolution(layer: Any, leaf: str, shape: Shape) -> Held:
    window = len(shape) - 2
    stride, dilation = (each_axis(getattr(layer, name), window) for name in ("strides", "dilation_rate"))
    if leaf == "depthwise_kernel" or isinstance(layer, DEPTHWISE):
        # (*window, inputs, multiplier): a group for each input.
        inputs, multiplier = shape[window:]
        order = (window, window + 1, *range(window))
        return Layer("convolution", inputs, stride, dilation), Layout(
            shape, order, (inputs * multiplier, 1, *shape[:window])
        )
    if leaf == "pointwise_kernel":
        return Layer("convolution", 1, (1,) * window, (1,) * window), kernel(shape, window)
    transposed = isinstance(layer, TRANSPOSED)
    groups = 1 if transposed else layer.groups
    return Layer("convolution", groups, stride, dilation, transposed), kernel(shape, window)
