"""The output layer with the loss: forward and backward."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

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
