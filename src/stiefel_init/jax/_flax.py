"""Flax: what the layers of Linen and NNX hold, whose attributes have the same names."""

from __future__ import annotations

import math
from typing import Any

from ..recipe.initialize import Layout, axes, dense, einsum, kernel
from ..recipe.layers import ONES, ZEROS, Constant, Layer, Leave
from ._model import no_rule

Shape = tuple[int, ...]
Held = tuple[Layer | Constant | Leave, Layout | None]
NORMS = ("LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm", "InstanceNorm")
_RECURRENT = ("LSTMCell", "OptimizedLSTMCell", "GRUCell", "MGUCell", "SimpleCell", "DenseParams")
_ATTENTION = ("MultiHeadAttention", "MultiHeadDotProductAttention", "SelfAttention")
_CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvLocal")


def what(owner: Any, above: Any, leaf: str, shape: Shape) -> Held:
    """What a parameter of a layer holds.

    Args:
        owner: The layer.
        above: The module it is part of, if any.
        leaf: The parameter's own name.
        shape: Its shape.
    """
    kind, part_of = _kind(owner), _kind(above)
    if kind in NORMS:
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


def guess(path: tuple[str, ...], shape: Shape) -> Held:
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


def stream(names: tuple[str, ...]) -> str:
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
    stride, dilation = (_each(getattr(layer, name), window) for name in ("strides", "kernel_dilation"))
    groups = math.prod(shape[: len(shape) - 2 - window]) * getattr(layer, "feature_group_count", 1)
    held = Layer("convolution", groups, stride, dilation, transposed)
    # A transposed convolution's kernel is (…, inputs, outputs), or (…, outputs, inputs) if `transpose_kernel`.
    swapped = transposed and not layer.transpose_kernel
    return held, kernel(shape, window, swapped=swapped)


def _each(value: Any, window: int) -> Shape:
    return (1,) * window if value is None else (value,) * window if isinstance(value, int) else tuple(value)


def _general(layer: Any, shape: Shape, kind: Any) -> Held:
    """(*batch, *inputs, *outputs)."""
    features = getattr(layer, "out_features", None) or layer.features
    outputs = 1 if isinstance(features, int) else len(features)
    batch = layer.batch_axis if hasattr(layer, "batch_axis") else layer.batch_dims
    batched, rank = len(batch), len(shape)
    count = math.prod(shape[:batched])
    order = range(batched), range(rank - outputs, rank), range(batched, rank - outputs)
    return Layer(kind, count), axes(shape, *order)
