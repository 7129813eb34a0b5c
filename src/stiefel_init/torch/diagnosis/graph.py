"""The loss's autograd graph: what it reads behind the last layer, and what its gradient passes to the leaves.

`Calls` records what the graph does not keep: reshapes, and results that nothing reads.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...core.activations import OF_UNITS
from ...health.setup import Op

LAYERS = frozenset({
    "Addmm", "Mm", "Bmm", "Convolution", "Embedding", "NativeLayerNorm", "NativeBatchNorm", "CudnnBatchNorm",
    "NativeGroupNorm", "MkldnnRnnLayer", "CudnnRnn", "Baddbmm", "FusedRmsNorm",
})  # fmt: skip
RESHAPES = frozenset(
    {"T", "Transpose", "View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "Expand"}
)
LENGTHS = frozenset({"LinalgVectorNorm", "Norm", "Cdist", "CosineSimilarity", "Sqrt"})
_ORDERED = frozenset({"BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"})  # arguments that cannot be swapped
_SQUASHING = frozenset({"Sigmoid", "Tanh", "Softmax", "Hardsigmoid"})
BREAKING = {
    **dict.fromkeys(("div", "truediv", "true_divide", "rtruediv", "reciprocal", "rsqrt"), "division by zero"),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), "a logarithm breaks"),
    **dict.fromkeys(("exp", "expm1"), "exponentials overflow"),
    **dict.fromkeys(
        ("pow", "square", "mul", "rmul", "matmul", "linear", "conv1d", "conv2d", "sum", "mean", "add", "radd", "sub",
         "bmm", "einsum", "cumsum", "prod", "norm", "float_power", "half"),
        "numbers overflow",
    ),
}  # fmt: skip
"""Operations that may make infinite of finite numbers, with the kind of their rule."""
_DIFFERENCES = frozenset({"sub", "rsub", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
_MOST = 64  # operations between the last layer and the loss, at most


def _name(node: Any) -> str:
    """An autograd node's operation, such as `"LogSoftmax"`."""
    return str(node.name()).partition("Backward")[0].rpartition("::")[2]


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node._input_metadata[0].shape) if node._input_metadata else ()


def _dim(node: Any, shape: tuple[int, ...]) -> int | None:
    dim = getattr(node, "_saved_dim", None)
    if not isinstance(dim, int) or not shape:
        return None
    return dim - (1 << 64) + len(shape) if dim >= 1 << 63 else dim


