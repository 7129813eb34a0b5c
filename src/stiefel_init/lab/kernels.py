"""The fused engine's kernels: a training step of many networks is one or two launches, however deep the networks.

Note [the kernels]
    `propagate` runs one program for each tile of rows of each network's batch. It gathers its rows, walks all layers
    forward, computes the loss and walks back; on the way back it multiplies each layer's derivatives, which never
    leave the chip, with its inputs, and leaves the tile's share of every gradient; `update` adds the shares and
    applies the optimizer. In one part, where a tile may be the whole batch, the program has the gradient itself, and
    applies the optimizer at once. Programs share nothing and every sum is made in one order: the same seed gives the
    same bits.

Note [products in parts]
    A float32 number is exactly the sum of three bfloat16 numbers, hi + mid + lo, and of the nine products of two such
    sums the six that matter are taken on the tensor cores, the small ones first, since tensor cores cut their sums
    off instead of rounding: relative error 2⁻²⁵ on average and at most 2⁻²¹ for each product. Why bfloat16 and not
    tf32: an accumulator becomes an operand without any exchange between threads, and operands may be read transposed,
    as the gradient needs them. Pixels are whole numbers up to 255, which one bfloat16 holds; the division by 255
    follows the product.

Note [one part]
    For the same reasons tf32's precision is had from half precision, which has tf32's 11 bits of mantissa, and fewer
    of exponent. So the activations of a layer, and its derivatives, are divided by a power of two that brings the
    largest of a tile near the top of the range; what is below 2⁻⁴⁰ of the largest becomes zero. Hidden weights have
    a range of their own: those below 2⁻¹⁴ / 256 lose digits, and 256 or more is infinite. What is kept for the way
    back is half as large.

Note [what the compilers make of it]
    On the way back the derivatives' parts are carried from layer to layer as they are. Triton puts a carried operand
    into shared memory, where both products of the layer read it; one that is computed on the spot goes to registers,
    of which there are too few for two products. Gradients of squares are flattened before they meet what lies in
    memory in rows, else Triton would rearrange all of that instead of the one gradient. The gradients of the head and
    of the first layer are computed transposed, with fewer than 64 rows: with 64 rows and 16 or 32 columns Triton takes
    the warpgroup instruction, and NVIDIA's assembler 12.8 was seen to get its operand's address wrong.
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
    """(hi, mid, lo), which sum to x; one part is x in half precision."""
    if PARTS == 1:
        half = x.to(tl.float16)
        return half, half, half
    else:
        rest = x - _cut(x)
        return _half(x), _half(rest), _half(rest - _cut(rest))


@triton.jit
def _scales(x, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Powers of two (down, up) that undo each other; the largest entry times `down` is in [2¹⁴, 2¹⁵)."""
    if PARTS == 3:  # bfloat16 has float32's range
        return 1.0, 1.0
    else:
        power = tl.maximum(tl.max(tl.abs(x)).to(tl.int32, bitcast=True) & 0x7F800000, 15 << 23)
        down = (254 << 23) - power + (14 << 23)
        return down.to(tl.float32, bitcast=True), (power - (14 << 23)).to(tl.float32, bitcast=True)


@triton.jit
def _product(  # type: ignore[no-untyped-def]
    a_hi, a_mid, a_lo, b_hi, b_mid, b_lo, acc, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False
):
    """acc + a·b; an exact operand is one that a single part holds. Note [products in parts]."""
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
def _dot(a, b, PARTS: tl.constexpr, EXACT_A: tl.constexpr = False):  # type: ignore[no-untyped-def]
    """a·b."""
    a_down, a_up = _scales(a, 3 if EXACT_A else PARTS)
    b_down, b_up = _scales(b, PARTS)
    a_hi, a_mid, a_lo = _parts(a * a_down, PARTS)
    b_hi, b_mid, b_lo = _parts(b * b_down, PARTS)
    none = tl.zeros((a.shape[0], b.shape[1]), tl.float32)
    return _product(a_hi, a_mid, a_lo, b_hi, b_mid, b_lo, none, PARTS, EXACT_A) * a_up * b_up


@triton.jit
def _expm1(y):  # type: ignore[no-untyped-def]
    """exp(y) - 1 for y ≤ 0, and 0 above; near 0 by its series, since 1 has no digits to spare there."""
    y = tl.minimum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    series = y + y * y * (0.5 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120 + y * (1 / 720)))))
    return tl.where(y > -0.25, series, tl.exp(y) - 1)


