"""What passes through a model's layers in one forward pass: `Observer`, for `diagnose` and the sampler of `watch`.

Note [what follows a layer]
    A hook on each layer sees its output. A torch-function mode sees every torch call after it, whether a module made
    it or the user's own code, so an activation is recognised in one place: as a call, by its name, on a tensor that
    carries a layer's mark. Normalization, dropout, pooling and reshaping pass the mark on. Everything else ends it,
    so the sum of a skip connection belongs to no layer.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from ...core.activations import BOUNDS, DYING, OF_UNITS
from .statistics import Signal, bending

RESHAPES = frozenset([
    "view", "reshape", "flatten", "unflatten", "transpose", "permute", "contiguous", "squeeze", "unsqueeze",
    "movedim", "swapaxes", "to", "float",
])  # fmt: skip
PASS_ON = frozenset([
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "boolean_dispatch",
    *(f"{kind}_pool{axes}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for axes in (1, 2, 3)),
])  # fmt: skip
_CLAMPS = ("clamp", "clamp_min", "hardtanh")

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class Seen:
    """One call of one layer."""

    name: str
    module: nn.Module
    call: int
    axis: int  # the dimension of the output that counts units
    ndim: int
    output: Tensor | None  # the output, until what follows it is known
    edge: GradientEdge | None
    units: int = 0
    samples: int = 0
    activation: str | None = None
    before: Tensor | None = None  # what enters the activation, until it has run
    saturated: Tensor | None = None  # the fraction of outputs near a bound of the activation
    bend: Tensor | None = None  # how far from linear a smooth activation acts
    sequence: Tensor | None = None
    """Of a recurrent layer that reads forward: its input, (steps, …), as a tensor that only this layer uses."""


def guarded(method: Callable[..., Result]) -> Callable[..., Result | None]:
    """A method of an observer that never raises: what goes wrong ends the observation, not the training."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Result | None:
        if self.failure is not None:
            return None
        with torch._C.DisableTorchFunction():
            before = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)  # torch.no_grad() takes longer than much of what is done here
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # whatever a user's tensors make torch raise
                self.failure = error
                return None
            finally:
                torch._C._set_grad_enabled(before)

    return run


class Observer(TorchFunctionMode):
    """A context that records the calls of `layers`, in the order they end.

    With `gradients` it keeps the graph edges that gradients with respect to the outputs need; of `most` samples of each
    layer it measures the signal, or of all.
    """

    def __init__(self, layers: Iterable[tuple[str, nn.Module]], gradients: bool, most: int | None = None) -> None:
        super().__init__()
        self.layers, self.gradients = list(layers), gradients
        self.seen: list[Seen] = []
        self.failure: Exception | None = None
        self.signal = Signal(len(self.layers), most)
        self._marks: dict[int, tuple[weakref.ref[Tensor], Seen]] = {}
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
        for layer in self.seen if error[0] is None else ():
            self._settle(layer)
        if error[0] is None and self.failure is not None:
            raise self.failure

    def _separate(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Give a recurrent layer its input as a tensor of its own, for the gradient at each step."""
        source = args[0] if args else None
        if not isinstance(source, Tensor) or source.ndim < 2 or not torch.is_grad_enabled():
            return None
        with torch._C.DisableTorchFunction():
            own = source.view_as(source) if source.requires_grad else source.detach().requires_grad_()
        self._sequences[module] = own
        return (own, *args[1:])

    def _put(self, tensor: Any, seen: Seen) -> None:
        self._marks[id(tensor)] = weakref.ref(tensor), seen

    def _mark(self, value: Any) -> Seen | None:
        reference, seen = self._marks.get(id(value), (None, None))
        return seen if reference is not None and reference() is value else None

    def _hook(self, name: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            with torch._C.DisableTorchFunction():  # what is done here is not the model's
                return see(module, output)

        def see(module: nn.Module, output: Any) -> Any:
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
            self.seen.append(layer)
            self._put(result, layer)
            return replaced

        return hook

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        source = args[0] if args else kwargs.get("input")
        layer = self._mark(source)
        role = None if layer is None or self.failure is not None else _role(getattr(func, "__name__", ""))
        if layer is None or role is None:
            return func(*args, **kwargs)
        name, changes = role
        if name in _CLAMPS:
            name = clamp_name(name, *args[1:3], **kwargs)
        if name in OF_UNITS and layer.activation is None:
            self._before_activation(layer, name, source)
            result = func(*args, **kwargs)
            self._after_activation(layer, name, result)
            self._put(result, layer)
            return result
        if name in RESHAPES or name in PASS_ON:
            result = func(*args, **kwargs)
            out = first_tensor(result)
            if out is not None:
                self._put(out, layer)
            return result
        if changes:
            self._settle(layer)
            self._marks.pop(id(source), None)
        return func(*args, **kwargs)

    @guarded
    def _settle(self, layer: Seen) -> None:
        """Measure an output that no activation has followed, so that it can go."""
        if layer.output is not None:
            values, layer.output = layer.output, None
            self.signal.add(layer, values)

    @guarded
    def _before_activation(self, layer: Seen, name: str, values: Tensor) -> None:
        layer.activation, layer.output = name, None
        layer.before = self.signal.add(layer, values, "" if name == "relu" else "enters", relu=name == "relu")

    @guarded
    def _after_activation(self, layer: Seen, name: str, values: Tensor) -> None:
        before, layer.before = layer.before, None
        if name != "relu":
            after = self.signal.add(layer, values, "leaves")
            layer.saturated = saturation(name, after)
            if self.signal.most is None and before is not None and name not in DYING:
                layer.bend = bending(before, after)


@functools.cache
def _role(name: str) -> tuple[str, bool] | None:
    """What a function on a layer's output may be: its name without the mark of those in place, and whether it is one;
    None for those that do nothing that we follow."""
    plain = name.rstrip("_")
    changes = name.startswith("__i") or (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"
    followed = plain in OF_UNITS or plain in _CLAMPS or plain in RESHAPES or plain in PASS_ON
    return (plain, changes) if followed or changes else None


def saturation(name: str, after: Tensor) -> Tensor | None:
    """The fraction of outputs within 1 % of a bound of the activation, if it has one."""
    if name not in BOUNDS:
        return None
    low, high = BOUNDS[name]
    edge = 0.5 * (high - low) - (after - 0.5 * (low + high)).abs()
    return (edge < 0.01 * (high - low)).float().mean()


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


def clamp_name(name: str, low: Any = None, high: Any = None, **kwargs: Any) -> str:
    """The name of a clamp as an activation: `nn.ReLU6` is a hardtanh from 0, and y.clamp(min=0) a ReLU."""
    low, high = kwargs.get("min", kwargs.get("min_val", low)), kwargs.get("max", kwargs.get("max_val", high))
    if isinstance(low, int | float) and low == 0:
        return "relu6" if name == "hardtanh" else "relu" if high is None else name
    return name
