"""The fused engine's kernels: a training step of many networks is two launches, however deep the networks.

Note [the two kernels]
    `propagate` runs one program for each tile of rows of each network's batch. It gathers its rows, walks all layers
    forward, computes the loss and walks back; on the way back it multiplies each layer's derivatives, which never
    leave the chip, with its inputs, and leaves the tile's share of every gradient. `update` adds the shares and
    applies the optimizer. Programs share nothing and every sum is made in one order: the same seed gives the same bits.

Note [products in parts]
    A float32 number is exactly the sum of three bfloat16 numbers, hi + mid + lo, and of the nine products of two such
    sums the six that matter are taken on the tensor cores, the small ones first, since tensor cores cut their sums
    off instead of rounding: relative error about 2⁻²³ for each product. With two parts and three products it is 2⁻¹⁶,
    where tf32 has 2⁻¹¹. Why bfloat16 and not tf32: an accumulator becomes an operand without any exchange between
    threads, and operands may be read transposed, as the gradient needs them. Pixels are whole numbers up to 255, which
    one bfloat16 holds; the division by 255 follows the product.

Note [what the compilers make of it]
    On the way back the derivatives' parts are carried from layer to layer as they are. Triton puts a carried operand
    into shared memory, where both products of the layer read it; one that is computed on the spot goes to registers,
    of which there are too few for two products. The gradients of the head and of the first layer are computed
    transposed, with fewer than 64 rows: with 64 rows and 16 or 32 columns Triton takes the warpgroup instruction, and
    NVIDIA's assembler 12.8 was seen to get its operand's address wrong.
"""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED: tl.constexpr = tl.constexpr(triton.knobs.runtime.interpret)
RELU, LEAKY_RELU, PRELU, ELU, SELU = (tl.constexpr(i) for i in range(5))
_LEAKY: tl.constexpr = tl.constexpr(0.01)
_SELU_ALPHA: tl.constexpr = tl.constexpr(1.6732632423543772)
_SELU_SCALE: tl.constexpr = tl.constexpr(1.0507009873554805)


