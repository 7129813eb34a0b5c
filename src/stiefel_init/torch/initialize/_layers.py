"""What each kind of layer's parameters are: matrices to be drawn, constants, or something to be left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from torch import Tensor, nn

Conv = Literal["delta", "flatten"]
CONV_MODES: tuple[Conv, ...] = get_args(Conv)
Shape = tuple[int, ...]
Range = tuple[int, int]


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
    mirrored: bool = False
    """Whether the transposes of what is drawn are used; m = n."""

    @property
    def whole(self) -> bool:
        """Whether the weight is one matrix, its first dimension the rows."""
        return self.count == 1 and not self.tap and not self.order and self.rows is None

    @property
    def law(self) -> tuple[object, ...]:
        """What two weights share whose matrices can be drawn together."""
        return self.m, self.n, self.receptive, self.scale, self.zero_row, self.mirrored

    def block_shape(self, shape: Shape) -> Shape:
        """The shape of the block that holds one matrix, in a weight of that shape."""
        first, last = self.rows or (0, shape[0])
        return (last - first) // self.count, *shape[1 : 2 if self.tap else None]

    def blocks(self, members: Tensor, shape: Shape) -> Tensor:
        """`members`, of shape (k, m, n), as blocks of a weight of that shape: a view of shape (k, …)."""
        block = self.block_shape(shape)
        if not self.order:
            return members.view(-1, *block)
        back = (1 + self.order.index(dimension) for dimension in range(len(block)))
        return members.view(-1, *(block[dimension] for dimension in self.order)).permute(0, *back)

    def places(self, weight: Tensor) -> Tensor:
        """Where the matrices are in `weight`: a view of shape (count, …), of the shape of their `blocks`."""
        if self.rows is not None:
            weight = weight[self.rows[0] : self.rows[1]]
        if self.count == 1 and not self.tap:
            return weight.unsqueeze(0)
        return _at(weight.unflatten(0, (self.count, weight.shape[0] // self.count)), self.tap)

    def write_rows(self, part: Tensor, box: tuple[Range, ...], first: int, rows: Tensor) -> None:
        """Put into `part`, the slice `box` of a weight, what it holds of the weight's rows from `first` on."""
        (start, stop), *others = box
        low, high = max(first, start), min(first + len(rows), stop)
        if low >= high or any(not a <= place < b for place, (a, b) in zip(self.tap, box[2:])):
            return
        target, source = part[low - start : high - start], rows[low - first : high - first]
        if self.tap:
            target = _at(target, tuple(place - a for place, (a, _) in zip(self.tap, box[2:])))
        for dimension, (a, b) in enumerate(others[: source.ndim - 1], 1):
            source = source.narrow(dimension, a, b - a)
        target.copy_(source)


def _at(kernels: Tensor, tap: tuple[int, ...]) -> Tensor:
    """What is at one place of the kernels, which the last dimensions are."""
    for place in reversed(tap):
        kernels = kernels.select(-1, place)
    return kernels


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A parameter that is set to one value."""

    value: float


@dataclass(frozen=True, slots=True)
class Leave:
    """A parameter that is left alone; `otherwise` gives it values when it has none, being on the meta device."""

    reason: str
    otherwise: Matrices | Constant | None = None


Rule = Matrices | Constant | Leave

ZEROS, ONES = Constant(0.0), Constant(1.0)


def rule(module: nn.Module, name: str, shape: Shape, conv: Conv, *, entrywise: bool = False) -> Rule | None:
    """The rule of the module's own parameter `name`; None when it belongs to no layer known here."""
    if (rule_of := _rule_of(type(module))) is not None:  # type: ignore[arg-type]
        return rule_of(module, name, shape)
    if isinstance(module, nn.modules.conv._ConvNd):
        return (
            kernel_matrices(module, shape, conv, entrywise=entrywise)
            if name == "weight"
            else ZEROS
            if name == "bias"
            else None
        )
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return _conv1d(name, shape)
    return None


@lru_cache
def _rule_of(kind: type[nn.Module]) -> Callable[[nn.Module, str, Shape], Rule | None] | None:
    return next((rule_of for kinds, rule_of in _KINDS if issubclass(kind, kinds)), None)


