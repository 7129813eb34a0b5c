"""What a parameter holds: matrices to be drawn, a constant, or something to be left alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

Conv = Literal["delta", "flatten"]
CONV_MODES: tuple[Conv, ...] = get_args(Conv)
Shape = tuple[int, ...]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layer:
    """What the recipe needs to know of a layer, beside the shape of its weight.

    Weights are in PyTorch's layout: (outputs, inputs, *window), of a transposed convolution (inputs, outputs, *window),
    where groups divide the second dimension. Other frameworks bring theirs into it.
    """

    kind: Literal["linear", "convolution", "members", "state", "gates", "embedding"] = "linear"
    """`"members"`: attention and recurrent layers, whose matrices are in the set wherever they stand; `"state"`: from
    one state of a ReLU recurrence to the next; `"gates"`: from the inputs of an LSTM to its gates."""
    count: int = 1
    """Matrices one above the other, such as those of gates; for convolutions, the groups."""
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    transposed: bool = False
    heads: int | None = None
    """Of a weight that holds an attention's query: its heads, where they are known."""


@dataclass(frozen=True, slots=True, eq=False)  # equal layers share one, so that it serves as a key by itself
class Matrices:
    """Where a weight holds its m × n matrices: its first dimension is cut into `count` equal blocks of one each.

    With a `tap` the matrix is at that one place of the block's kernel, and the rest of the kernel is zero. `order`
    puts the block's dimensions in the matrix's order, those of its rows before those of its columns.
    """

    count: int
    m: int
    n: int
    receptive: int = 1
    """Kernel places among a row's n entries: fan_in is n, fan_out is m · receptive."""
    tap: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    scale: float = 1.0
    zero_row: int | None = None
    """A row that stays zero: an embedding's padding."""
    rows: Range | None = None
    """The part of the weight that this is about; None for all of it."""
    period: int | None = None
    """With it, `rows` are those of every so many rows, as where the heads of q, k and v take turns."""
    columns: Range | None = None
    """The part of the second dimension that this is about, likewise."""
    mirrored: bool = False
    """Whether the transposes of what is drawn are used; m = n."""

    @property
    def whole(self) -> bool:
        """Whether the weight is one matrix, its first dimension the rows."""
        return self.count == 1 and not self.tap and not self.order and self.rows is None and self.columns is None

    @property
    def law(self) -> tuple[object, ...]:
        """What two weights share whose matrices can be drawn together."""
        return self.m, self.n, self.receptive, self.scale, self.zero_row, self.mirrored

    def block_shape(self, shape: Shape) -> Shape:
        """The shape of the block that holds one matrix, in a weight of that shape."""
        first, last = self.rows or (0, shape[0])
        height = (last - first) // self.count * (shape[0] // self.period if self.period else 1)
        second = shape[1:2] if self.columns is None else (self.columns[1] - self.columns[0],)
        return (height, *second, *(() if self.tap else shape[2:]))

    def blocks(self, members: Any, shape: Shape) -> Any:
        """`members`, of shape (k, m, n), as blocks of a weight of that shape: a view of shape (k, …)."""
        block = self.block_shape(shape)
        if not self.order:
            return members.reshape(-1, *block)
        back = (1 + self.order.index(dimension) for dimension in range(len(block)))
        apart = members.reshape(-1, *(block[dimension] for dimension in self.order))
        permute = apart.permute if hasattr(apart, "permute") else apart.transpose  # PyTorch's name, and NumPy's
        return permute(0, *back)

    def places(self, weight: Any) -> Any:
        """Where the matrices are in `weight`: a view of shape (count, …), for their `blocks` in the same order."""
        if self.period is not None:
            assert self.rows is not None
            return weight.reshape(-1, self.period, *weight.shape[1:])[:, self.rows[0] : self.rows[1]][None]
        if self.rows is not None:
            weight = weight[self.rows[0] : self.rows[1]]
        if self.columns is not None:
            weight = weight[:, self.columns[0] : self.columns[1]]
        if self.count == 1 and not self.tap:
            return weight[None]
        apart = weight.reshape(self.count, weight.shape[0] // self.count, *weight.shape[1:])
        return apart[(..., *self.tap)]


class Weight(NamedTuple):
    """A weight that is to be drawn, and its layer."""

    name: str
    shape: Shape
    """In PyTorch's layout; `Layer` describes it."""
    matrices: Matrices
    """What it holds under the paper's recipe."""
    layer: Layer
    biased: bool = False
    """Whether the layer has a bias that can be set."""
    linked: bool = True
    """Whether it may take the matrices of another weight."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A parameter that is set to one value, or a few of its entries to one."""

    value: float
    ones: Range | None = None
    """Of an LSTM's bias: the entries of the forget gate, where they start at one."""

    def filled(self, values: np.ndarray) -> np.ndarray:
        """The array with these values in it."""
        values[...] = self.value
        if self.ones is not None:
            values[..., self.ones[0] : self.ones[1]] = 1
        return values


@dataclass(frozen=True, slots=True)
class Leave:
    """A parameter that is left alone; `otherwise` gives it values when it has none, being on the meta device."""

    reason: str
    otherwise: Matrices | Constant | None = None


Rule = Matrices | Constant | Leave

ZEROS, ONES = Constant(0.0), Constant(1.0)


def is_patches(layer: Layer, shape: Shape) -> bool:
    """Whether a convolution steps by its own size, or has one place: a linear map of patches."""
    kernel = shape[2:]
    return math.prod(kernel) == 1 or (layer.stride == kernel and all(step == 1 for step in layer.dilation))


def kernel_matrices(layer: Layer, shape: Shape, conv: Conv, *, entrywise: bool) -> Matrices:
    r"""A group's kernel as a matrix.

    Where the kernel steps by its own size the layer is a linear map of patches, in · |kernel| → out (transposed:
    in → out · |kernel|), and is treated as one. Otherwise `conv` decides. Schemes that draw entry by entry take the
    whole kernel, whose fans are in · |kernel| and out · |kernel|.
    """
    groups, kernel, transposed = layer.count, shape[2:], layer.transposed
    inputs, outputs = (shape[0] // groups, shape[1]) if transposed else (shape[1], shape[0] // groups)
    places = math.prod(kernel)
    axes = tuple(range(2, len(shape)))
    whole = (1, 0, *axes) if transposed else ()
    if entrywise:
        return Matrices(groups, outputs, inputs * places, receptive=places, order=whole)
    if is_patches(layer, shape):
        if transposed:
            return Matrices(groups, outputs * places, inputs, order=(1, *axes, 0))
        return Matrices(groups, outputs, inputs * places)
    if conv == "delta":
        tap = tuple((size - 1) // 2 for size in kernel)
        return Matrices(groups, outputs, inputs, tap=tap, order=(1, 0) if transposed else ())
    return Matrices(groups, outputs, inputs * places, order=whole, scale=1 / math.sqrt(places))
