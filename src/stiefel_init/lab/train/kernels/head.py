"""The output layer: forward, loss, and backward."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from .loss import loss
from .memory import load_biases
from .optimizer import learn
from .parts import dot


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
