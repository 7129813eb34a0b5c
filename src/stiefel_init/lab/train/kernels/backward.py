"""The backward pass through the hidden layers: derivatives, and on the way the gradient of each layer.

dx is the loss's derivative by a layer's outputs, dy that by its pre-activations.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .activations import GELU, PRELU, activate, derivative
from .memory import load_inputs, load_weights
from .optimizer import learn, step
from .parts import product, scales, split, transpose


@triton.jit
def last_layer(dx, kept, kept_up, parameters, tile, layout, config):
    """Go back through the activation of the last hidden layer, and store the gradients of its biases and its slope.

    Takes dx, (ROWS, TILE_HIDDEN), and what the layer kept. Returns dy in parts, each of dx's shape, and before them the
    factor that undoes their scaling.
    """
    slope = config.SLOPE
    if config.ACTIVATION == PRELU:
        slope = tl.load(parameters + layout.slopes + layout.depth - 1)
        at_slope = tile.share + layout.slopes + layout.depth - 1
        tl.store(at_slope, tl.sum(dx * tl.minimum(kept.to(tl.float32), 0.0)) * kept_up)
    dy = derivative(dx, kept, kept_up, slope, config.ACTIVATION, config.SCALE)
    at_biases = tile.share + config.FIRST_LAYER + (layout.depth - 1) * config.HIDDEN_LAYER - config.WIDTH + layout.units
    tl.store(at_biases, tl.sum(dy, 0), mask=layout.is_unit)  # (TILE_HIDDEN,)
    down, up = scales(dy, config.PARTS)
    return up, split(dy * down, config.PARTS)


@triton.jit
def hidden_layers(dy_up, dy_parts, stored, step_size, tile, layout, config):
    """Walk back from the last hidden layer to the first, and apply or store the gradients on the way.

    Takes what `last_layer` returns, and returns the same of the first layer. The loop carries dy in parts, and the
    moments of the weights it comes to next: see README.md on what the compilers make of it.
    """
    moment1, moment2 = 0.0, 0.0
    if config.WHOLE and config.ADAM:  # load them long before they are needed; a single hidden layer has none
        at_last = config.FIRST_LAYER + (layout.depth - 2) * config.HIDDEN_LAYER + layout.square
        mask = layout.square < (layout.depth - 1) * config.HIDDEN_LAYER
        if config.TILE_HIDDEN != config.WIDTH:
            mask = mask & layout.in_square
        moment1 = tl.load(stored.moment1 + at_last, mask=mask)  # (TILE_HIDDEN²,)
        moment2 = tl.load(stored.moment2 + at_last, mask=mask)  # (TILE_HIDDEN²,)
    for i in range(layout.depth - 1):
        layer = layout.depth - 2 - i  # go from layer + 1, whose dy we have, to `layer`, by the weights between them
        at = config.FIRST_LAYER + layer * config.HIDDEN_LAYER
        weights = load_weights(stored.parameters + at, config.WIDTH, config.TILE_HIDDEN)  # (TILE_HIDDEN, TILE_HIDDEN)
        w_parts = split(weights * config.WEIGHT_SCALE, config.PARTS)
        zeros = tl.zeros((config.ROWS, config.TILE_HIDDEN), tl.float32)
        dx = product(dy_parts, w_parts, zeros, config.PARTS) * (dy_up / config.WEIGHT_SCALE)  # (ROWS, TILE_HIDDEN)
        kept = tl.load(tile.kept + layer * (config.ROWS * config.TILE_HIDDEN))  # (ROWS, TILE_HIDDEN)
        kept_up = tl.load(tile.scales_up + layer) if config.PARTS == 1 else 1.0
        slope, x_parts = _outputs(dx, kept, kept_up, layer, stored.parameters, tile, layout, config)
        zeros = tl.zeros((config.TILE_HIDDEN, config.TILE_HIDDEN), tl.float32)
        gradient = product(transpose(dy_parts), x_parts, zeros, config.PARTS)  # (TILE_HIDDEN, TILE_HIDDEN)
        gradient = tl.reshape(gradient * (dy_up * kept_up), (config.TILE_HIDDEN * config.TILE_HIDDEN,))
        if config.WHOLE:
            state = tl.reshape(weights, (config.TILE_HIDDEN * config.TILE_HIDDEN,)), moment1, moment2
            step(stored, at + layout.square, layout.in_square, state, gradient, step_size, config.ADAM)
            if config.ADAM:
                moment1 = _load_ahead(stored.moment1, layer, layout, config)
                moment2 = _load_ahead(stored.moment2, layer, layout, config)
        else:
            tl.store(tile.share + at + layout.square, gradient, mask=layout.in_square)  # (TILE_HIDDEN²,)
        dy = derivative(dx, kept, kept_up, slope, config.ACTIVATION, config.SCALE)
        tl.store(tile.share + at - config.WIDTH + layout.units, tl.sum(dy, 0), mask=layout.is_unit)  # (TILE_HIDDEN,)
        down, dy_up = scales(dy, config.PARTS)
        dy_parts = split(dy * down, config.PARTS)
    return dy_up, dy_parts


@triton.jit
def _outputs(dx, kept, kept_up, layer, parameters, tile, layout, config):
    """(PReLU's slope, the layer's outputs in parts), the latter scaled as kept is. Stores the slope's gradient."""
    if config.ACTIVATION == PRELU:
        slope = tl.load(parameters + layout.slopes + layer)
        at_slope = tile.share + layout.slopes + layer
        tl.store(at_slope, tl.sum(dx * tl.minimum(kept.to(tl.float32), 0.0)) * kept_up)
        return slope, split(activate(kept.to(tl.float32), slope, config.ACTIVATION, config.SCALE), config.PARTS)
    elif config.ACTIVATION >= GELU:  # of the input itself, then scaled as the input is kept
        x = activate(kept.to(tl.float32) * kept_up, config.SLOPE, config.ACTIVATION, config.SCALE) / kept_up
        return config.SLOPE, split(x, config.PARTS)
    else:
        return config.SLOPE, split(kept, config.PARTS)


