"""What a parameter holds: matrices to be drawn, a constant, or something to be left alone; and how it is stored."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

DTYPES = ("float64", "float32", "bfloat16", "float16")
"""Of weights, in every framework."""
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

    kind: Literal["linear", "convolution", "members", "state", "recurrent", "gates", "embedding"] = "linear"
    """`"members"`: attention and ReLU recurrences, whose matrices are in the set wherever they stand; `"state"`: from
    one state of such a recurrence to the next; `"recurrent"`: of one with gates or tanh, but for `"gates"`: from the
    inputs of an LSTM to its gates."""
    count: int = 1
    """Matrices one above the other, such as those of gates; for convolutions, the groups."""
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    transposed: bool = False
    """Whether a convolution is; of a linear layer, whether its weight is (inputs, outputs)."""
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
    def distribution(self) -> tuple[object, ...]:
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

    def read(self, weight: Any) -> Any:
        """The matrices that a weight holds, of shape (count, m, n)."""
        blocks = self.places(weight)
        if self.order:
            permute = blocks.permute if hasattr(blocks, "permute") else blocks.transpose
            blocks = permute(0, *(1 + dimension for dimension in self.order))
        matrices = blocks.reshape(self.count, self.m, self.n)
        return matrices if self.scale == 1 else matrices / self.scale

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


def each_axis(value: int | Sequence[int] | None, window: int) -> Shape:
    """A convolution's option for each of its axes, however it was given."""
    return (1,) * window if value is None else (value,) * window if isinstance(value, int) else tuple(value)


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
    size: float | None = None
    """The root mean square of its author's entries; None where it has no values."""
    bias: float | None = None
    """Of the layer's biases, likewise."""
    patterned: bool = False
    """Whether most of its author's entries are zero."""


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
Held = Layer | Constant | Leave

ZEROS, ONES = Constant(0.0), Constant(1.0)
AN_EMBEDDING, A_SLOPE, AN_ADAPTER = Leave("an embedding"), Leave("the slope of PReLU"), Leave("a LoRA adapter")


def no_rule(owner: object) -> Leave:
    """For parameters of layers that are not known."""
    return Leave(f"no rule for parameters of {type(owner).__name__}")


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


def matrices_of(layer: Layer, shape: Shape, conv: Conv, *, entrywise: bool) -> Matrices:
    """Where a layer's weight, of a shape in PyTorch's layout, holds its matrices."""
    if layer.kind == "convolution":
        return kernel_matrices(layer, shape, conv, entrywise=entrywise)
    if layer.transposed:
        return Matrices(1, shape[1], shape[0], order=(1, 0))
    return _stacked(layer.count, shape[0] // layer.count, math.prod(shape[1:]))


@lru_cache(maxsize=64)  # layer shapes repeat, and equal layers are drawn together
def _stacked(count: int, m: int, n: int) -> Matrices:
    return Matrices(count, m, n)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a framework stores a weight: split so, and with its dimensions in another order, it has PyTorch's layout."""

    split: Shape
    axes: tuple[int, ...]
    shape: Shape
    """In PyTorch's layout."""

    def stored(self, weight: np.ndarray, shape: Shape) -> np.ndarray:
        """A weight in PyTorch's layout as the framework stores it, in an array of that shape."""
        apart = weight.reshape([self.split[axis] for axis in self.axes])
        return apart.transpose(np.argsort(self.axes)).reshape(shape)


def axes(shape: Shape, batch: Sequence[int], outputs: Sequence[int], inputs: Sequence[int]) -> Layout:
    """Of a linear map, whose dimensions are named: those of independent matrices, of outputs and of inputs."""
    rows, columns = (*batch, *outputs), tuple(inputs)
    return Layout(shape, rows + columns, (math.prod(shape[a] for a in rows), math.prod(shape[a] for a in columns)))


def dense(shape: Shape) -> Layout:
    """(inputs, outputs), behind dimensions of independent matrices."""
    rank = len(shape)
    return axes(shape, range(rank - 2), (rank - 1,), (rank - 2,))


def kernel(shape: Shape, window: int, *, swapped: bool = False) -> Layout:
    """(*window, a, b) as (b, a, *window), or (a, b, *window) if `swapped`; behind dimensions of independent kernels."""
    stacked, rank = len(shape) - 2 - window, len(shape)
    a, b = (rank - 1, rank - 2) if swapped else (rank - 2, rank - 1)
    order = (*range(stacked), b, a, *range(stacked, stacked + window))
    rows = math.prod(shape[axis] for axis in order[: stacked + 1])
    return Layout(shape, order, (rows, *(shape[axis] for axis in order[stacked + 1 :])))


def einsum(equation: str, shape: Shape) -> tuple[Layer | Leave, Layout | None]:
    """The second operand of an equation such as `"ab,bc->ac"`: what it shares with both others is a batch."""
    given, result = equation.replace(" ", "").replace("...", "").split("->")
    signal, letters = given.split(",")
    batch: list[int] = []
    outputs: list[int] = []
    inputs: list[int] = []
    for axis, letter in enumerate(letters):
        (batch if letter in signal and letter in result else outputs if letter in result else inputs).append(axis)
    if not outputs or not inputs:
        return Leave(f"no matrix in the equation {equation!r}"), None
    return Layer(count=math.prod(shape[axis] for axis in batch)), axes(shape, batch, outputs, inputs)


@dataclass(slots=True, eq=False)
class ParamRef:
    """A parameter under one of its names; each framework adds where its values are."""

    name: str
    stream: str
    """The name of its random numbers, the same in every framework and whatever wraps the model."""
    key: Hashable
    """The same under all its names."""
    shape: Shape
    """As it is stored."""

    @property
    def canonical(self) -> Shape:
        """The shape in PyTorch's layout."""
        return self.shape

    @property
    def relation(self) -> str:
        """What it is to its first name, where it has several."""
        return "tied to"

    @property
    def linked(self) -> bool:
        """Whether it may take the matrices of another weight."""
        return True

    @property
    def empty(self) -> bool:
        """Whether it has no values that could be left alone."""
        return False


@dataclass(slots=True, eq=False)
class ArrayRef(ParamRef):
    """A parameter of a framework that takes its values as NumPy arrays."""

    what: Layer | Constant | Leave
    layout: Layout | None = None
    """Of a weight; None where it is stored in PyTorch's."""
    bias: Hashable = None
    """The key of the bias of a weight's layer, if it has one."""

    @property
    def canonical(self) -> Shape:
        """The shape in PyTorch's layout."""
        return self.shape if self.layout is None else self.layout.shape
