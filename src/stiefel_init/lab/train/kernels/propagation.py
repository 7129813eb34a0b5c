"""The kernel `propagate`: a training step of one tile of rows of one network, and its phases in their order.

dx is the loss's derivative by a layer's outputs, dy that by its pre-activations.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .arithmetic import GELU, PRELU, activate, derivative, dot, product, scales, split, transpose
from .memory import Batch, Config, Layout, Tile, load_biases, load_inputs, load_weights
from .optimizer import StepSize, Stored, learn, learn_biases, step


@triton.jit(do_not_specialize=["start", "stop", "tiles", "depth"])  # not worth a compilation for each of their values
def propagate(
    parameters, moment1, moment2, rates, keeps, shares, kept, scales_up, losses, corrects, features, targets, order,
    start, stop, tiles, order_stride, parameters_stride, scale, bias_correction_1, bias_correction_2, depth,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, CLASSES: tl.constexpr, TILE_HIDDEN: tl.constexpr,
    TILE_INPUTS: tl.constexpr, TILE_CLASSES: tl.constexpr, ROWS: tl.constexpr, ACTIVATION: tl.constexpr,
    SLOPE: tl.constexpr, SCALE: tl.constexpr,
    REGRESSION: tl.constexpr, PARTS: tl.constexpr, EXACT: tl.constexpr, WHOLE: tl.constexpr, ADAM: tl.constexpr,
    DECAYS: tl.constexpr,
):  # fmt: skip
    """Train one network on one tile of the rows order[start:stop] of its batch.

    The arrays are those of all networks; README.md has their shapes. `Config`, `Batch` and `StepSize` explain the rest.
    """
    _propagate(
        Stored(parameters, moment1, moment2), rates, keeps, bias_correction_1, bias_correction_2, shares, kept,
        scales_up, losses, corrects, Batch(features, targets, scale, start, stop), order, tiles, order_stride,
        parameters_stride, depth,
        Config(
            INPUTS=INPUTS, WIDTH=WIDTH, CLASSES=CLASSES, TILE_INPUTS=TILE_INPUTS, TILE_HIDDEN=TILE_HIDDEN,
            TILE_CLASSES=TILE_CLASSES, ROWS=ROWS, ACTIVATION=ACTIVATION, SLOPE=SLOPE, SCALE=SCALE,
            REGRESSION=REGRESSION, PARTS=PARTS, EXACT=EXACT, WHOLE=WHOLE, ADAM=ADAM, DECAYS=DECAYS,
            FIRST_LAYER=WIDTH * INPUTS + WIDTH, HIDDEN_LAYER=WIDTH * WIDTH + WIDTH,
            WEIGHT_SCALE=256.0 if PARTS == 1 else 1.0,
        ),
    )  # fmt: skip


@triton.jit
def _propagate(
    stored, rates, keeps, bias_correction_1, bias_correction_2, shares, kept, scales_up, losses, corrects, batch, order,
    tiles, order_stride, parameters_stride, depth, config,
):  # fmt: skip
    """Find the program's network and rows, and take them through the phases."""
    network = (tl.program_id(0) // tiles).to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    keep = tl.load(keeps + network) if config.DECAYS else 1.0
    step_size = StepSize(tl.load(rates + network), bias_correction_1, bias_correction_2, keep)
    stored = Stored(
        stored.parameters + network * parameters_stride,
        stored.moment1 + network * parameters_stride,
        stored.moment2 + network * parameters_stride,
    )
    share = shares + program * parameters_stride

    at_head = config.FIRST_LAYER + (depth - 1) * config.HIDDEN_LAYER
    at_slopes = at_head + config.CLASSES * config.WIDTH + config.CLASSES
    units = tl.arange(0, config.TILE_HIDDEN)
    is_unit = units < config.WIDTH
    i = tl.arange(0, config.TILE_HIDDEN * config.TILE_HIDDEN)
    square = i // config.TILE_HIDDEN * config.WIDTH + i % config.TILE_HIDDEN
    in_square = None
    if config.TILE_HIDDEN != config.WIDTH:
        in_square = (i // config.TILE_HIDDEN < config.WIDTH) & (i % config.TILE_HIDDEN < config.WIDTH)
    layout = Layout(depth, at_head, at_slopes, units, is_unit, square, in_square)

    i = tl.arange(0, config.ROWS)
    scales_up += program * depth
    kept += program * depth * (config.ROWS * config.TILE_HIDDEN) + i[:, None] * config.TILE_HIDDEN + units[None, :]
    place = batch.start + (tl.program_id(0) % tiles) * config.ROWS + i
    live = place < batch.stop
    rows = tl.load(order + network * order_stride + place, mask=live, other=0).to(tl.int64)  # (ROWS,)
    tile = Tile(rows, live, kept, scales_up, share)

    x = forward(stored.parameters, batch, tile, layout, config)
    dx, last_kept, last_up = head(x, batch, losses, corrects, stored, step_size, tile, layout, config)
    dy_up, dy_parts = last_layer(dx, last_kept, last_up, stored.parameters, tile, layout, config)
    dy_up, dy_parts = hidden_layers(dy_up, dy_parts, stored, step_size, tile, layout, config)
    first_layer(dy_up, dy_parts, batch, stored, step_size, tile, layout, config)
    if config.WHOLE:
        learn_biases(stored, tile, layout, step_size, config)


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
def _first_pre_activations(parameters, batch, tile, layout, config):
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
def _pre_activations(x, down, up, layer, parameters, config):
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
    y = _first_pre_activations(parameters, batch, tile, layout, config)
    if config.ACTIVATION == PRELU:
        slope = tl.load(parameters + layout.slopes)
    x = activate(y, slope, config.ACTIVATION, config.SCALE)
    down, up = _keep(y, x, tile.kept, tile.scales_up, config.ACTIVATION, config.PARTS)
    for layer in range(1, layout.depth):
        y = _pre_activations(x, down, up, layer, parameters, config)
        if config.ACTIVATION == PRELU:
            slope = tl.load(parameters + layout.slopes + layer)
        x = activate(y, slope, config.ACTIVATION, config.SCALE)
        kept = tile.kept + layer * (config.ROWS * config.TILE_HIDDEN)
        down, up = _keep(y, x, kept, tile.scales_up + layer, config.ACTIVATION, config.PARTS)
    return x


@triton.jit
def head(x, batch, losses, corrects, stored, step_size, tile, layout, config):
    """Add up the loss, apply or store the output layer's gradient, and start the way back.

    Given the last hidden layer's outputs x, (ROWS, TILE_HIDDEN), returns the loss's derivative by x, what that layer
    kept, both of x's shape, and the factor that undoes the scaling of what it kept.
    """
    program = tl.program_id(0).to(tl.int64)
    classes = tl.arange(0, config.TILE_CLASSES)
    mask = (classes < config.CLASSES)[:, None] & layout.is_unit[None, :]
    at = layout.head + classes[:, None] * config.WIDTH + layout.units[None, :]
    weights = tl.load(stored.parameters + at, mask=mask, other=0.0)  # (TILE_CLASSES, TILE_HIDDEN)
    out = dot(x, tl.trans(weights), config.PARTS)  # (ROWS, TILE_CLASSES)
    at_biases = stored.parameters + layout.head + config.CLASSES * config.WIDTH
    out += load_biases(at_biases, config.CLASSES, config.TILE_CLASSES)
    total, correct, d_out = loss(out, batch, tile, config.CLASSES, config.TILE_CLASSES, config.REGRESSION)
    tl.store(losses + program, tl.load(losses + program) + total)
    tl.store(corrects + program, tl.load(corrects + program) + correct)
    gradient = dot(tl.trans(d_out), x, config.PARTS)  # (TILE_CLASSES, TILE_HIDDEN)
    tl.debug_barrier()  # from here on threads read what other threads have kept
    kept = tl.load(tile.kept + (layout.depth - 1) * (config.ROWS * config.TILE_HIDDEN))  # (ROWS, TILE_HIDDEN)
    kept_up = tl.load(tile.scales_up + layout.depth - 1) if config.PARTS == 1 else 1.0
    dx = dot(d_out, weights, config.PARTS)  # (ROWS, TILE_HIDDEN)
    if config.WHOLE:
        learn(stored, at, mask, gradient, step_size, config.ADAM)
    else:
        tl.store(tile.share + at, gradient, mask=mask)  # (TILE_CLASSES, TILE_HIDDEN)
    at_biases = tile.share + layout.head + config.CLASSES * config.WIDTH + classes
    tl.store(at_biases, tl.sum(d_out, 0), mask=classes < config.CLASSES)  # (TILE_CLASSES,)
    return dx, kept, kept_up


@triton.jit
def loss(out, batch, tile, CLASSES: tl.constexpr, TILE_CLASSES: tl.constexpr, REGRESSION: tl.constexpr):
    """(sum of the losses, correct predictions, d_out) of the outputs `out`, (ROWS, TILE_CLASSES).

    d_out, of the same shape, is the derivative of the mean loss of the batch, of which the tile may be a part.
    """
    count = (batch.stop - batch.start).to(tl.float32)
    classes = tl.arange(0, TILE_CLASSES)
    real = tile.live[:, None] & (classes < CLASSES)[None, :]
    target = tl.load(batch.targets + tile.rows, mask=tile.live, other=0)  # (ROWS,)
    if REGRESSION:
        error = tl.where(real, out - target[:, None], 0.0)
        return tl.sum(error * error), 0, error * (2.0 / count)
    out = tl.where((classes < CLASSES)[None, :], out, float("-inf"))
    top = tl.max(out, 1)
    power = tl.exp(out - top[:, None])
    total = tl.sum(power, 1)
    hit = classes[None, :] == target[:, None]
    losses = tl.log(total) + top - tl.sum(tl.where(hit, out, 0.0), 1)
    correct = tl.sum(tl.where(tile.live & (tl.argmax(out, 1) == target), 1, 0))
    d_out = tl.where(real, power / total[:, None] - tl.where(hit, 1.0, 0.0), 0.0) / count
    return tl.sum(tl.where(tile.live, losses, 0.0)), correct, d_out


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