@lru_cache(maxsize=64)  # layer shapes repeat
def _flat(shape: Shape, count: int = 1) -> Matrices:
    return Matrices(count, shape[0] // count, math.prod(shape[1:]))


def _linear(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    """Bilinear too: W acts on the products x₁ᵢx₂ⱼ, so its matrix is out × in₁·in₂."""
    return _flat(shape) if name == "weight" and len(shape) > 1 else ZEROS if name == "bias" else None


def _conv1d(name: str, shape: Shape) -> Rule | None:
    """The linear layer of GPT-2 in the package transformers, which stores its weight as in × out."""
    return Matrices(1, shape[1], shape[0], order=(1, 0)) if name == "weight" else ZEROS if name == "bias" else None


def is_patches(module: nn.modules.conv._ConvNd, shape: Shape) -> bool:
    """Whether a convolution steps by its own size, or has one place: a linear map of patches."""
    kernel = shape[2:]
    return math.prod(kernel) == 1 or (tuple(module.stride) == kernel and all(step == 1 for step in module.dilation))


def kernel_matrices(module: nn.modules.conv._ConvNd, shape: Shape, conv: Conv, *, entrywise: bool) -> Matrices:
    r"""A group's kernel as a matrix.

    Where the kernel steps by its own size the layer is a linear map of patches, in · |kernel| → out (transposed:
    in → out · |kernel|), and is treated as one. Otherwise `conv` decides. Schemes that draw entry by entry take the
    whole kernel, whose fans are in · |kernel| and out · |kernel|.
    """
    groups, kernel, transposed = module.groups, shape[2:], module.transposed
    inputs, outputs = (shape[0] // groups, shape[1]) if transposed else (shape[1], shape[0] // groups)
    places = math.prod(kernel)
    axes = tuple(range(2, len(shape)))
    whole = (1, 0, *axes) if transposed else ()
    if entrywise:
        return Matrices(groups, outputs, inputs * places, receptive=places, order=whole)
    if is_patches(module, shape):
        if transposed:
            return Matrices(groups, outputs * places, inputs, order=(1, *axes, 0))
        return Matrices(groups, outputs, inputs * places)
    if conv == "delta":
        tap = tuple((size - 1) // 2 for size in kernel)
        return Matrices(groups, outputs, inputs, tap=tap, order=(1, 0) if transposed else ())
    return Matrices(groups, outputs, inputs * places, order=whole, scale=1 / math.sqrt(places))


def _attention(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    if name == "in_proj_bias":
        return ZEROS
    if name.endswith("_proj_weight"):
        return _flat(shape, 3 if name == "in_proj_weight" else 1)
    return None


def _recurrent(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    """A matrix for each gate; of `weight_hr`, the LSTM's projection, the whole."""
    if name.startswith("bias_"):
        return ZEROS
    if name.startswith("weight_"):
        assert isinstance(module, nn.RNNBase | nn.RNNCellBase)
        return _flat(shape, 1 if name.startswith("weight_hr") else shape[0] // module.hidden_size)
    return None


def _norm(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    return {"weight": ONES, "bias": ZEROS}.get(name)


def _embedding(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    assert isinstance(module, nn.Embedding | nn.EmbeddingBag)
    fresh = Matrices(1, shape[0], math.prod(shape[1:]), zero_row=module.padding_idx)
    return Leave("an embedding", fresh) if name == "weight" else None


def _slope(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    assert isinstance(module, nn.PReLU)
    return Leave("the slope of PReLU", Constant(module.init)) if name == "weight" else None


_NORMS = nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm


def is_normalization(module: nn.Module) -> bool:
    """Whether a module is one of torch's normalization layers."""
    return isinstance(module, _NORMS)


_KINDS: tuple[tuple[tuple[type[nn.Module], ...], Callable[[nn.Module, str, Shape], Rule | None]], ...] = (
    ((nn.Linear, nn.Bilinear), _linear),
    (_NORMS, _norm),
    ((nn.MultiheadAttention,), _attention),
    ((nn.RNNBase, nn.RNNCellBase), _recurrent),
    ((nn.Embedding, nn.EmbeddingBag), _embedding),
    ((nn.PReLU,), _slope),
)
