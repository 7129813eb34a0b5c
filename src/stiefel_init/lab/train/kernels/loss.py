"""The loss of a tile of rows, and its derivative."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl


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
