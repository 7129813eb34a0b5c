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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from ...core.activations import DYING, OF_UNITS
from ...health.rows import Inputs, Row, Sample
from ..observe.observer import PASS_ON, RESHAPES, Mark, Observer, Seen, clamp_name, first_tensor, saturation, unit_axis
from ..observe.statistics import Table, read, scalars
from .signal import Signal, numbers
from .weights import Moves, Spectra, Structure, is_sharded, local, moved

_BOUND = 0.98  # of a tanh: within 1 % of its range
_ASKED = 8  # weights, at least, that are asked whether gradients of the step before are still there
_HELD = 1 << 17  # numbers of gradients that are kept to be measured together
_CLAMPS = ("clamp", "clamp_min", "hardtanh")

Result = TypeVar("Result")


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


class Sampler(Observer):
    """Watches the model from `arm` to `finish`."""

    def __init__(self, model: nn.Module, structure: Structure, spectra: Spectra) -> None:
        super().__init__(structure.layers, False)
        self.failure: Exception | None = None
        self.ran = False
        self._model, self._structure, self._spectra = model, structure, spectra
        self._depth, self._inside = 0, False
        self._backward = False
        self._signal = Signal(len(structure.layers))
        self._pending: Seen | None = None
        self._gradients: dict[nn.Module, Tensor] = {}
        self._flows: dict[nn.Module, Tensor] = {}
        self._held = 0
        self._leftover: dict[nn.Parameter, Tensor | None] = {}
        self._received: dict[nn.Parameter, Tensor] = {}
        self._cleared = self._half = self._evaluating = False
        self.evaluated = 0
        """Passes without gradients in training mode."""
        self._inputs: Tensor | None = None
        self._loss: Tensor | None = None
        self._shape = (0, 0)
        self._moves: Moves | None = None
        self._used: dict[int, Tensor] = {}
        self._stepped, self._rate = False, 0.0
        self._early: tuple[Table, Table, Table] = [], [], []

    @guarded
    def arm(self) -> None:
        """Put the hooks on; keep a part of the weights, if no optimizer is known that will tell when it steps."""
        known, handles = self._structure, self._handles
        for module in known.around:
            handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True, prepend=True))
        for _, module in known.layers:
            first = module in known.sharded  # before FSDP2 takes the weights apart again
            handles.append(module.register_forward_hook(self._saw, prepend=first))
        for module in known.around:
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        weights = self._weights()
        if not known.optimized:
            self._moves = Moves(weights)
        asked = [weight for weight in weights if weight.requires_grad and not is_sharded(weight)]
        for weight in asked[:: max(1, len(asked) // _ASKED)]:
            handles.append(weight.register_hook(functools.partial(self._arrived, weight)))
        handles.append(register_optimizer_step_pre_hook(self._step))

    def _weights(self) -> list[nn.Parameter]:
        """Each weight once."""
        return list({id(weight): weight for each in self._structure.weights.values() for weight in each}.values())

    def disarm(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._stop()

    def begin(self) -> None:
        """Observe from here on: for trainers that do not call the model as a whole."""
        self._depth += 1
        if self._depth == 1 and torch.is_grad_enabled() and not self._backward and self.failure is None:
            TorchFunctionMode.__enter__(self)
            self._inside = True

    def end(self) -> None:
        """Observe up to here."""
        self._depth -= 1
        if self._depth == 0:
            self._stop()

    def _stop(self) -> None:
        if self._inside:
            TorchFunctionMode.__exit__(self, None, None, None)
            self._inside = False
            self._settle_pending()

    def release(self) -> None:
        """`end`, however often `begin` was called."""
        self._depth = min(self._depth, 1)
        if self._depth:
            self.end()

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.begin()
        if module is self._model and self._inside and not module.training:
            self._evaluating = self._structure.modal
        if module is self._model and module.training and not torch.is_grad_enabled() and self._structure.modal:
            self.evaluated += 1
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

    def _saw(self, module: nn.Module, args: Any, output: Any) -> None:
        """A layer's first call."""
        if self._inside and module not in self._calls:
            self._look_at_layer(module, output)

    @guarded
    def _look_at_layer(self, module: nn.Module, output: Any) -> None:
        result = first_tensor(output)
        if result is None or not result.numel() or result.ndim == 0:
            return
        self.ran, self._calls[module] = True, 1
        self._half = self._half or result.dtype is torch.float16
        axis = -1 if type(module) is nn.Linear else unit_axis(module, result)
        layer = Seen(self._structure.names[module], module, 1, axis, result.ndim, result, None)
        if self._pending is not None and self._pending.output is not None:
            self._settle(self._pending)
        self._pending = layer
        self.seen.append(layer)
        self._put(result, Mark(layer, False, True))
        if result.requires_grad:
            result.register_hook(functools.partial(self._flowed, module))
        if isinstance(module, nn.LSTM) or getattr(module, "nonlinearity", "") == "tanh":
            layer.saturated = (result.detach().abs() > _BOUND).float().mean()
        if module in self._structure.sharded:  # whole only while the layer runs
            for table, part in zip(self._early, self._spectra.measure([module])):
                table += part

    def _settle(self, layer: Seen) -> None:
        """Sample an output that no activation has followed, so that it can go; one may still follow."""
        if layer.output is not None:
            values, layer.output = layer.output, None
            self._signal.same(layer, values)

    @guarded
    def _settle_pending(self) -> None:
        if self._pending is not None:
            self._settle(self._pending)
            self._pending = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        mark = self._mark(args[0] if args else kwargs.get("input"))
        if mark is None or self.failure is not None:
            return func(*args, **kwargs)
        role = _role(getattr(func, "__name__", ""))
        if role is None:
            return func(*args, **kwargs)
        name, changes = role
        if name in _CLAMPS:
            name = clamp_name(name, *args[1:3], **kwargs)
        source = args[0] if args else kwargs["input"]
        if name in OF_UNITS and not mark.activated and mark.seen.activation is None:
            self._before_activation(mark.seen, name, source)
            result = func(*args, **kwargs)
            if name != "relu":
                self._after_activation(mark.seen, name, result)
            self._put(result, Mark(mark.seen, True, False))
            return result
        if name in RESHAPES or name in PASS_ON:
            result = func(*args, **kwargs)
            self._pass_on(mark, result)
            return result
        if changes:
            self._changed(mark.seen, source)
        return func(*args, **kwargs)

    @guarded
    def _before_activation(self, layer: Seen, name: str, values: Tensor) -> None:
        layer.activation, layer.output = name, None
        if name == "relu":
            self._signal.rectified(layer, values)
        else:
            self._signal.enters(layer, values)

    @guarded
    def _after_activation(self, layer: Seen, name: str, values: Tensor) -> None:
        layer.saturated = saturation(name, self._signal.leaves(layer, values))

    @guarded
    def _pass_on(self, mark: Mark, result: Any) -> None:
        out = first_tensor(result)
        if out is not None:
            self._put(out, Mark(mark.seen, mark.activated, False))

    @guarded
    def _changed(self, layer: Seen, values: Tensor) -> None:
        self._settle(layer)
        self._marks.pop(id(values), None)

    @guarded
    def _flowed(self, module: nn.Module, gradient: Tensor) -> None:
        self._backward = True
        if module in self._gradients or module in self._flows:
            return
        if gradient.numel() > _HELD or gradient.dtype is not torch.float32:
            self._gradients[module] = torch.linalg.vector_norm(gradient, dtype=torch.float32)
            return
        self._flows[module] = gradient
        self._held += gradient.numel()
        if self._held > _HELD:
            self._measure_flows()

    def _measure_flows(self) -> None:
        """Take the norms of small gradients together, before they add up to much memory."""
        if self._flows:
            self._gradients.update(zip(self._flows, torch._foreach_norm([*self._flows.values()])))
            self._flows, self._held = {}, 0

    @guarded
    def _arrived(self, weight: nn.Parameter, gradient: Tensor) -> None:
        self._backward = True
        if weight not in self._leftover:
            old = weight.grad
            self._leftover[weight] = None if old is None else torch.linalg.vector_norm(old, dtype=torch.float32)
            self._received[weight] = torch.linalg.vector_norm(gradient, dtype=torch.float32)

    @guarded
    def _step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        groups, known = optimizer.param_groups, self._structure.known
        if not any(id(p) in known for group in groups for p in group["params"]):
            return
        if self._moves is None:
            self._moves = Moves(self._weights())
        self._stepped = self._structure.optimized = True
        self._cleared = bool(self._received) and all(weight.grad is None for weight in self._received)
        self._rate = max(self._rate, *(float(group.get("lr", 0.0)) for group in groups))
        self._use(getattr(optimizer, "grad_scale", None))

    def _use(self, scale: Tensor | None = None) -> None:
        """Norms of the gradients of our weights."""
        found = {id(p): p.grad for weights in self._structure.weights.values() for p in weights if p.grad is not None}
        values = [_plain_gradient(gradient) for gradient in found.values()]
        for key, length in zip(found, torch._foreach_norm(values) if values else ()):
            self._used[key] = length if scale is None else length / scale

    @guarded
    def finish(self, step: int, loss: float | Tensor | None, resting: bool, accumulates: bool) -> Sample:
        """What the step told. Call `disarm` first.

        Args:
            step: Its number.
            loss: If it was given.
            resting: Whether the optimizer steps once for several batches, and not now.
            accumulates: Whether it did not step before this one, so that gradients are there by right.
        """
        for layer in self.seen:
            self._settle(layer)
        self._measure_flows()
        if not self._used:
            self._use()
        loss = self._loss if loss is None else loss
        facts: dict[str, Tensor] = {}
        if isinstance(loss, Tensor):
            facts["loss"] = loss.detach().float().mean()
        saturated = {layer.module: layer.saturated for layer in self.seen if layer.saturated is not None}
        ran = {layer.module: layer for layer in self.seen}
        layers = [*ran, *self._idle(ran)]
        whole = [module for module in layers if module not in self._structure.sharded]
        # A step that was skipped has moved nothing; the part that was kept goes before the spectra need memory.
        moves = (self._moves or Moves(self._weights())).table()
        self._moves = None
        spectra = [early + now for early, now in zip(self._early, self._spectra.measure(whole))]
        old = {weight: norm for weight, norm in self._leftover.items() if norm is not None}
        inputs: Table = [] if self._inputs is None else [(["inputs"], self._inputs.unsqueeze(0))]
        tables = {
            "facts": scalars(facts), "inputs": inputs, "leftover": scalars(old), "gradients": scalars(self._gradients),
            "received": scalars(self._received), "used": scalars(self._used), "moves": moves,
            "saturated": scalars(saturated), "sizes": spectra[0],
            "distances": spectra[1], "biases": spectra[2], "signals": self._signal.table(),
        }  # fmt: skip
        known = dict(zip(tables, read(tables.values())))
        known["sizes"], known["distances"] = self._spectra.facts(known["sizes"], known["distances"])
        known["signals"] = numbers(self.seen, known["signals"])
        entry, leftover = known["inputs"].get("inputs"), known["leftover"]
        finite = entry is None or entry[2] == 1
        loss = known["facts"].get("loss", loss)
        return Sample(
            step,
            tuple(self._row(module, ran.get(module), known) for module in layers),
            None if loss is None else float(loss),
            self._rate if self._stepped else None,
            _inputs(entry, self._shape) if entry is not None and finite else None,
            finite,
            self._backward or bool(self._used),
            self._stepped,
            resting,
            accumulates and bool(self._leftover) and not any(leftover.values()),
            min(leftover.values()) if leftover and len(leftover) == len(self._leftover) and not accumulates else 0.0,
            _kept(known["received"], known["used"]) if self._stepped else None,
            self._cleared,
            self._half,
            self._evaluating,
        )

    def _row(self, module: nn.Module, layer: Seen | None, known: Mapping[str, Any]) -> Row:
        """What was measured of a layer, by its module, by the ids of its weights, and by that of its call."""
        weights = self._structure.weights[module]
        used = [known["used"][id(weight)] for weight in weights if id(weight) in known["used"]]
        update, inward = moved([known["moves"][id(weight)] for weight in weights if id(weight) in known["moves"]])
        norm, singular = known["sizes"].get(module, (None, None))
        no_bias = (math.nan, math.nan) if module in self._structure.biased else (None, None)
        bias_mean, bias_std = known["biases"].get(module, no_bias)
        signal: dict[str, Any] = {}
        if layer is not None and (facts := known["signals"].get(id(layer))) is not None:
            mean, std, _, active, never, post_mean, post_std, spread, distinct = facts
            signal = {
                "activation": layer.activation, "units": layer.units, "samples": layer.samples, "mean": mean,
                "std": std, "alpha": mean / std if std > 0 else None,
                "active": None if layer.activation is None else active,
                "dead": never / layer.units if layer.activation in DYING else None,
                "saturated": _number(known["saturated"].get(module)), "post_mean": post_mean, "post_std": post_std,
                "spread": spread, "distinct": distinct if layer.samples > 1 and distinct > 0 else None,
            }  # fmt: skip
        return Row(
            layer=self._structure.names[module], kind=type(module).__name__,
            gradient=known["gradients"].get(module), weight_gradient=math.hypot(*used) if used else None,
            update=_number(update), inward=_number(inward), norm=norm, singular=_number(singular),
            distance=_number(known["distances"].get(module)), bias_mean=bias_mean, bias_std=bias_std,
            trained=any(weight.requires_grad for weight in weights), **signal,
        )  # fmt: skip

    def _idle(self, ran: Collection[nn.Module]) -> list[nn.Module]:
        """The layers that did not run, but for those that were taken out of the model since the step began."""
        idle = [module for module in self._structure.names if module not in ran]
        present = set(self._model.modules()) if idle else set()
        return [module for module in idle if module in present]


def _kept(received: Mapping[nn.Parameter, float], used: Mapping[int, float]) -> float | None:
    """Which share of the gradients that arrived was used; 1 for a power of two, which is the scale of a loss."""
    pairs = [(length, used.get(id(weight), 0.0)) for weight, length in received.items() if 0 < length < math.inf]
    if not pairs:
        return None
    share = math.hypot(*(part for _, part in pairs)) / math.hypot(*(whole for whole, _ in pairs))
    scale = math.log2(share) if 0 < share < math.inf else 0.5
    return 1.0 if scale < -1 and abs(scale - round(scale)) < 1e-3 else share


@functools.cache
def _role(name: str) -> tuple[str, bool] | None:
    """What a function on a layer's output may be: its name without the mark of those in place, and whether it is one;
    None for those that do nothing that we follow."""
    plain = name.rstrip("_")
    changes = name.startswith("__i") or (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"
    followed = plain in OF_UNITS or plain in _CLAMPS or plain in RESHAPES or plain in PASS_ON
    return (plain, changes) if followed or changes else None


def _plain_gradient(gradient: Any) -> Tensor:
    value = gradient if type(gradient) is Tensor else local(gradient)
    if value.layout != torch.strided:
        value = value.coalesce().values() if value.is_sparse else value
    return value if value.dtype is torch.float32 else value.float()


def _inputs(facts: Sequence[float], shape: tuple[int, int]) -> Inputs:
    mean, std, _ = facts
    return Inputs(
        mean=mean, std=std, samples=shape[0], features=shape[1], largest_std=std, median_std=std, distinct=None,
        same=0.0,
    )  # fmt: skip


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
