"""What passes through a model's layers in one forward pass: `Observer`, which `diagnose` runs the model under.

Note [what follows a layer]
    A hook on each layer sees its output. A torch-function mode sees every torch call after it, whether a module made
    it or the user's own code, so an activation is recognised in one place: as a call, by its name, on a tensor that
    carries a layer's mark. Normalization, dropout, pooling and reshaping pass the mark on. Everything else ends it,
    so the sum of a skip connection belongs to no layer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from ...core.activations import BOUNDS, DYING, OF_UNITS
from .statistics import Gatherer, bending, double, entering, leaving, some

RESHAPES = frozenset([
    "view", "reshape", "flatten", "unflatten", "transpose", "permute", "contiguous", "squeeze", "unsqueeze",
    "movedim", "swapaxes", "to", "float",
])  # fmt: skip
PASS_ON = frozenset([
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "max_pool1d", "max_pool2d",
    "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "boolean_dispatch",
])  # fmt: skip
_INPUTS = 256  # inputs whose own mean and std a prediction starts from


@dataclass(eq=False, slots=True)
class Seen:
    """One call of one layer."""

    name: str
    module: nn.Module
    call: int
    axis: int
    """The dimension of the output that counts units."""
    ndim: int
    output: Tensor | None
    """The output, until what follows it is known."""
    edge: GradientEdge | None
    units: int = 0
    samples: int = 0
    activation: str | None = None
    parameters: dict[str, float] | None = None
    """The activation's parameters as the theory names them; None where the theory does not cover it."""
    before: Seen | None = None
    """The linear layer whose activations, and nothing else, are this linear layer's input."""
    start: Tensor | None = None
    """Otherwise, of a linear layer: its inputs' own means and stds."""
    followed: bool = False
    """Whether it is another layer's `before`."""
    forked: bool = False
    """Whether anything besides that layer uses the activations."""
    saturated: Tensor | None = None
    """The fraction of outputs near a bound of the activation."""
    sequence: Tensor | None = None
    """Of a recurrent layer that reads forward: its input, (steps, …), as a tensor that only this layer uses."""


@dataclass(slots=True)
class Mark:
    seen: Seen
    activated: bool
    plain: bool
    """Nothing but reshaping lies between the layer, or its activation, and the tensor."""