@triton.jit
def _activate(y, slope, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """The activation; what is not a number stays so, and shows in the loss."""
    if ACTIVATION == RELU:
        return tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == LEAKY_RELU:
        return tl.where(y > 0, y, y * _LEAKY)
    elif ACTIVATION == PRELU:
        return tl.where(y > 0, y, y * slope)
    elif ACTIVATION == ELU:
        return tl.where(y > 0, y, _expm1(y))
    else:
        return _SELU_SCALE * tl.where(y > 0, y, _SELU_ALPHA * _expm1(y))


@triton.jit
def _through(dx, kept, up, slope, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """The derivative by an activation's input, given that by its output and what was kept: output, or PReLU's input."""
    if ACTIVATION == RELU:
        return tl.where(kept > 0, dx, 0.0)
    elif ACTIVATION == LEAKY_RELU:
        return tl.where(kept > 0, dx, dx * _LEAKY)
    elif ACTIVATION == PRELU:
        return tl.where(kept > 0, dx, dx * slope)
    elif ACTIVATION == ELU:
        return tl.where(kept > 0, dx, dx * (kept.to(tl.float32) * up + 1.0))
    else:
        return dx * tl.where(kept > 0, _SELU_SCALE, kept.to(tl.float32) * up + _SELU_SCALE * _SELU_ALPHA)


@triton.jit
def _keep(y, x, kept, ups, ACTIVATION: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store what the derivative will need of a layer; the output's (scale down, scale up)."""
    down, up = _scales(tl.maximum(tl.abs(y), tl.abs(x)) if ACTIVATION == PRELU else x, PARTS)
    z = y if ACTIVATION == PRELU else x
    if PARTS == 1:
        tl.store(ups, up)
        tl.store(kept, (z * down).to(tl.float16))
    else:
        tl.store(kept, z)
    return down, up


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


@triton.jit
def _state(p, m, v, at, mask, ADAM: tl.constexpr):  # type: ignore[no-untyped-def]
    """The parameters at `at` and their moments."""
    old = tl.load(p + at, mask=mask)
    if ADAM:
        return old, tl.load(m + at, mask=mask), tl.load(v + at, mask=mask)
    else:
        return old, old, old


@triton.jit
def _step(p, m, v, at, mask, old, first, second, g, rate, fix1, fix2, ADAM: tl.constexpr):  # type: ignore[no-untyped-def]
    """A step of Adam, or of gradient descent, of the parameters at `at`."""
    if ADAM:
        first = first + 0.1 * (g - first)
        second = 0.999 * second + 0.001 * g * g
        tl.store(m + at, first, mask=mask)
        tl.store(v + at, second, mask=mask)
        g = fix1 * first / (tl.sqrt(second) * fix2 + 1e-8)
    tl.store(p + at, old - rate * g, mask=mask)


@triton.jit
def _learn(p, m, v, at, g, mask, rate, fix1, fix2, ADAM: tl.constexpr):  # type: ignore[no-untyped-def]
    old, first, second = _state(p, m, v, at, mask, ADAM)
    _step(p, m, v, at, mask, old, first, second, g, rate, fix1, fix2, ADAM)


@triton.jit(do_not_specialize=["start", "stop", "tiles", "DEPTH"])  # not worth a compilation for each of their values
def propagate(  # type: ignore[no-untyped-def]
    p, m, v, rates, shares, kept, ups, losses, corrects, features, targets, order,
    start, stop, tiles, order_stride, p_stride, scale, fix1, fix2, DEPTH,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, CLASSES: tl.constexpr,
    BH: tl.constexpr, BD: tl.constexpr, BC: tl.constexpr, ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, REGRESSION: tl.constexpr, PARTS: tl.constexpr, EXACT: tl.constexpr,
    WHOLE: tl.constexpr, ADAM: tl.constexpr,
):  # fmt: skip
    """One tile of the rows order[start:stop] of one network: forward, loss, backward. Note [the kernels].

    Memory, for a tile of a network's rows: kept[tile, layer, row, :] what the activation's derivative needs, the
    output, or PReLU's input, in half precision divided by ups[tile, layer]; shares[tile, :] the tile's share of the
    gradient, laid out as the parameters are. A tile that is the whole batch leaves there only what it applies last.
    """
    e = (tl.program_id(0) // tiles).to(tl.int64)
    where = tl.program_id(0).to(tl.int64)
    rate = tl.load(rates + e)
    p += e * p_stride
    m += e * p_stride
    v += e * p_stride
    g = shares + where * p_stride
    HIDDEN: tl.constexpr = WIDTH * INPUTS + WIDTH
    NEXT: tl.constexpr = WIDTH * WIDTH + WIDTH
    TILE: tl.constexpr = ROWS * BH
    UP: tl.constexpr = 256.0 if PARTS == 1 else 1.0
    head = HIDDEN + (DEPTH - 1) * NEXT
    prelu = head + CLASSES * WIDTH + CLASSES
    h = tl.arange(0, BH)
    wide = h < WIDTH
    q = tl.arange(0, BH * BH)
    square = q // BH * WIDTH + q % BH
    inside = None if BH == WIDTH else (q // BH < WIDTH) & (q % BH < WIDTH)
    r = tl.arange(0, ROWS)
    ups += where * DEPTH
    kept += where * DEPTH * TILE + r[:, None] * BH + h[None, :]
    place = start + (tl.program_id(0) % tiles) * ROWS + r
    live = place < stop
    rows = tl.load(order + e * order_stride + place, mask=live, other=0).to(tl.int64)
    none = tl.zeros((ROWS, BH), tl.float32)
    slope = 0.0

    y = none
    for k in range(0, INPUTS, BD):
        columns = k + tl.arange(0, BD)
        some = wide[:, None] & (columns < INPUTS)[None, :]
        w1 = tl.load(p + h[:, None] * INPUTS + columns[None, :], mask=some, other=0.0)
        y += _dot(_pixels(features, rows, live, columns, INPUTS), tl.trans(w1), PARTS, EXACT)
    y = y * scale + _bias(p + WIDTH * INPUTS, WIDTH, BH)
    if ACTIVATION == PRELU:
        slope = tl.load(p + prelu)
    x = _activate(y, slope, ACTIVATION)
    down, up = _keep(y, x, kept, ups, ACTIVATION, PARTS)
    for layer in range(1, DEPTH):
        x_hi, x_mid, x_lo = _parts(x * down, PARTS)
        w_hi, w_mid, w_lo = _parts(_square(p + HIDDEN + (layer - 1) * NEXT, WIDTH, BH) * UP, PARTS)
        y = _product(x_hi, x_mid, x_lo, tl.trans(w_hi), tl.trans(w_mid), tl.trans(w_lo), none, PARTS) * (
            up / UP
        ) + _bias(p + HIDDEN + layer * NEXT - WIDTH, WIDTH, BH)
        if ACTIVATION == PRELU:
            slope = tl.load(p + prelu + layer)
        x = _activate(y, slope, ACTIVATION)
        down, up = _keep(y, x, kept + layer * TILE, ups + layer, ACTIVATION, PARTS)

    c = tl.arange(0, BC)
    mask = (c < CLASSES)[:, None] & wide[None, :]
    at_head = head + c[:, None] * WIDTH + h[None, :]
    head_w = tl.load(p + at_head, mask=mask, other=0.0)
    out = _dot(x, tl.trans(head_w), PARTS) + _bias(p + head + CLASSES * WIDTH, CLASSES, BC)
    loss, correct, end = _loss(out, rows, live, targets, (stop - start).to(tl.float32), CLASSES, BC, REGRESSION)
    tl.store(losses + where, tl.load(losses + where) + loss)
    tl.store(corrects + where, tl.load(corrects + where) + correct)
    head_g = _dot(tl.trans(end), x, PARTS)
    tl.debug_barrier()  # what was kept may be read back by other threads than wrote it
    mine = tl.load(kept + (DEPTH - 1) * TILE)
    mine_up = tl.load(ups + DEPTH - 1) if PARTS == 1 else 1.0
    dx = _dot(end, head_w, PARTS)
    if WHOLE:
        _learn(p, m, v, at_head, head_g, mask, rate, fix1, fix2, ADAM)
    else:
        tl.store(g + at_head, head_g, mask=mask)
    tl.store(g + head + CLASSES * WIDTH + c, tl.sum(end, 0), mask=c < CLASSES)

    if ACTIVATION == PRELU:
        slope = tl.load(p + prelu + DEPTH - 1)
        tl.store(g + prelu + DEPTH - 1, tl.sum(dx * tl.minimum(mine.to(tl.float32), 0.0)) * mine_up)
    d = _through(dx, mine, mine_up, slope, ACTIVATION)
    tl.store(g + HIDDEN + (DEPTH - 1) * NEXT - WIDTH + h, tl.sum(d, 0), mask=wide)
    down, up = _scales(d, PARTS)
    hi, mid, lo = _parts(d * down, PARTS)
    first, second = 0.0, 0.0
    if WHOLE and ADAM:  # the moments of the layer to come, loaded long before they are needed; a single layer has none
        top = HIDDEN + (DEPTH - 2) * NEXT + square
        there = square < (DEPTH - 1) * NEXT
        if BH != WIDTH:
            there = there & inside
        first = tl.load(m + top, mask=there)
        second = tl.load(v + top, mask=there)
    for i in range(DEPTH - 1):
        layer = DEPTH - 2 - i  # the one whose output is this one's input
        w = HIDDEN + layer * NEXT
        weights = _square(p + w, WIDTH, BH)
        w_hi, w_mid, w_lo = _parts(weights * UP, PARTS)
        dx = _product(hi, mid, lo, w_hi, w_mid, w_lo, none, PARTS) * (up / UP)
        mine = tl.load(kept + layer * TILE)
        mine_up = tl.load(ups + layer) if PARTS == 1 else 1.0
        if ACTIVATION == PRELU:
            slope = tl.load(p + prelu + layer)
            tl.store(g + prelu + layer, tl.sum(dx * tl.minimum(mine.to(tl.float32), 0.0)) * mine_up)
            x_hi, x_mid, x_lo = _parts(_activate(mine.to(tl.float32), slope, ACTIVATION), PARTS)
        else:
            x_hi, x_mid, x_lo = _parts(mine, PARTS)
        t_hi, t_mid, t_lo = tl.trans(hi), tl.trans(mid), tl.trans(lo)
        w_g = _product(t_hi, t_mid, t_lo, x_hi, x_mid, x_lo, tl.zeros((BH, BH), tl.float32), PARTS)
        w_g = tl.reshape(w_g * (up * mine_up), (BH * BH,))
        if WHOLE:
            old = tl.reshape(weights, (BH * BH,))
            _step(p, m, v, w + square, inside, old, first, second, w_g, rate, fix1, fix2, ADAM)
            if ADAM:
                first = tl.load(m + HIDDEN + tl.maximum(layer - 1, 0) * NEXT + square, mask=inside)
                second = tl.load(v + HIDDEN + tl.maximum(layer - 1, 0) * NEXT + square, mask=inside)
        else:
            tl.store(g + w + square, w_g, mask=inside)
        d = _through(dx, mine, mine_up, slope, ACTIVATION)
        tl.store(g + w - WIDTH + h, tl.sum(d, 0), mask=wide)
        down, up = _scales(d, PARTS)
        hi, mid, lo = _parts(d * down, PARTS)
    for k in range(0, INPUTS, BD):
        columns = k + tl.arange(0, BD)
        inputs = tl.trans(_pixels(features, rows, live, columns, INPUTS))
        i_down, i_up = _scales(inputs, 3 if EXACT else PARTS)
        i_hi, i_mid, i_lo = _parts(inputs * i_down, PARTS)
        first_g = _product(i_hi, i_mid, i_lo, hi, mid, lo, tl.zeros((BD, BH), tl.float32), PARTS, EXACT)
        first_g = first_g * (scale * i_up) * up
        at = h[None, :] * INPUTS + columns[:, None]
        some1 = (columns < INPUTS)[:, None] & wide[None, :]
        if WHOLE:
            _learn(p, m, v, at, first_g, some1, rate, fix1, fix2, ADAM)
        else:
            tl.store(g + at, first_g, mask=some1)
    if WHOLE:  # biases and slopes: many small steps on the way would wait for memory
        tl.debug_barrier()
        for layer in range(0, DEPTH, 16):
            layers = layer + tl.arange(0, 16)
            at = HIDDEN + layers[:, None] * NEXT - WIDTH + h[None, :]
            some2 = (layers < DEPTH)[:, None] & wide[None, :]
            _learn(p, m, v, at, tl.load(g + at, mask=some2), some2, rate, fix1, fix2, ADAM)
            if ACTIVATION == PRELU:
                some3 = layers < DEPTH
                _learn(p, m, v, prelu + layers, tl.load(g + prelu + layers, mask=some3), some3, rate, fix1, fix2, ADAM)
        at_c = head + CLASSES * WIDTH + c
        _learn(p, m, v, at_c, tl.load(g + at_c, mask=c < CLASSES), c < CLASSES, rate, fix1, fix2, ADAM)


@triton.jit(do_not_specialize=["tiles", "size"])
def update(  # type: ignore[no-untyped-def]
    p, m, v, shares, rates, tiles, size, p_stride, fix1, fix2, BLOCK: tl.constexpr, ADAM: tl.constexpr
):
    """Add the tiles' shares of the gradient of a block of one network's parameters, and apply the optimizer."""
    e = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = i < size
    share = shares + e * tiles * p_stride + i
    at = e * p_stride + i
    old, first, second = _state(p, m, v, at, real, ADAM)  # before the sum, so that nothing waits for it
    g = tl.load(share, mask=real, other=0.0)
    for _ in range(1, tiles):
        share += p_stride
        g += tl.load(share, mask=real, other=0.0)
    _step(p, m, v, at, real, old, first, second, g, tl.load(rates + e), fix1, fix2, ADAM)
