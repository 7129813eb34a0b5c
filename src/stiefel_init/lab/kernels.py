"""The fused engine's kernels: a training step of many networks is two launches, however deep the networks.

Note [the two kernels]
    `propagate` runs one program for each tile of rows of each network's batch. It gathers its rows, walks all layers
    forward, computes the loss, and walks back; the tile stays on the chip, and each layer's activations and
    derivatives go to memory once. `update` runs one program for each layer of each network. It multiplies that
    layer's derivatives with its inputs over the whole batch and applies the optimizer to the result at once, so no
    gradient is ever stored. Programs share nothing and every sum is made in one order: the same seed gives the same
    bits.

Note [three-term products]
    A float32 number is hi + lo with both rounded to tf32, and a·b ≈ hi·hi + hi·lo + lo·hi on the tensor cores:
    relative error about 2⁻²¹ instead of tf32's 2⁻¹¹. Pixels are whole numbers up to 255, which tf32 holds exactly,
    so products with them need two terms; the division by 255 follows the product.
"""

from __future__ import annotations

import triton
import triton.language as tl

RELU, LEAKY_RELU, PRELU, ELU, SELU = (tl.constexpr(i) for i in range(5))
_LEAKY: tl.constexpr = tl.constexpr(0.01)
_SELU_ALPHA: tl.constexpr = tl.constexpr(1.6732632423543772)
_SELU_SCALE: tl.constexpr = tl.constexpr(1.0507009873554805)


@triton.jit
def _split(x):  # type: ignore[no-untyped-def]
    hi = ((x.to(tl.int32, bitcast=True) + 0x1000) & -8192).to(tl.float32, bitcast=True)
    return hi, x - hi


@triton.jit
def _dot(  # type: ignore[no-untyped-def]
    a, b, acc, TERMS: tl.constexpr, EXACT_A: tl.constexpr = False, EXACT_B: tl.constexpr = False
):
    """acc + a·b; an exact operand is one that tf32 holds without rounding. Note [three-term products]."""
    if TERMS == 1:
        return tl.dot(a, b, acc, input_precision="tf32")
    a_hi, a_lo = _split(a)
    b_hi, b_lo = _split(b)
    # Tensor cores cut their sums off instead of rounding them, so the small terms are summed on their own.
    small = tl.zeros(acc.shape, tl.float32)
    if not EXACT_A:
        small = tl.dot(a_lo, b_hi, small, input_precision="tf32")
    if not EXACT_B:
        small = tl.dot(a_hi, b_lo, small, input_precision="tf32")
    return tl.dot(a_hi, b_hi, acc, input_precision="tf32") + small


