"""One sampled step of a training: `Sampler`, whose hooks are on the model for that step alone.

Note [what the hooks see]
    The model and the containers in it have a hook before and after their forward. The outermost of them that runs,
    with gradients on, puts a torch-function mode around its forward, by which `diagnose` finds activations. The
    first backward pass ends the observation, so of accumulated gradients the first batch is looked at, and a
    recomputed forward is not. A global hook of torch's optimizers sees gradients as they are used: accumulated,
    unscaled and clipped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from ..diagnosis import _observe
from ..diagnosis._ends import Inputs
from ..diagnosis._observe import ACTIVATIONS, BOUNDS, RECTIFIERS, Observer, Seen, _Mark, first_tensor
from ..diagnosis._statistics import some
from ._sample import Row, Sample
from ._spectra import BIASES, Spectra

_SAMPLES = 128  # values of a unit that are looked at
_NUMBERS = 1 << 18  # a larger output is cut to fewer inputs before its units are laid out
_BOUND = 0.98  # of a tanh: within 1 % of its range
_ASKED = 8  # weights, at least, that are asked whether gradients of the step before are still there
_ENTRIES = 1 << 16  # entries of a weight whose move is followed

Result = TypeVar("Result")


def local(parameter: Tensor) -> Tensor:
    """The values on this rank."""
    value: Any = parameter.detach()
    return value.to_local() if is_sharded(value) else value


def is_sharded(parameter: Any) -> bool:
    """Whether this rank holds a part of it only."""
    return type(parameter) not in (Tensor, nn.Parameter) and hasattr(parameter, "to_local")


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    """A layer's weights, trained or not."""
    parameters = module.parameters() if module._modules else module._parameters.values()
    known = [p for p in parameters if p is not None and not is_lazy(p) and not p.is_meta]
    return [p for p in known if p.ndim >= 2 and p.is_floating_point()]


def guarded(method: Callable[..., Result]) -> Callable[..., Result | None]:
    """A method of the sampler that never raises: what goes wrong ends the sample, not the training."""

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


@functools.cache
def _places(length: int, device: torch.device) -> Tensor:
    """Rows to look at, out of `length`."""
    return some(torch.arange(length), _SAMPLES).to(device)