@triton.jit
def _cut(x):  # type: ignore[no-untyped-def]
    """The part of a number that bfloat16 holds, as float32."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _half(x):  # type: ignore[no-untyped-def]
    """The same as bfloat16; Triton's interpreter cannot multiply those."""
    if INTERPRETED:
        return _cut(x)
    else:
        return (x.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _parts(x, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """(hi, mid, lo), which sum to x; of two parts the second is rounded."""
    rest = x - _cut(x)
    if PARTS == 2:
        return _half(x), _half((rest.to(tl.int32, bitcast=True) + 0x8000).to(tl.float32, bitcast=True)), _half(rest)
    return _half(x), _half(rest), _half(rest - _cut(rest))


@triton.jit
def _product(  # type: ignore[no-untyped-def]
    a_hi, a_mid, a_lo, b_hi, b_mid, b_lo, acc, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False
):
    """acc + a·b; an exact operand is one that a single bfloat16 holds. Note [products in parts]."""
    if PARTS == 3:
        if not EXACT_A:
            acc = tl.dot(a_lo, b_hi, acc, input_precision="ieee")
            acc = tl.dot(a_mid, b_mid, acc, input_precision="ieee")
        acc = tl.dot(a_hi, b_lo, acc, input_precision="ieee")
    if not EXACT_A:
        acc = tl.dot(a_mid, b_hi, acc, input_precision="ieee")
    acc = tl.dot(a_hi, b_mid, acc, input_precision="ieee")
    return tl.dot(a_hi, b_hi, acc, input_precision="ieee")


@triton.jit
def _dot(a, b, acc, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False):  # type: ignore[no-untyped-def]
    a_hi, a_mid, a_lo = _parts(a, PARTS)
    b_hi, b_mid, b_lo = _parts(b, PARTS)
    return _product(a_hi, a_mid, a_lo, b_hi, b_mid, b_lo, acc, PARTS, EXACT_A)


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
def _store_square(at, w, WIDTH: tl.constexpr, BH: tl.constexpr):  # type: ignore[no-untyped-def]
    """What is not padding of w, laid out as a layer's weights."""
    h = tl.arange(0, BH)
    if BH == WIDTH:
        tl.store(at + h[:, None] * WIDTH + h[None, :], w)
    else:
        tl.store(at + h[:, None] * WIDTH + h[None, :], w, mask=(h < WIDTH)[:, None] & (h < WIDTH)[None, :])


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


@triton.jit(do_not_specialize=["start", "stop", "tiles", "DEPTH"])  # not worth a compilation for each of their values
def propagate(  # type: ignore[no-untyped-def]
    p, shares, kept, losses, corrects, features, targets, order,
    start, stop, tiles, order_stride, p_stride, scale, DEPTH,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, CLASSES: tl.constexpr,
    BH: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, REGRESSION: tl.constexpr, PARTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One tile of the rows order[start:stop] of one network: forward, loss, backward. Note [the two kernels].

    Memory, for network e and a tile of its rows: kept[e, layer, row, :] what the activation's derivative needs, the
    output, or PReLU's input; shares[e, tile, :] the tile's share of the gradient, laid out as the parameters are.
    """
    e = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    where = e * tiles + tile
    p += e * p_stride
    g = shares + where * p_stride
    HIDDEN: tl.constexpr = WIDTH * INPUTS + WIDTH
    NEXT: tl.constexpr = WIDTH * WIDTH + WIDTH
    head = HIDDEN + (DEPTH - 1) * NEXT
    prelu = head + CLASSES * WIDTH + CLASSES
    layer_stride = tiles * ROWS * BH
    h = tl.arange(0, BH)
    wide = h < WIDTH
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
        mask = wide[:, None] & (columns < INPUTS)[None, :]
        w1 = tl.load(p + h[:, None] * INPUTS + columns[None, :], mask=mask, other=0.0)
        y = _dot(_pixels(features, rows, live, columns, INPUTS), tl.trans(w1), y, PARTS, EXACT)
    y = y * scale + _bias(p + WIDTH * INPUTS, WIDTH, BH)
    if ACTIVATION == PRELU:
        slope = tl.load(p + prelu)
    x = _activate(y, slope, ACTIVATION)
    tl.store(kept + at, y if ACTIVATION == PRELU else x)
    for layer in range(1, DEPTH):
        w = p + HIDDEN + (layer - 1) * NEXT
        y = _dot(x, tl.trans(_square(w, WIDTH, BH)), none, PARTS) + _bias(w + WIDTH * WIDTH, WIDTH, BH)
        if ACTIVATION == PRELU:
            slope = tl.load(p + prelu + layer)
        x = _activate(y, slope, ACTIVATION)
        tl.store(kept + layer * layer_stride + at, y if ACTIVATION == PRELU else x)

    c = tl.arange(0, BC)
    mask = (c < CLASSES)[:, None] & wide[None, :]
    head_w = tl.load(p + head + c[:, None] * WIDTH + h[None, :], mask=mask, other=0.0)
    out = _dot(x, tl.trans(head_w), tl.zeros((ROWS, BC), tl.float32), PARTS) + _bias(
        p + head + CLASSES * WIDTH, CLASSES, BC
    )
    loss, correct, end = _loss(out, rows, live, targets, (stop - start).to(tl.float32), CLASSES, BC, REGRESSION)
    tl.store(losses + where, tl.load(losses + where) + loss)
    tl.store(corrects + where, tl.load(corrects + where) + correct)
    head_g = _dot(tl.trans(end), x, tl.zeros((BC, BH), tl.float32), PARTS)
    tl.store(g + head + c[:, None] * WIDTH + h[None, :], head_g, mask=mask)
    tl.store(g + head + CLASSES * WIDTH + c, tl.sum(end, 0), mask=c < CLASSES)

    dx = _dot(end, head_w, none, PARTS)
    tl.debug_barrier()  # what was kept may be read back by other threads than wrote it
    mine = tl.load(kept + (DEPTH - 1) * layer_stride + at)
    if ACTIVATION == PRELU:
        slope = tl.load(p + prelu + DEPTH - 1)
        tl.store(g + prelu + DEPTH - 1, tl.sum(dx * tl.minimum(mine, 0.0)))
    d = dx * _slope(mine, slope, ACTIVATION)
    hi, mid, lo = _parts(d, PARTS)
    b = tl.sum(d, 0)
    for i in range(DEPTH - 1):
        layer = DEPTH - 1 - i
        w = HIDDEN + (layer - 1) * NEXT
        w_hi, w_mid, w_lo = _parts(_square(p + w, WIDTH, BH), PARTS)
        dx = _product(hi, mid, lo, w_hi, w_mid, w_lo, none, PARTS)
        mine = tl.load(kept + (layer - 1) * layer_stride + at)
        if ACTIVATION == PRELU:
            slope = tl.load(p + prelu + layer - 1)
            x = _activate(mine, slope, ACTIVATION)
        else:
            x = mine
        x_hi, x_mid, x_lo = _parts(x, PARTS)
        t_hi, t_mid, t_lo = tl.trans(hi), tl.trans(mid), tl.trans(lo)
        w_g = _product(t_hi, t_mid, t_lo, x_hi, x_mid, x_lo, tl.zeros((BH, BH), tl.float32), PARTS)
        _store_square(g + w, w_g, WIDTH, BH)
        tl.store(g + w + WIDTH * WIDTH + h, b, mask=wide)
        if ACTIVATION == PRELU:
            tl.store(g + prelu + layer - 1, tl.sum(dx * tl.minimum(mine, 0.0)))
        d = dx * _slope(mine, slope, ACTIVATION)
        b = tl.sum(d, 0)
        hi, mid, lo = _parts(d, PARTS)
    tl.store(g + WIDTH * INPUTS + h, b, mask=wide)
    for k in range(0, INPUTS, BD):
        columns = k + tl.arange(0, BD)
        inputs = _pixels(features, rows, live, columns, INPUTS)
        i_hi, i_mid, i_lo = _parts(tl.trans(inputs), PARTS)
        first_g = _product(i_hi, i_mid, i_lo, hi, mid, lo, tl.zeros((BD, BH), tl.float32), PARTS, EXACT)
        mask1 = (columns < INPUTS)[:, None] & wide[None, :]
        tl.store(g + h[None, :] * INPUTS + columns[:, None], first_g * scale, mask=mask1)


@triton.jit(do_not_specialize=["tiles", "size"])
def update(  # type: ignore[no-untyped-def]
    p, m, v, shares, rates, tiles, size, p_stride, fix1, fix2, BLOCK: tl.constexpr, ADAM: tl.constexpr
):
    """Add the tiles' shares of the gradient of a block of one network's parameters, and apply the optimizer."""
    e = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = i < size
    at = e * p_stride + i
    rate = tl.load(rates + e)
    share = shares + e * tiles * p_stride + i
    old = tl.load(p + at, mask=real, other=0.0)
    g = tl.load(share, mask=real, other=0.0)
    for tile in range(1, tiles):
        g += tl.load(share + tile * p_stride, mask=real, other=0.0)
    if ADAM:
        first = tl.load(m + at, mask=real, other=0.0)
        second = tl.load(v + at, mask=real, other=0.0)
        first = first + 0.1 * (g - first)
        second = 0.999 * second + 0.001 * g * g
        tl.store(m + at, first, mask=real)
        tl.store(v + at, second, mask=real)
        new = old - rate * fix1 * first / (tl.sqrt(second) * fix2 + 1e-8)
    else:
        new = old - rate * g
    tl.store(p + at, new, mask=real)