@triton.jit
def _activate(y, slope, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    if ACTIVATION == RELU:
        return tl.maximum(y, 0.0)
    elif ACTIVATION == LEAKY_RELU:
        return tl.where(y > 0, y, y * _LEAKY)
    elif ACTIVATION == PRELU:
        return tl.where(y > 0, y, y * slope)
    elif ACTIVATION == ELU:
        return tl.where(y > 0, y, tl.exp(tl.minimum(y, 0.0)) - 1)
    else:
        return _SELU_SCALE * tl.where(y > 0, y, _SELU_ALPHA * (tl.exp(tl.minimum(y, 0.0)) - 1))


@triton.jit
def _slope(kept, slope, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """The activation's derivative, from what was kept: the output, or PReLU's input."""
    if ACTIVATION == RELU:
        return tl.where(kept > 0, 1.0, 0.0)
    elif ACTIVATION == LEAKY_RELU:
        return tl.where(kept > 0, 1.0, _LEAKY)
    elif ACTIVATION == PRELU:
        return tl.where(kept > 0, 1.0, slope)
    elif ACTIVATION == ELU:
        return tl.where(kept > 0, 1.0, kept + 1.0)
    else:
        return tl.where(kept > 0, _SELU_SCALE, kept + _SELU_SCALE * _SELU_ALPHA)


@triton.jit
def _step(p, m, v, at, g, mask, rate, fix1, fix2, ADAM: tl.constexpr):  # type: ignore[no-untyped-def]
    """Apply the optimizer to the parameters at `at`, with gradient g."""
    old = tl.load(p + at, mask=mask, other=0.0)
    if ADAM:
        first = tl.load(m + at, mask=mask, other=0.0)
        second = tl.load(v + at, mask=mask, other=0.0)
        first = first + 0.1 * (g - first)
        second = 0.999 * second + 0.001 * g * g
        tl.store(m + at, first, mask=mask)
        tl.store(v + at, second, mask=mask)
        new = old - rate * fix1 * first / (tl.sqrt(second) * fix2 + 1e-8)
    else:
        new = old - rate * g
    tl.store(p + at, new, mask=mask)


@triton.jit
def _pixels(features, rows, live, columns, INPUTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of the data, as float32; rows that are not live are zero."""
    mask = live[:, None] & (columns < INPUTS)[None, :]
    return tl.load(features + rows[:, None] * INPUTS + columns[None, :], mask=mask, other=0).to(tl.float32)


@triton.jit
def _square(at, WIDTH: tl.constexpr, BH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A layer's weights, padded with zeros to BH × BH."""
    h = tl.arange(0, BH)
    if BH == WIDTH:
        return tl.load(at + h[:, None] * WIDTH + h[None, :])
    mask = (h < WIDTH)[:, None] & (h < WIDTH)[None, :]
    return tl.load(at + h[:, None] * WIDTH + h[None, :], mask=mask, other=0.0)


@triton.jit
def _bias(at, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    return tl.load(at + i, mask=i < SIZE, other=0.0)[None, :]


@triton.jit
def _loss(  # type: ignore[no-untyped-def]
    out, rows, live, targets, count, CLASSES: tl.constexpr, BC: tl.constexpr, REGRESSION: tl.constexpr
):
    """(sum of losses, correct predictions, derivative of the batch's mean loss by the outputs) of one tile."""
    c = tl.arange(0, BC)
    real = live[:, None] & (c < CLASSES)[None, :]
    target = tl.load(targets + rows, mask=live, other=0)
    if REGRESSION:
        error = tl.where(real, out - target[:, None], 0.0)
        return tl.sum(error * error), 0, error * (2.0 / count)
    out = tl.where((c < CLASSES)[None, :], out, float("-inf"))
    top = tl.max(out, 1)
    power = tl.exp(out - top[:, None])
    total = tl.sum(power, 1)
    hit = c[None, :] == target[:, None]
    loss = tl.log(total) + top - tl.sum(tl.where(hit, out, 0.0), 1)
    correct = tl.sum(tl.where(live & (tl.argmax(out, 1) == target), 1, 0))
    slope = tl.where(real, power / total[:, None] - tl.where(hit, 1.0, 0.0), 0.0) / count
    return tl.sum(tl.where(live, loss, 0.0)), correct, slope


_ANY = ["start", "stop", "tiles", "slope_tiles", "DEPTH"]  # not worth a compilation for each of their values


@triton.jit(do_not_specialize=[name for name in _ANY if name != "slope_tiles"])
def propagate(  # type: ignore[no-untyped-def]
    p, kept, slopes, ends, losses, corrects, slope_sums, features, targets, order,
    start, stop, tiles, order_stride, p_stride, scale, DEPTH,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, CLASSES: tl.constexpr,
    BH: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, REGRESSION: tl.constexpr, TERMS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One tile of the rows order[start:stop] of one network: forward, loss, backward. Note [the two kernels].

    Memory, for network e, layer l and a tile's rows: kept[e, l, row, :] what the activation's derivative needs,
    slopes[e, l, row, :] the loss's derivative before the activation, ends[e, row, :] that by the outputs.
    """
    e = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    p += e * p_stride
    HIDDEN: tl.constexpr = WIDTH * INPUTS + WIDTH
    NEXT: tl.constexpr = WIDTH * WIDTH + WIDTH
    head = p + HIDDEN + (DEPTH - 1) * NEXT
    prelu = head + CLASSES * WIDTH + CLASSES
    layer_stride = tiles * ROWS * BH
    h = tl.arange(0, BH)
    r = tl.arange(0, ROWS)
    at = (e * DEPTH * tiles + tile) * (ROWS * BH) + r[:, None] * BH + h[None, :]
    place = start + tile * ROWS + r
    live = place < stop
    rows = tl.load(order + e * order_stride + place, mask=live, other=0).to(tl.int64)
    none = tl.zeros((ROWS, BH), tl.float32)
    slope = 0.0

    y = none
    for k in range(0, INPUTS, BD):
        columns = k + tl.arange(0, BD)
        mask = (h < WIDTH)[:, None] & (columns < INPUTS)[None, :]
        w1 = tl.load(p + h[:, None] * INPUTS + columns[None, :], mask=mask, other=0.0)
        y = _dot(_pixels(features, rows, live, columns, INPUTS), tl.trans(w1), y, TERMS, EXACT)
    y = y * scale + _bias(p + WIDTH * INPUTS, WIDTH, BH)
    if ACTIVATION == PRELU:
        slope = tl.load(prelu)
    x = _activate(y, slope, ACTIVATION)
    tl.store(kept + at, y if ACTIVATION == PRELU else x)
    for layer in range(1, DEPTH):
        w = p + HIDDEN + (layer - 1) * NEXT
        y = _dot(x, tl.trans(_square(w, WIDTH, BH)), none, TERMS) + _bias(w + WIDTH * WIDTH, WIDTH, BH)
        if ACTIVATION == PRELU:
            slope = tl.load(prelu + layer)
        x = _activate(y, slope, ACTIVATION)
        tl.store(kept + layer * layer_stride + at, y if ACTIVATION == PRELU else x)

    c = tl.arange(0, BC)
    mask = (c < CLASSES)[:, None] & (h < WIDTH)[None, :]
    head_w = tl.load(head + c[:, None] * WIDTH + h[None, :], mask=mask, other=0.0)
    out = _dot(x, tl.trans(head_w), tl.zeros((ROWS, BC), tl.float32), TERMS) + _bias(
        head + CLASSES * WIDTH, CLASSES, BC
    )
    loss, correct, end = _loss(out, rows, live, targets, (stop - start).to(tl.float32), CLASSES, BC, REGRESSION)
    where = e * tiles + tile
    tl.store(losses + where, tl.load(losses + where) + loss)
    tl.store(corrects + where, tl.load(corrects + where) + correct)
    tl.store(ends + where * (ROWS * BC) + r[:, None] * BC + c[None, :], end)

    dx = _dot(end, head_w, none, TERMS)
    tl.debug_barrier()  # what was kept may be read back by other threads than wrote it
    for i in range(DEPTH):
        layer = DEPTH - 1 - i
        x = tl.load(kept + layer * layer_stride + at)
        if ACTIVATION == PRELU:
            slope = tl.load(prelu + layer)
            tl.store(slope_sums + (e * DEPTH + layer) * tiles + tile, tl.sum(dx * tl.minimum(x, 0.0)))
        d = dx * _slope(x, slope, ACTIVATION)
        tl.store(slopes + layer * layer_stride + at, d)
        if layer > 0:
            dx = _dot(d, _square(p + HIDDEN + (layer - 1) * NEXT, WIDTH, BH), none, TERMS)


@triton.jit(do_not_specialize=_ANY)
def update(  # type: ignore[no-untyped-def]
    p, m, v, kept, slopes, ends, slope_sums, features, order, rates,
    start, stop, tiles, slope_tiles, order_stride, p_stride, scale, fix1, fix2, DEPTH,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, CLASSES: tl.constexpr,
    BH: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, ADAM: tl.constexpr, TERMS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Part of a layer of one network: its gradient over the whole batch, and the optimizer. Note [the two kernels].

    The jobs of a network: the hidden layers 1 … DEPTH-1, each in BH / BN groups of columns, then the head, then the
    first layer in groups of BD columns. The batch is read ROWS rows at a time, `tiles` times; `slope_tiles`
    is the number of tiles that `propagate` made of it.
    """
    e = tl.program_id(1).to(tl.int64)
    job = tl.program_id(0)
    rate = tl.load(rates + e)
    p += e * p_stride
    m += e * p_stride
    v += e * p_stride
    HIDDEN: tl.constexpr = WIDTH * INPUTS + WIDTH
    NEXT: tl.constexpr = WIDTH * WIDTH + WIDTH
    head = HIDDEN + (DEPTH - 1) * NEXT
    prelu = head + CLASSES * WIDTH + CLASSES
    h = tl.arange(0, BH)
    wide = h < WIDTH
    r = tl.arange(0, ROWS)
    tile_at = r[:, None] * BH + h[None, :]
    slope = 0.0
    PARTS: tl.constexpr = BH // BN
    if job < (DEPTH - 1) * PARTS:
        layer = job // PARTS + 1
        n = (job % PARTS) * BN + tl.arange(0, BN)
        inputs = kept + (e * DEPTH + layer - 1) * tiles * (ROWS * BH)
        outputs = slopes + (e * DEPTH + layer) * tiles * (ROWS * BH)
        g = tl.zeros((BH, BN), tl.float32)
        b = tl.zeros((BH,), tl.float32)
        if ACTIVATION == PRELU:
            slope = tl.load(p + prelu + layer - 1)
        for tile in range(tiles):
            d = tl.load(outputs + tile * (ROWS * BH) + tile_at)
            x = tl.load(inputs + tile * (ROWS * BH) + r[:, None] * BH + n[None, :])
            if ACTIVATION == PRELU:
                x = _activate(x, slope, ACTIVATION)
            g = _dot(tl.trans(d), x, g, TERMS)
            if job % PARTS == 0:
                b += tl.sum(d, 0)
        at = HIDDEN + (layer - 1) * NEXT
        mask = wide[:, None] & (n < WIDTH)[None, :]
        _step(p, m, v, at + h[:, None] * WIDTH + n[None, :], g, mask, rate, fix1, fix2, ADAM)
        if job % PARTS == 0:
            _step(p, m, v, at + WIDTH * WIDTH + h, b, wide, rate, fix1, fix2, ADAM)
    elif job == (DEPTH - 1) * PARTS:
        inputs = kept + (e * DEPTH + DEPTH - 1) * tiles * (ROWS * BH)
        c = tl.arange(0, BC)
        head_g = tl.zeros((BH, BC), tl.float32)
        head_b = tl.zeros((BC,), tl.float32)
        if ACTIVATION == PRELU:
            slope = tl.load(p + prelu + DEPTH - 1)
        for tile in range(tiles):
            end = tl.load(ends + (e * tiles + tile) * (ROWS * BC) + r[:, None] * BC + c[None, :])
            x = tl.load(inputs + tile * (ROWS * BH) + tile_at)
            if ACTIVATION == PRELU:
                x = _activate(x, slope, ACTIVATION)
            head_g = _dot(tl.trans(x), end, head_g, TERMS)
            head_b += tl.sum(end, 0)
        head_mask = wide[:, None] & (c < CLASSES)[None, :]
        _step(p, m, v, head + c[None, :] * WIDTH + h[:, None], head_g, head_mask, rate, fix1, fix2, ADAM)
        _step(p, m, v, head + CLASSES * WIDTH + c, head_b, c < CLASSES, rate, fix1, fix2, ADAM)
        if ACTIVATION == PRELU:
            for layer in range(DEPTH):
                total = 0.0
                for tile in range(slope_tiles):
                    total += tl.load(slope_sums + (e * DEPTH + layer) * slope_tiles + tile)
                _step(p, m, v, prelu + layer, total, True, rate, fix1, fix2, ADAM)
    else:
        columns = (job - (DEPTH - 1) * PARTS - 1) * BD + tl.arange(0, BD)
        outputs = slopes + e * DEPTH * tiles * (ROWS * BH)
        g1 = tl.zeros((BH, BD), tl.float32)
        b = tl.zeros((BH,), tl.float32)
        for tile in range(tiles):
            place = start + tile * ROWS + r
            live = place < stop
            rows = tl.load(order + e * order_stride + place, mask=live, other=0).to(tl.int64)
            d = tl.load(outputs + tile * (ROWS * BH) + tile_at)
            g1 = _dot(tl.trans(d), _pixels(features, rows, live, columns, INPUTS), g1, TERMS, False, EXACT)
            if job == (DEPTH - 1) * PARTS + 1:
                b += tl.sum(d, 0)
        mask1 = wide[:, None] & (columns < INPUTS)[None, :]
        _step(p, m, v, h[:, None] * INPUTS + columns[None, :], g1 * scale, mask1, rate, fix1, fix2, ADAM)
        if job == (DEPTH - 1) * PARTS + 1:
            _step(p, m, v, WIDTH * INPUTS + h, b, wide, rate, fix1, fix2, ADAM)
