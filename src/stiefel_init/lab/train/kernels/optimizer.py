"""Steps of Adam, AdamW or gradient descent: inside `propagate` where it has the whole gradient, else by `update`."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .arithmetic import PRELU


class Stored(NamedTuple):
    """Pointers to a network's parameters and their moments, three arrays of one layout."""

    parameters: Any
    moment1: Any
    moment2: Any


class StepSize(NamedTuple):
    """The learning rate, and Adam's corrections for moments that start at zero, after t steps."""

    rate: Any
    bias_correction_1: Any  # 1 / (1 - β₁ᵗ)
    bias_correction_2: Any  # 1 / √(1 - β₂ᵗ)
    keep: Any  # what weight decay leaves of a parameter: 1 - rate · decay, or 1 where no network decays


@triton.jit
def load_state(stored, at, mask, ADAM: tl.constexpr):
    """(parameters, first moments, second moments) at the offsets `at`; without Adam only the first counts."""
    values = tl.load(stored.parameters + at, mask=mask)
    if ADAM:
        return values, tl.load(stored.moment1 + at, mask=mask), tl.load(stored.moment2 + at, mask=mask)
    else:
        return values, values, values


@triton.jit
def step(stored, at, mask, state, gradient, step_size, ADAM: tl.constexpr):
    """Take a step from `state` and store it. Adam has β₁ = 0.9, β₂ = 0.999, ε = 1e-8."""
    values, moment1, moment2 = state
    if ADAM:
        moment1 = moment1 + 0.1 * (gradient - moment1)
        moment2 = 0.999 * moment2 + 0.001 * gradient * gradient
        tl.store(stored.moment1 + at, moment1, mask=mask)
        tl.store(stored.moment2 + at, moment2, mask=mask)
        gradient = step_size.bias_correction_1 * moment1 / (tl.sqrt(moment2) * step_size.bias_correction_2 + 1e-8)
    tl.store(stored.parameters + at, values * step_size.keep - step_size.rate * gradient, mask=mask)


@triton.jit
def learn(stored, at, mask, gradient, step_size, ADAM: tl.constexpr):
    """Load the state at `at` and take a step."""
    state = load_state(stored, at, mask, ADAM)
    step(stored, at, mask, state, gradient, step_size, ADAM)


@triton.jit
def learn_biases(stored, tile, layout, step_size, config):
    """Apply the gradients of biases and slopes, which the backward pass left in the tile's share.

    All at once at the end: many small steps on the way would wait for memory.
    """
    classes = tl.arange(0, config.TILE_CLASSES)
    tl.debug_barrier()  # from here on threads read what other threads have stored in the share
    for layer in range(0, layout.depth, 16):
        layers = layer + tl.arange(0, 16)
        at = config.FIRST_LAYER + layers[:, None] * config.HIDDEN_LAYER - config.WIDTH + layout.units[None, :]
        mask = (layers < layout.depth)[:, None] & layout.is_unit[None, :]
        gradient = tl.load(tile.share + at, mask=mask)  # (16, TILE_HIDDEN)
        learn(stored, at, mask, gradient, step_size, config.ADAM)
        if config.ACTIVATION == PRELU:
            is_layer = layers < layout.depth
            at_slopes = layout.slopes + layers
            gradient = tl.load(tile.share + at_slopes, mask=is_layer)  # (16,)
            learn(stored, at_slopes, is_layer, gradient, step_size, config.ADAM)
    at_head = layout.head + config.CLASSES * config.WIDTH + classes
    is_class = classes < config.CLASSES
    gradient = tl.load(tile.share + at_head, mask=is_class)  # (TILE_CLASSES,)
    learn(stored, at_head, is_class, gradient, step_size, config.ADAM)


@triton.jit(do_not_specialize=["tiles", "count", "head"])
def update(
    parameters, moment1, moment2, shares, rates, keeps, tiles, count, parameters_stride,
    bias_correction_1, bias_correction_2, head, BLOCK: tl.constexpr, ADAM: tl.constexpr, DECAYS: tl.constexpr,
    ALONE: tl.constexpr, FIRST_LAYER: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Add the tiles' shares of the gradient for a block of one network's `count` parameters, and take a step.

    With ALONE, the weights between the first layer and the head, which another kernel trains, are left as they are.
    """
    network = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    if ALONE:
        square = (i >= FIRST_LAYER) & (i < head) & ((i - FIRST_LAYER) % (WIDTH * WIDTH + WIDTH) < WIDTH * WIDTH)
        mask = mask & (square == 0)
    share = shares + network * tiles * parameters_stride + i
    at = network * parameters_stride + i
    stored = Stored(parameters, moment1, moment2)
    state = load_state(stored, at, mask, ADAM)  # (BLOCK,) each; before the sum, so that no load waits for it
    gradient = tl.load(share, mask=mask, other=0.0)  # (BLOCK,)
    for _ in range(1, tiles):
        share += parameters_stride
        gradient += tl.load(share, mask=mask, other=0.0)
    keep = tl.load(keeps + network) if DECAYS else 1.0
    step_size = StepSize(tl.load(rates + network), bias_correction_1, bias_correction_2, keep)
    step(stored, at, mask, state, gradient, step_size, ADAM)
