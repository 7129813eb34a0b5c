"""The kernel `propagate`: a training step of one tile of rows of one network, phase by phase."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .backward import first_layer, hidden_layers, last_layer
from .forward import forward
from .head import head
from .memory import Batch, Config, Layout, Tile
from .optimizer import StepSize, Stored, learn_biases


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
            REGRESSION=REGRESSION, PARTS=PARTS,
            EXACT=EXACT, WHOLE=WHOLE, ADAM=ADAM, DECAYS=DECAYS, FIRST_LAYER=WIDTH * INPUTS + WIDTH,
            HIDDEN_LAYER=WIDTH * WIDTH + WIDTH, WEIGHT_SCALE=256.0 if PARTS == 1 else 1.0,
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
