"""What a program knows about its memory, and how it loads from it. README.md has the map."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Config(NamedTuple):
    """What `propagate` is compiled for. Every field is a constant.

    A Config may be passed on but not assigned or returned: Triton would turn its constants into tensors.
    """

    INPUTS: Any
    WIDTH: Any  # units of each hidden layer
    CLASSES: Any  # outputs of the network; 1 for regression
    TILE_INPUTS: Any  # inputs that are multiplied at a time
    TILE_HIDDEN: Any  # WIDTH rounded up to a power of two, at least 16; the padding is zeros
    TILE_CLASSES: Any  # CLASSES, likewise
    ROWS: Any  # of the batch for each program; a power of two, at least 16
    ACTIVATION: Any
    SLOPE: Any  # of the tailored activation, below 0
    SCALE: Any  # what the tailored activation is multiplied by
    REGRESSION: Any  # squared error instead of cross-entropy
    PARTS: Any  # 3 for float32, 1 for the precision of tf32
    EXACT: Any  # the inputs are pixels, which a single part holds
    WHOLE: Any  # the tile is the whole batch: apply the optimizer here, not in `update`
    ADAM: Any  # instead of gradient descent
    DECAYS: Any  # weights decay in some network
    FIRST_LAYER: Any  # its parameters
    HIDDEN_LAYER: Any  # parameters of each hidden layer after it
    WEIGHT_SCALE: Any  # what hidden weights are multiplied by before they are split into parts


class Batch(NamedTuple):
    """The data, and the batch order[start:stop] within a network's order of them."""

    features: Any  # pointer to the features, (all rows, INPUTS)
    targets: Any  # pointer to the targets, (all rows,)
    scale: Any  # what the features are multiplied by, after the first product: 1/255 for pixels
    start: Any
    stop: Any


class Tile(NamedTuple):
    """The rows a program works on, and the memory that is its own."""

    rows: Any  # (ROWS,) row numbers in the data
    live: Any  # (ROWS,) False where the tile reaches past the end of the batch
    kept: Any  # (ROWS, TILE_HIDDEN) pointers to what layer 0 keeps for the backward pass
    scales_up: Any  # pointer to the factor that undoes the scaling of what layer 0 keeps; one for each layer
    share: Any  # pointer to the tile's share of the gradient


class Layout(NamedTuple):
    """Offsets into a network's parameters, which its moments and shares of the gradient have in common."""

    depth: Any  # hidden layers
    head: Any  # where the weights of the output layer start
    slopes: Any  # where PReLU's slopes start
    units: Any  # (TILE_HIDDEN,) 0, 1, 2, …
    is_unit: Any  # (TILE_HIDDEN,) False on the padding
    square: Any  # (TILE_HIDDEN²,) offsets within a hidden layer's weights
    in_square: Any  # (TILE_HIDDEN²,) False on the padding; None if there is none


@triton.jit
def load_inputs(features, tile, columns, INPUTS: tl.constexpr):
    """The tile's rows of some columns of the data as float32, (ROWS, TILE_INPUTS); zero where not live."""
    mask = tile.live[:, None] & (columns < INPUTS)[None, :]
    return tl.load(features + tile.rows[:, None] * INPUTS + columns[None, :], mask=mask, other=0).to(tl.float32)


@triton.jit
def load_weights(at, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """A hidden layer's weights, (TILE_HIDDEN, TILE_HIDDEN): outputs by inputs."""
    i = tl.arange(0, TILE)
    if TILE == WIDTH:
        return tl.load(at + i[:, None] * WIDTH + i[None, :])
    mask = (i < WIDTH)[:, None] & (i < WIDTH)[None, :]
    return tl.load(at + i[:, None] * WIDTH + i[None, :], mask=mask, other=0.0)


@triton.jit
def load_biases(at, SIZE: tl.constexpr, TILE: tl.constexpr):
    """A layer's biases, (1, TILE)."""
    i = tl.arange(0, TILE)
    return tl.load(at + i, mask=i < SIZE, other=0.0)[None, :]
