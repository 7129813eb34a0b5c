"""The forward pass through the hidden layers."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .activations import GELU, PRELU, activate
from .memory import load_biases, load_inputs, load_weights
from .parts import dot, product, scales, split, transpose


@triton.jit
def _keep(y, x, kept, scale_up, ACTIVATION: tl.constexpr, PARTS: tl.constexpr):
    """Store what the backward pass needs of a layer: its output x, or for PReLU, GELU and SiLU its pre-activation y.

    Returns the powers of two (down, up) that scale x for the next product.
    """
    values, largest = x, x
    if ACTIVATION == PRELU or ACTIVATION >= GELU:
        values, largest = y, tl.maximum(tl.abs(y), tl.abs(x))
    down, up = scales(largest, PARTS)
    if PARTS == 1:
        tl.store(scale_up, up)
        tl.store(kept, (values * down).to(tl.float16))  # (ROWS, TILE_HIDDEN)
    else:
        tl.store(kept, values)  # (ROWS, TILE_HIDDEN)
    return down, up


@triton.jit
def _first_layer(parameters, batch, tile, layout, config):
    """The first layer's pre-activations, (ROWS, TILE_HIDDEN), summed over tiles of inputs."""
    y = tl.zeros((config.ROWS, config.TILE_HIDDEN), tl.float32)
    for k in range(0, config.INPUTS, config.TILE_INPUTS):
        columns = k + tl.arange(0, config.TILE_INPUTS)
        mask = layout.is_unit[:, None] & (columns < config.INPUTS)[None, :]
        at = parameters + layout.units[:, None] * config.INPUTS + columns[None, :]
        weights = tl.load(at, mask=mask, other=0.0)  # (TILE_HIDDEN, TILE_INPUTS)
        inputs = load_inputs(batch.features, tile, columns, config.INPUTS)  # (ROWS, TILE_INPUTS)
        y += dot(inputs, tl.trans(weights), config.PARTS, config.EXACT)
    return y * batch.scale + load_biases(parameters + config.WIDTH * config.INPUTS, config.WIDTH, config.TILE_HIDDEN)


@triton.jit
def _hidden_layer(x, down, up, layer, parameters, config):
    """A further layer's pre-activations, (ROWS, TILE_HIDDEN), from the outputs x of the layer before."""
    x_parts = split(x * down, config.PARTS)
    at = parameters + config.FIRST_LAYER + (layer - 1) * config.HIDDEN_LAYER
    weights = load_weights(at, config.WIDTH, config.TILE_HIDDEN)  # (TILE_HIDDEN, TILE_HIDDEN)
    w_parts = split(weights * config.WEIGHT_SCALE, config.PARTS)
    zeros = tl.zeros((config.ROWS, config.TILE_HIDDEN), tl.float32)
    y = product(x_parts, transpose(w_parts), zeros, config.PARTS) * (up / config.WEIGHT_SCALE)
    at_biases = parameters + config.FIRST_LAYER + layer * config.HIDDEN_LAYER - config.WIDTH
    return y + load_biases(at_biases, config.WIDTH, config.TILE_HIDDEN)


@triton.jit
def forward(parameters, batch, tile, layout, config):
    """The last hidden layer's outputs, (ROWS, TILE_HIDDEN). Every layer keeps what its derivative needs."""
    slope = config.SLOPE
    y = _first_layer(parameters, batch, tile, layout, config)
    if config.ACTIVATION == PRELU:
        slope = tl.load(parameters + layout.slopes)
    x = activate(y, slope, config.ACTIVATION, config.SCALE)
    down, up = _keep(y, x, tile.kept, tile.scales_up, config.ACTIVATION, config.PARTS)
    for layer in range(1, layout.depth):
        y = _hidden_layer(x, down, up, layer, parameters, config)
        if config.ACTIVATION == PRELU:
            slope = tl.load(parameters + layout.slopes + layer)
        x = activate(y, slope, config.ACTIVATION, config.SCALE)
        kept = tile.kept + layer * (config.ROWS * config.TILE_HIDDEN)
        down, up = _keep(y, x, kept, tile.scales_up + layer, config.ACTIVATION, config.PARTS)
    return x