@dataclass
class Observer(TorchFunctionMode):
    """A context that records the calls of `layers`, in the order they end."""

    layers: Iterable[tuple[str, nn.Module]]
    gradients: bool
    """Whether to keep the graph edges that gradients with respect to the outputs need."""
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._marks: dict[int, tuple[weakref.ref[Tensor], Mark]] = {}
        self.entering, self.leaving, self.bending = Gatherer(entering), Gatherer(leaving), Gatherer(bending)
        self._sequences: dict[nn.Module, Tensor] = {}
        self._calls: dict[nn.Module, int] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Observer:
        for name, module in self.layers:
            self._handles.append(module.register_forward_hook(self._hook(name or "model"), with_kwargs=True))
            if self.gradients and isinstance(module, nn.RNNBase) and not module.bidirectional:
                self._handles.append(module.register_forward_pre_hook(self._separate))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self._handles:
            handle.remove()
        if error[0] is None:
            for layer in self.seen:
                self._settle(layer)

    def _separate(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Give a recurrent layer its input as a tensor of its own, for the gradient at each step."""
        source = args[0] if args else None
        if not isinstance(source, Tensor) or source.ndim < 2 or not torch.is_grad_enabled():
            return None
        with torch._C.DisableTorchFunction():
            own = source.view_as(source) if source.requires_grad else source.detach().requires_grad_()
        self._sequences[module] = own
        return (own, *args[1:])

    def _put(self, tensor: Tensor, mark: Mark) -> None:
        self._marks[id(tensor)] = weakref.ref(tensor), mark

    def _mark(self, value: Any) -> Mark | None:
        reference, mark = self._marks.get(id(value), (None, None))
        return mark if reference is not None and reference() is value else None

    def _hook(self, name: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
            with torch._C.DisableTorchFunction():  # what is done here is not the model's
                return see(module, args, kwargs, output)

        def see(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
            result = first_tensor(output)
            if result is None or not result.numel() or result.ndim == 0:
                return None
            replaced = None
            if self.gradients and not result.requires_grad and torch.is_grad_enabled():
                # A frozen layer on inputs without gradient. The clone lets what follows work in place.
                result = result.detach().requires_grad_().clone()
                replaced = result if isinstance(output, Tensor) else None
            edge = get_gradient_edge(result) if self.gradients and result.requires_grad else None
            self._calls[module] = call = self._calls.get(module, 0) + 1
            layer = Seen(name, module, call, unit_axis(module, result), result.ndim, result.detach(), edge)
            layer.sequence = self._sequences.pop(module, None)
            if isinstance(module, nn.Linear):
                self._connect(layer, args[0] if args else first_tensor(kwargs))
            self.seen.append(layer)
            self._put(result, Mark(layer, False, True))
            return replaced

        return hook

    def _connect(self, layer: Seen, source: Tensor | None) -> None:
        """Find what the input of a linear layer is."""
        if source is None:
            return
        mark = self._mark(source)
        if mark is not None and mark.activated:
            below = mark.seen
            if mark.plain and below.parameters is not None and isinstance(below.module, nn.Linear):
                if not below.followed:
                    below.followed, layer.before = True, below
                    return
                below.forked = True
        rows = _matrix(source, -1)
        with torch.no_grad():
            rows = double(some(rows, _INPUTS))
            layer.start = torch.stack((rows.mean(1), rows.std(1, correction=0)))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        source = args[0] if args else kwargs.get("input")
        mark = self._mark(source)
        name = getattr(func, "__name__", "")
        if mark is None:
            self._fork(args[1:2])
            return func(*args, **kwargs)
        plain_name = name.rstrip("_")
        if plain_name in ("clamp", "clamp_min", "hardtanh"):
            plain_name = clamp_name(plain_name, *args[1:3], **kwargs)
        if plain_name in OF_UNITS and not mark.activated and mark.seen.activation is None:
            return self._activate(mark, plain_name, func, args, kwargs)
        if plain_name in RESHAPES or plain_name in PASS_ON:
            result = func(*args, **kwargs)
            out = first_tensor(result)
            if out is not None and out.is_floating_point():
                plain = mark.plain and (plain_name in RESHAPES or out is source)
                self._put(out, Mark(mark.seen, mark.activated, plain))
            return result
        if name.startswith("__i") or (name.endswith("_") and not name.endswith("__")) or name == "__setitem__":
            self._settle(mark.seen)
            del self._marks[id(source)]
            mark.seen.forked = True
        result = func(*args, **kwargs)
        if name != "linear" and isinstance(result, Tensor):
            self._fork(args[:2])
        return result

    def _settle(self, layer: Seen) -> None:
        """Measure a layer's output that no activation follows."""
        if layer.output is not None:
            values, layer.output = self._by_unit(layer, layer.output), None
            self.entering.add(id(layer), values)
            self.leaving.add(id(layer), values)

    @staticmethod
    def _by_unit(layer: Seen, values: Tensor) -> Tensor:
        """The values as (samples, units)."""
        matrix = _matrix(values, layer.axis if values.ndim == layer.ndim else -1)
        layer.samples, layer.units = matrix.shape
        return matrix

    def _fork(self, operands: Iterable[Any]) -> None:
        """Note that activations are used by something that is not a layer."""
        for operand in operands:
            mark = self._mark(operand)
            if mark is not None and mark.activated:
                mark.seen.forked = True

    def _activate(self, mark: Mark, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        layer = mark.seen
        before = self._by_unit(layer, args[0] if args else kwargs["input"])
        self.entering.add(id(layer), before)
        smooth = name not in DYING
        if smooth:
            before = before.clone()  # the activation may work in place
        result = func(*args, **kwargs)
        layer.activation, layer.output = name, None
        layer.parameters = _theory_parameters(name, args, kwargs)
        after = self._by_unit(layer, result)
        self.leaving.add(id(layer), after)
        if smooth:
            self.bending.add(id(layer), torch.cat((before, after), 1))
        layer.saturated = saturation(name, after, torch.float64)
        self._put(result, Mark(layer, True, mark.plain))
        return result


def saturation(name: str, after: Tensor, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """The fraction of outputs within 1 % of a bound of the activation, if it has one."""
    if name not in BOUNDS:
        return None
    low, high = BOUNDS[name]
    edge = 0.5 * (high - low) - (after - 0.5 * (low + high)).abs()
    return (edge < 0.01 * (high - low)).to(dtype).mean()


def first_tensor(value: Any) -> Tensor | None:
    """The first floating-point tensor in nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return next((tensor for item in value if (tensor := first_tensor(item)) is not None), None)
    return None


def unit_axis(module: nn.Module, output: Tensor) -> int:
    """A convolution's units are its channels; any other layer's lie along the last dimension."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return -1 - len(module.kernel_size)
    for weight in module._parameters.values():
        if weight is not None and weight.ndim > 2:
            is_map = output.ndim == weight.ndim and output.shape[1] == weight.shape[0]
            return 1 - output.ndim if is_map else -1
    return -1


def _matrix(values: Tensor, axis: int) -> Tensor:
    """(samples, units)."""
    if values.ndim == 2 and axis == -1:
        return values.detach()
    return values.detach().movedim(axis, -1).reshape(-1, values.shape[axis])


def clamp_name(name: str, low: Any = None, high: Any = None, **kwargs: Any) -> str:
    """The name of a clamp as an activation: `nn.ReLU6` is a hardtanh from 0, and y.clamp(min=0) a ReLU."""
    low, high = kwargs.get("min", kwargs.get("min_val", low)), kwargs.get("max", kwargs.get("max_val", high))
    if isinstance(low, int | float) and low == 0:
        return "relu6" if name == "hardtanh" else "relu" if high is None else name
    return name


def _theory_parameters(name: str, args: Any, kwargs: Any) -> dict[str, float] | None:
    """The activation's parameters under the theory's names, or None where it is not one of the theory's."""

    def given(key: str, default: Any) -> Any:
        return kwargs.get(key, args[1] if len(args) > 1 else default)

    if name in ("relu", "selu"):
        return {}
    if name == "leaky_relu":
        return {"negative_slope": float(given("negative_slope", 0.01))}
    if name == "elu":
        return {"alpha": float(given("alpha", 1.0))}
    if name == "prelu":
        slope = given("weight", None)
        return {"a": float(slope.detach())} if isinstance(slope, Tensor) and slope.numel() == 1 else None
    return None