class Calls(TorchFunctionMode):
    """Records reshapes that give an axis another place, and activations whose result is thrown away.

    With `check` also the first operation whose result is not finite though its arguments are.
    """

    def __init__(self, check: bool = False) -> None:
        super().__init__()
        self.moved: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        self.broadcast: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        """The shapes of a tensor with a gradient and of one without whose difference is larger than both."""
        self.broke: tuple[str, str] | None = None
        """The rule's kind, and the operation in words."""
        self._check = check
        self._unread: list[tuple[str, Any, weakref.ref[Tensor]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # What is read, if only to be compared, is not thrown away.
        self._unread = [
            each for each in self._unread if (held := each[2]()) is None or all(held is not a for a in args)
        ]
        if not isinstance(result, Tensor):
            return result
        name = getattr(func, "__name__", "").strip("_")
        if name in ("view", "reshape") and self.moved is None:
            before, after = tuple(args[0].shape), tuple(result.shape)
            if moves_an_axis(before, after):
                self.moved = before, after
        if name in _DIFFERENCES and len(args) > 1 and isinstance(args[1], Tensor) and self.broadcast is None:
            self.broadcast = _broadcast(name, *args[:2])
        if name in OF_UNITS and result.grad_fn is not None:
            self._unread.append((name, result.grad_fn, weakref.ref(result)))
        if self._check and self.broke is None and name in BREAKING and not _are_finite([result]) and _are_finite(args):
            self.broke = BREAKING[name], name
        return result

    def discarded(self, nodes: Collection[Any]) -> str:
        """An activation whose result neither the loss nor anything else holds."""
        return next((name for name, node, held in self._unread if held() is None and node not in nodes), "")


def _broadcast(name: str, one: Tensor, other: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shapes, where tensors alike but for axes of one are compared each with each, as (64, 1) and (64,) are.

    Who means to compare all pairs gives both the same number of axes before.
    """
    shapes = tuple(one.shape), tuple(other.shape)
    alike = [size for size in shapes[0] if size > 1] == [size for size in shapes[1] if size > 1] != []
    if one.requires_grad == other.requires_grad or not alike or (one.ndim == other.ndim and "sub" in name):
        return None
    return shapes if math.prod(torch.broadcast_shapes(*shapes)) > one.numel() else None


def _are_finite(values: Iterable[Any]) -> bool:
    with torch._C.DisableTorchFunction():
        return all(
            bool(value.detach().isfinite().all())
            for value in values
            if isinstance(value, Tensor) and value.is_floating_point()
        )


def moves_an_axis(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether a view has an axis of a size that was there, put together from parts of several axes.

    >>> moves_an_axis((64, 10, 4), (64, 4, 10)), moves_an_axis((64, 10, 4), (640, 4)), moves_an_axis((2, 9, 5), (9, 10))
    (True, False, True)
    """
    (old, edges), (new, _) = map(_axes, (before, after))
    return any(
        size > 2
        and (low, size) not in old
        and size in {other for _, other in old}
        and size not in {other for one, other in new if (one, other) in old}
        and any(low < edge < low * size for edge in edges)
        and not {low, low * size} <= edges
        for low, size in new
    )


def _axes(shape: Sequence[int]) -> tuple[set[tuple[int, int]], set[int]]:
    """Of each axis, how many numbers those before it count, and its size; and where axes end."""
    ends = [math.prod(shape[:at]) for at in range(len(shape) + 1)]
    return {(low, size) for low, size in zip(ends, shape) if size > 1}, set(ends)


def tail_of(loss: Tensor, size: int | None = None) -> tuple[tuple[Op, ...], str]:
    """The operations between the last layer and the loss, the loss's own last, and the operation before these.

    An operation on fewer or more numbers than `size`, which the model returns, is its inside once that many were met.
    """
    ops: list[Op] = []
    node, last, met = loss.grad_fn, "", False
    while node is not None and len(ops) < _MOST:
        name, shape = _name(node), _shape(node)
        met = met or math.prod(shape) == size
        if name in LAYERS or name == "AccumulateGrad" or (met and math.prod(shape) != size and name != "Expand"):
            last = name
            break
        below = [function for function, _ in node.next_functions]
        ignored, weight = (getattr(node, f"_saved_{what}", None) for what in ("ignore_index", "weight"))
        ops.append(
            Op(
                name, shape, _dim(node, shape), getattr(node, "_saved_reduction", None),
                None if ignored is None else ignored - (1 << 64) if ignored >= 1 << 63 else ignored,
                tuple(weight.tolist()) if isinstance(weight, Tensor) and weight.ndim == 1 else (),
                name in _ORDERED and len(below) > 1 and below[0] is None,
                outside=_outside(node),
            )
        )  # fmt: skip
        node = next((function for function in below if function is not None), None)
    return tuple(reversed(ops)), last


def _outside(node: Any) -> float | None:
    targets = getattr(node, "_saved_target", None)
    if not isinstance(targets, Tensor) or not targets.is_floating_point():
        return None
    return float(((targets < 0) | (targets > 1)).double().mean())


@dataclass
class Graph:
    """What the loss's gradient passes on its way to the leaves."""

    leaves: list[Tensor] = field(default_factory=list)
    softmaxes: list[Op] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)  # activations that follow each other directly
    single: int = 0  # normalizations over one number
    blocks: int = 0  # sums of two tensors of one shape, each computed: skip connections
    normalizes: bool = False
    doubled: bool = False  # whether a tensor is added to itself
    stairs: str = ""  # an operation whose slope is 0
    suspects: dict[str, str] = field(default_factory=dict)
    """What may go wrong where a value or slope is not finite, by its rule's kind, and which operation, in words."""
    nodes: set[Any] = field(default_factory=set)


def graph_of(loss: Tensor | None) -> Graph:
    """All that the gradient of a loss, or of outputs, passes."""
    stack: list[tuple[Any, str]] = [(None if loss is None else loss.grad_fn, "")]
    found = Graph()
    seen = found.nodes
    seen.add(None)
    while stack:
        node, reader = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        name = _name(node)
        if hasattr(node, "variable"):
            found.leaves.append(node.variable)
        elif name in ("Softmax", "LogSoftmax"):
            dim = _dim(node, _shape(node))
            found.softmaxes.append(
                Op(name, _shape(node), dim, reader=reader, peak=_peak(node, dim), empty=_has_empty_rows(node, dim))
            )
        if name in _SQUASHING and reader in _SQUASHING:
            found.pairs.append((name, reader))
        computed = [below for below, _ in node.next_functions if below is not None and not hasattr(below, "variable")]
        found.blocks += name == "Add" and len(computed) == 2 and _shape(computed[0]) == _shape(computed[1])
        twice = name == "Add" and len(computed) == 2 and node.next_functions[0] == node.next_functions[1]
        found.doubled = found.doubled or (twice and math.prod(_shape(node)) > 1)
        found.stairs = name if name in ("Round", "Floor", "Ceil", "Trunc", "Sign") else found.stairs
        if (risk := _risk(node, name)) is not None:
            found.suspects.setdefault(*risk)
        found.normalizes = found.normalizes or ("Norm" in name and name != "LinalgVectorNorm")
        if name == "NativeLayerNorm":
            found.single += math.prod(node._saved_normalized_shape) == 1
        if name == "NativeGroupNorm":
            found.single += node._saved_C * node._saved_HxW == node._saved_group
        reader = reader if name in RESHAPES else name
        stack += [(below, reader) for below, _ in node.next_functions]
    return found


def _has_empty_rows(node: Any, dim: int | None) -> bool:
    result = getattr(node, "_saved_result", None)
    if not isinstance(result, Tensor) or dim is None or not result.ndim or _name(node) != "Softmax":
        return False
    gone = result.detach().isnan().all(dim)
    return bool(gone.any()) and not bool(gone.all())


def is_read(loss: Tensor, outputs: Tensor | None) -> bool:
    """Whether the loss reads the outputs as they are, and not their products, say."""
    node = loss.grad_fn
    while node is not None and outputs is not None:
        if node is outputs.grad_fn:
            return True
        if _name(node) in LAYERS:
            return False
        node = next((below for below, _ in node.next_functions if below is not None), None)
    return False


def _risk(node: Any, name: str) -> tuple[str, str] | None:
    """The rule's kind, and what the operation does, if nothing keeps its argument from where it is not finite."""
    below = [_through(function) for function, _ in node.next_functions]
    if not below or below[0] is None:
        return None
    if name in ("Acos", "Asin", "Atanh"):
        return None if _is_inside(below[0]) else ("slope is infinite", f"{name.lower()} of what may be 1")
    if name == "Div" and len(below) > 1 and below[1] is not None:
        under = _name(below[1])
        top = _through(below[1].next_functions[0][0]) if under == "Sum" else None
        if top is not None and _name(top) == "Exp":
            taken_off = _name(_through(top.next_functions[0][0])) == "Sub"  # the largest score
            return None if taken_off else ("exponentials overflow", "a softmax of exponentials and their sum")
        return ("division by zero", f"a division by a {_DIVISORS[under]}") if under in _DIVISORS else None
    is_root = name == "Sqrt" or (name == "Pow" and 0 < _number(node, "_saved_exponent") < 1)
    if _is_guarded(below[0]) or not (is_root or name in ("Log", "Rsqrt", "Std")):
        return None
    if name in ("Log", "Rsqrt"):
        word = "the logarithm" if name == "Log" else "one over the square root"
        return "a logarithm breaks" if name == "Log" else "division by zero", f"{word} of what may be 0"
    return "slope is infinite", "a standard deviation, which may be 0" if name == "Std" else "a root of what may be 0"


_DIVISORS = {
    "Std": "standard deviation", "Sum": "sum", "Sqrt": "root", "Norm": "norm", "LinalgVectorNorm": "norm",
    "Amax": "maximum", "Max": "maximum", "Sub": "difference",
}  # fmt: skip


def _through(node: Any) -> Any:
    """What is below reshapes."""
    while node is not None and _name(node) in RESHAPES and node.next_functions:
        node = node.next_functions[0][0]
    return node


def _number(node: Any, name: str) -> float:
    value = getattr(node, name, None)
    return float(value) if isinstance(value, int | float) else 0.0


def _is_guarded(node: Any) -> bool:
    """Whether an operation keeps its result from 0: a number is added, it is clamped, or it is positive by itself."""
    node = _through(node)
    name = _name(node)
    added = name == "Add" and sum(below is not None for below, _ in node.next_functions) == 1
    return added or name.startswith(("Clamp", "Maximum", "Exp", "Softplus", "Softmax", "Sigmoid", "Where")) or (
        name in ("Sum", "Mean", "Rsub") and _name(_through(node.next_functions[0][0])) in ("Exp", "Softmax", "Sigmoid")
    )  # fmt: skip


def _is_inside(node: Any) -> bool:
    """Whether an operation keeps its result inside -1 … 1."""
    node = _through(node)
    if node is None or not _name(node).startswith("Clamp"):
        return _name(node) in ("Mul", "Tanh") if node is not None else True
    return max(abs(_number(node, "_saved_min")), abs(_number(node, "_saved_max"))) < 1


def _peak(node: Any, dim: int | None) -> float | None:
    """The mean of a softmax's largest probability, if it is over four or more."""
    result = getattr(node, "_saved_result", None) if _name(node) == "Softmax" else None
    if not isinstance(result, Tensor) or dim is None or result.shape[dim] < 4:
        return None
    return float(result.detach().amax(dim).double().mean())