class Sampler(Observer):
    """Watches the model from `arm` to `finish`."""

    def __init__(self, model: nn.Module, layers: Sequence[tuple[str, nn.Module]], spectra: Spectra) -> None:
        super().__init__(layers, False)
        self.failure: Exception | None = None
        self.ran = False
        self._model, self._spectra = model, spectra
        self._depth, self._inside = 0, False
        self._backward = False
        self._gradients: dict[nn.Module, Tensor] = {}
        self._leftover: list[Tensor] = []
        self._arrivals: set[nn.Parameter] = set()
        self._inputs: Tensor | None = None
        self._loss: Tensor | None = None
        self._shape = (0, 0)
        self._weights = {module: weights_of(module) for _, module in layers}
        self._before: dict[int, Tensor] = {}
        self._used: dict[int, Tensor] = {}
        self._stepped, self._rate = False, 0.0
        self._early: dict[nn.Module, list[float] | None] = {}
        self._known: set[nn.Module] = set()

    @guarded
    def arm(self) -> None:
        """Put the hooks on, and keep a part of the weights."""
        inner = {module for _, module in self.layers}
        around = [m for m in self._model.modules() if m is self._model or (m not in inner and inner & {*m.modules()})]
        for module in around:
            self._handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True, prepend=True))
        for name, module in self.layers:
            first = any(map(is_sharded, self._weights[module]))  # before FSDP2 takes the weights apart again
            hook = self._layer_hook(name, first)
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True, prepend=first))
        for module in around:
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        for weights in self._weights.values():
            for weight in weights:
                self._before[id(weight)] = self._part(weight).clone()
        asked = [w for weights in self._weights.values() for w in weights if w.requires_grad and not is_sharded(w)]
        for weight in asked[:: max(1, len(asked) // _ASKED)]:
            self._handles.append(weight.register_hook(functools.partial(self._arrived, weight)))
        self._handles.append(register_optimizer_step_pre_hook(self._step))

    def disarm(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._inside:
            TorchFunctionMode.__exit__(self, None, None, None)
            self._inside = False

    def begin(self) -> None:
        """Observe from here on: for trainers that do not call the model as a whole."""
        self._depth += 1
        if self._depth == 1 and torch.is_grad_enabled() and not self._backward and self.failure is None:
            TorchFunctionMode.__enter__(self)
            self._inside = True

    def end(self) -> None:
        """Observe up to here."""
        self._depth -= 1
        if self._depth == 0 and self._inside:
            TorchFunctionMode.__exit__(self, None, None, None)
            self._inside = False

    def release(self) -> None:
        """`end`, however often `begin` was called."""
        self._depth = min(self._depth, 1)
        if self._depth:
            self.end()

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.begin()
        if self._inside and self._inputs is None:
            self._look_at_inputs([*args, *kwargs.values()])

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._inside and self._loss is None and module is self._model:
            loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            if isinstance(loss, Tensor) and loss.numel() == 1:
                self._loss = loss.detach()
        self.end()

    @guarded
    def _look_at_inputs(self, given: Sequence[Any]) -> None:
        tensor = first_tensor(tuple(given))
        if tensor is not None and tensor.ndim > 0 and tensor.numel():
            values = tensor.detach().float()
            self._shape = values.shape[0], values[0].numel()
            std, mean = torch.std_mean(values, correction=0)
            self._inputs = torch.stack((mean, std, values.isfinite().all().float()))

    def _layer_hook(self, name: str, sharded: bool) -> Callable[..., None]:
        see = self._hook(name)

        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if not self._inside or self.failure is not None or module in self._calls:
                return
            look(self, module, args, kwargs, output)

        @guarded
        def look(self: Sampler, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            see(module, args, kwargs, output)
            result = first_tensor(output)
            if result is None or not self.seen or self.seen[-1].module is not module:
                return
            self.ran = True
            if result.requires_grad:
                result.register_hook(functools.partial(self._flowed, module))
            if isinstance(module, nn.LSTM) or getattr(module, "nonlinearity", "") == "tanh":
                self.seen[-1].saturated = (result.detach().abs() > _BOUND).float().mean()
            if sharded:  # whole only while the layer runs
                self._early[module] = self._spectra.measure([module])[0]

        return hook

    def _connect(self, layer: Seen, source: Tensor | None) -> None:
        """Nothing is predicted, so a layer's input is not needed."""

    @staticmethod
    def _by_unit(layer: Seen, values: Tensor) -> Tensor:
        if values.ndim > 2 and values.numel() > _NUMBERS:
            values = values[:: math.ceil(values.numel() / _NUMBERS)] if len(values) > 1 else values
        matrix = Observer._by_unit(layer, values)
        if layer.ndim == 2 or len(matrix) <= _SAMPLES:
            return matrix[:_SAMPLES]  # inputs of a batch come in no order
        return matrix.index_select(0, _places(len(matrix), matrix.device))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        source = args[0] if args else kwargs.get("input")
        mark = self._mark(source)
        if mark is None or self.failure is not None:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        plain = name.rstrip("_")
        if plain in ("clamp", "clamp_min", "hardtanh"):
            plain = _observe._clamp(plain, *args[1:3], **kwargs)
        if plain in ACTIVATIONS and not mark.activated and mark.seen.activation is None:
            self._before_activation(mark.seen, source)
            result = func(*args, **kwargs)
            self._after_activation(mark, plain, result)
            return result
        if plain in _observe._RESHAPES or plain in _observe._PASS_ON:
            result = func(*args, **kwargs)
            self._pass_on(mark, result)
            return result
        if name.startswith("__i") or (name.endswith("_") and not name.endswith("__")) or name == "__setitem__":
            self._changed(mark.seen, source)
        return func(*args, **kwargs)

    @guarded
    def _before_activation(self, layer: Seen, values: Tensor) -> None:
        self.entering.add(id(layer), self._by_unit(layer, values))

    @guarded
    def _after_activation(self, mark: _Mark, name: str, values: Tensor) -> None:
        layer = mark.seen
        layer.activation, layer.output = name, None
        after = self._by_unit(layer, values)
        self.leaving.add(id(layer), after)
        if name in BOUNDS:
            low, high = BOUNDS[name]
            edge = 0.5 * (high - low) - (after - 0.5 * (low + high)).abs()
            layer.saturated = (edge < 0.01 * (high - low)).float().mean()
        self._put(values, _Mark(layer, True, False))

    @guarded
    def _pass_on(self, mark: _Mark, result: Any) -> None:
        out = first_tensor(result)
        if out is not None:
            self._put(out, _Mark(mark.seen, mark.activated, False))

    @guarded
    def _changed(self, layer: Seen, values: Tensor) -> None:
        self._settle(layer)
        self._marks.pop(id(values), None)

    @guarded
    def _flowed(self, module: nn.Module, gradient: Tensor) -> None:
        self._backward = True
        if module not in self._gradients:
            self._gradients[module] = torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32)

    @guarded
    def _arrived(self, weight: nn.Parameter, gradient: Tensor) -> None:
        if weight not in self._arrivals:
            before = gradient.new_zeros(()) if weight.grad is None else weight.grad.detach()
            self._leftover.append(torch.linalg.vector_norm(before, dtype=torch.float32))
        self._arrivals.add(weight)
        self._backward = True

    @guarded
    def _step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        groups = optimizer.param_groups
        known = {id(weight) for weights in self._weights.values() for weight in weights}
        if not any(id(p) in known for group in groups for p in group["params"]):
            return
        self._stepped = True
        self._rate = max(self._rate, *(float(group.get("lr", 0.0)) for group in groups))
        self._use(getattr(optimizer, "grad_scale", None))

    def _use(self, scale: Tensor | None = None) -> None:
        """Norms of the gradients of our weights."""
        chosen = [p for weights in self._weights.values() for p in weights if p.grad is not None]
        values = [local(p.grad).float() for p in chosen if p.grad is not None]
        if any(value.layout != torch.strided for value in values):
            values = [value.coalesce().values() if value.is_sparse else value for value in values]
        for parameter, length in zip(chosen, torch._foreach_norm(values) if values else ()):
            self._used[id(parameter)] = length if scale is None else length / scale

    @staticmethod
    def _part(weight: Tensor) -> Tensor:
        flat = local(weight).reshape(-1)
        return flat[:: math.ceil(flat.numel() / _ENTRIES)] if flat.numel() > _ENTRIES else flat

    @guarded
    def finish(self, step: int, loss: float | Tensor | None) -> Sample:
        """What the step told. Call `disarm` first."""
        for layer in self.seen:
            self._settle(layer)
        if not self._used:
            self._use()
        entering, leaving = self.entering.results(), self.leaving.results()
        order = {layer.module: layer for layer in self.seen}
        names = {module: name for name, module in self.layers}
        modules = [*order, *(module for module in names if module not in order)]
        numbers = self._numbers(modules, order)
        rows = tuple(
            self._row(
                names[m], m, order.get(m), numbers[m], entering.get(id(order.get(m))), leaving.get(id(order.get(m)))
            )
            for m in modules
        )
        loss = self._loss if loss is None else loss
        if isinstance(loss, Tensor):
            loss = float(loss.detach().float().mean())
        inputs = None if self._inputs is None else self._inputs.tolist()
        finite = inputs is None or inputs[2] == 1
        return Sample(
            step,
            rows,
            None if loss is None else float(loss),
            self._rate if self._stepped else None,
            _inputs(inputs, self._shape) if inputs is not None and finite else None,
            finite,
            self._backward or bool(self._used),
            self._stepped,
            min(on_host(self._leftover), default=0.0),
        )

    def _numbers(self, modules: Sequence[nn.Module], order: dict[nn.Module, Seen]) -> dict[nn.Module, list[float]]:
        """Of each module: gradient, weights' gradient, update, inward, saturated, and the five of `Spectra`."""
        whole = [module for module in modules if module not in self._early]
        spectra = {**self._early, **dict(zip(whole, self._spectra.measure(whole)))}
        self._known = {module for module, facts in spectra.items() if facts is not None}
        gradients = dict(zip(self._gradients, on_host(list(self._gradients.values()))))
        used = dict(zip(self._used, on_host(list(self._used.values()))))
        bounded = [(m, seen.saturated) for m, seen in order.items() if seen.saturated is not None]
        saturated = dict(zip((m for m, _ in bounded), on_host([value for _, value in bounded])))
        moves = self._moves()
        nothing = math.nan
        return {
            module: [
                gradients.get(module, nothing),
                math.hypot(*(used[id(w)] for w in self._weights[module] if id(w) in used)),
                *_moved([moves[id(w)] for w in self._weights[module] if id(w) in moves]),
                saturated.get(module, nothing),
                *(spectra[module] or [nothing] * 5),
            ]
            for module in modules
        }

    def _moves(self) -> dict[int, tuple[float, float, float]]:
        """Of each weight: norms of its move and of itself before, and minus the product of both."""
        weights = {id(w): w for group in self._weights.values() for w in group if id(w) in self._before}
        before = [self._before[key].float() for key in weights]
        if not before:
            return {}
        moves = torch._foreach_sub([self._part(weight).float() for weight in weights.values()], before)
        products = [torch.dot(move, old) for move, old in zip(moves, before)]
        lengths = (on_host(torch._foreach_norm(moves)), on_host(torch._foreach_norm(before)), on_host(products))
        return {key: (move, size, -product) for key, move, size, product in zip(weights, *lengths)}

    def _row(
        self, name: str, module: nn.Module, layer: Seen | None, numbers: Sequence[float], entering: Any, leaving: Any
    ) -> Row:
        trained = any(weight.requires_grad for weight in self._weights[module])
        got = [id(weight) in self._used for weight in self._weights[module]]
        gradient, weight_gradient, update, inward, saturated, norm, singular, distance, bias_mean, bias_std = numbers
        facts: dict[str, Any] = {
            "gradient": gradient if module in self._gradients else None,
            "weight_gradient": weight_gradient if any(got) else None,
            "update": _known(update),
            "inward": _known(inward),
            "norm": norm if module in self._known else None,
            "singular": _known(singular),
            "distance": _known(distance),
            "bias_mean": bias_mean if _has_bias(module) else None,
            "bias_std": bias_std if _has_bias(module) else None,
        }
        if layer is not None and entering is not None and leaving is not None:
            mean, std, _, active, never, _ = entering
            post_mean, post_std, spread, distinct = leaving
            facts |= {
                "activation": layer.activation,
                "units": layer.units,
                "samples": layer.samples,
                "mean": mean,
                "std": std,
                "alpha": mean / std if std > 0 else None,
                "active": None if layer.activation is None else active,
                "dead": never / layer.units if layer.activation in RECTIFIERS else None,
                "saturated": _known(saturated),
                "post_mean": post_mean,
                "post_std": post_std,
                "spread": spread,
                "distinct": distinct if layer.samples > 1 and distinct > 0 else None,
            }
        return Row(layer=name, kind=type(module).__name__, trained=trained, **facts)


def on_host(values: Sequence[Tensor]) -> list[float]:
    """Scalars, read all at once."""
    if len({value.device for value in values}) > 1:
        values = [value.cpu() for value in values]
    return torch.stack([value.float() for value in values]).tolist() if values else []


def _moved(moves: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """A layer's update, and how much of it points inward."""
    move, size = (math.hypot(*(one[at] for one in moves)) for at in (0, 1))
    if not size > 0:
        return math.nan, math.nan
    return move / size, sum(one[2] for one in moves) / (move * size) if move > 0 else math.nan


def _has_bias(module: nn.Module) -> bool:
    return any(module._parameters.get(name) is not None for name in BIASES)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _inputs(facts: Sequence[float], shape: tuple[int, int]) -> Inputs:
    mean, std, _ = facts
    return Inputs(
        mean=mean, std=std, samples=shape[0], features=shape[1], largest_std=std, median_std=std, distinct=None,
        same=0.0,
    )  # fmt: skip