@triton.jit
def _load_ahead(moment, layer, layout, config):
    """A moment of the weights before `layer`, which come next, (TILE_HIDDEN²,). Before the first layer: any."""
    at = moment + config.FIRST_LAYER + tl.maximum(layer - 1, 0) * config.HIDDEN_LAYER + layout.square
    return tl.load(at, mask=layout.in_square)


@triton.jit
def first_layer(dy_up, dy_parts, batch, stored, step_size, tile, layout, config):
    """Apply or store the gradient of the first layer's weights, a tile of inputs at a time.

    It is computed transposed: see README.md on what the compilers make of it.
    """
    for k in range(0, config.INPUTS, config.TILE_INPUTS):
        columns = k + tl.arange(0, config.TILE_INPUTS)
        inputs = tl.trans(load_inputs(batch.features, tile, columns, config.INPUTS))  # (TILE_INPUTS, ROWS)
        inputs_down, inputs_up = scales(inputs, 3 if config.EXACT else config.PARTS)
        inputs_parts = split(inputs * inputs_down, config.PARTS)
        zeros = tl.zeros((config.TILE_INPUTS, config.TILE_HIDDEN), tl.float32)
        gradient = product(inputs_parts, dy_parts, zeros, config.PARTS, config.EXACT)
        gradient = gradient * (batch.scale * inputs_up) * dy_up
        at = layout.units[None, :] * config.INPUTS + columns[:, None]
        mask = (columns < config.INPUTS)[:, None] & layout.is_unit[None, :]
        if config.WHOLE:
            learn(stored, at, mask, gradient, step_size, config.ADAM)
        else:
            tl.store(tile.share + at, gradient, mask=mask)  # (TILE_INPUTS, TILE_HIDDEN)
