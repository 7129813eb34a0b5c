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
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from ...core.activations import DYING
from ...health.rows import Inputs, Row, Sample
from ..diagnosis.graph import graph_of
from ..observe.observer import Observer, Seen, first_tensor, guarded, unit_axis
from ..observe.statistics import Table, read, scalars
from .weights import Moves, Spectra, Structure, is_sharded, local, moved, some_of

_BOUND = 0.98  # of a tanh: within 1 % of its range
_ASKED = 8  # weights, at least, that are asked whether gradients of the step before are still there
_HELD = 1 << 17  # numbers of gradients that are kept to be measured together
_SAMPLES = 128  # values of a unit that are looked at
_FOLLOWED = 3  # weights of which a step is compared with the gradient


class Sampler(Observer):
    """Watches the model from `arm` to `finish`."""

    def __init__(self, model: nn.Module, structure: Structure, spectra: Spectra, listens: bool = False) -> None:
        super().__init__(structure.layers, False, _SAMPLES)
        self.ran = False
        self._model, self._structure, self._spectra = model, structure, spectra
        self._listens = listens  # whether the loss is what `backward()` is called on
        self._depth, self._inside = 0, False
        self._backward = False
        self._pending: Seen | None = None
        self._gradients: dict[nn.Module, Tensor] = {}
        self._flows: dict[nn.Module, Tensor] = {}
        self._held = 0
        self._leftover: dict[nn.Parameter, Tensor | None] = {}
        self._received: dict[nn.Parameter, Tensor] = {}
        self._multiplied: Tensor | None = None
        """Whether signs are left of a gradient, as of one that was multiplied by 0."""
        self._cleared = self._half = self._evaluating = False
        self.evaluated = 0
        """1 if the model ran without gradients in training mode."""
        self._inputs: Tensor | None = None
        self._asked = False
        self._keys: Tensor | None = None  # a number for each of the first rows of the inputs
        self._loss: Tensor | None = None
        self._severed = False
        self._heard: Tensor | None = None  # whether `backward()` was called on a tensor that nothing leads to
        self._directions: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        """Parts of weights as they were, and of the gradients that arrived."""
        self._shape = (0, 0)
        self._moves: Moves | None = None
        self._used: dict[int, Tensor] = {}
        self._stepped, self._rate, self._base, self._searches, self._resumed = False, 0.0, 0.0, False, False
        self._passes, self._twice = 0, False
        self._stepped_at: dict[int, int] = {}  # of an optimizer, how often gradients had arrived when it stepped
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
        self._listen()

    def _listen(self) -> None:
        """Hear what `backward()` is called on, for this step: torch has no hook for it."""
        plain = Tensor.backward

        @functools.wraps(plain)
        def heard(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
            if tensor.numel() == 1:
                self._hear(tensor)
            plain(tensor, *args, **kwargs)

        def plain_again() -> None:
            if Tensor.backward is heard:
                Tensor.backward = plain  # type: ignore

        Tensor.backward = heard  # type: ignore
        self._deafen = plain_again  # type: ignore[method-assign]

    @guarded
    def _hear(self, loss: Tensor) -> None:
        self._severed = loss.grad_fn is None
        self._heard = _unscaled(loss)
        if self._structure.suspects is None and not self._severed:
            self._structure.suspects = tuple(graph_of(loss).suspects.items())
        if self._listens:
            self._loss = _unscaled(loss)

    def _weights(self) -> list[nn.Parameter]:
        return list({id(weight): weight for each in self._structure.weights.values() for weight in each}.values())

    def disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._deafen()
        self._stop()

    def _deafen(self) -> None:
        """Nothing was listened to."""

    def begin(self) -> None:
        """Observe from here on: for trainers that do not call the model as a whole."""
        self._depth += 1
        if self._depth == 1 and torch.is_grad_enabled() and not self._backward and self.failure is None:
            TorchFunctionMode.__enter__(self)
            self._inside = True

    def end(self) -> None:
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
            self.evaluated = 1
        if self._inside and not self._asked:  # what enters the outermost module, and nothing inside
            self._asked = True
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
            self._keys = self._structure.keys_of(tensor)

    def _saw(self, module: nn.Module, args: Any, output: Any) -> None:
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
        self._put(result, layer)
        if result.requires_grad:
            result.register_hook(functools.partial(self._flowed, module))
        if isinstance(module, nn.LSTM) or getattr(module, "nonlinearity", "") == "tanh":
            layer.saturated = (result.detach().abs() > _BOUND).float().mean()
        if module in self._structure.sharded:  # whole only while the layer runs
            for table, part in zip(self._early, self._spectra.measure([module])):
                table += part

    @guarded
    def _settle_pending(self) -> None:
        if self._pending is not None:
            self._settle(self._pending)
            self._pending = None

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
        if self._flows:
            self._gradients.update(zip(self._flows, torch._foreach_norm([*self._flows.values()])))
            self._flows, self._held = {}, 0

    @guarded
    def _arrived(self, weight: nn.Parameter, gradient: Tensor) -> None:
        self._backward = True
        self._passes += 1
        if weight not in self._leftover:
            old = weight.grad
            self._leftover[weight] = None if old is None else torch.linalg.vector_norm(old, dtype=torch.float32)
            self._received[weight] = torch.linalg.vector_norm(gradient, dtype=torch.float32)
            if len(self._directions) < _FOLLOWED and type(gradient) is Tensor and gradient.layout == torch.strided:
                self._directions.append((weight, some_of(weight).clone(), some_of(gradient).clone()))

    @guarded
    def _step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        groups, known = optimizer.param_groups, self._structure.known
        if not any(id(p) in known for group in groups for p in group["params"]):
            return
        if self._moves is None:
            self._moves = Moves(self._weights())
        again = self._passes > 0 and self._stepped_at.get(id(optimizer)) == self._passes
        self._twice = self._twice or (again and self._structure.begun.get(id(optimizer), 1) == 1)
        self._stepped_at[id(optimizer)] = self._passes
        self._resumed = any(optimizer.state.values())
        self._stepped = self._structure.optimized = True
        self._cleared = bool(self._received) and all(weight.grad is None for weight in self._received)
        rates = [(float(group.get("lr", 0.0)), float(group.get("initial_lr", 0.0))) for group in groups]
        self._rate = max(self._rate, *(rate for rate, _ in rates))
        self._base = max(self._base, *(base for _, base in rates))
        self._searches = self._searches or any("max_iter" in group for group in groups)
        self._use(getattr(optimizer, "grad_scale", None))

    def _use(self, scale: Tensor | None = None) -> None:
        found = {id(p): p.grad for weights in self._structure.weights.values() for p in weights if p.grad is not None}
        values = [_plain_gradient(gradient) for gradient in found.values()]
        weight = next((weight for weight in self._received if weight.grad is not None), None)
        self._multiplied = None if weight is None else torch.signbit(_plain_gradient(weight.grad)).any().float()
        for key, length in zip(found, torch._foreach_norm(values) if values else ()):
            self._used[key] = length if scale is None else length / scale

    @property
    def adds_up(self) -> bool:
        """Whether gradients of the step before were still there."""
        return any(old is not None for old in self._leftover.values())

    @guarded
    def finish(
        self,
        step: int,
        loss: float | Tensor | None,
        resting: bool,
        accumulates: bool,
        renewed: bool,
        others: bool,
        period: int = 0,
    ) -> Sample:
        """What the step told, once it is disarmed.

        `resting`: the optimizer steps once for several batches, and not now. `accumulates`: it did not step before this
        step, so that gradients are there by right. `period`: steps from one of the optimizer to the next, if known.
        """
        for layer in self.seen:
            self._settle(layer)
        self._measure_flows()
        if not self._used:
            self._use()
        facts: dict[str, Tensor] = {}
        if self._heard is not None and loss is not None:
            facts["heard"] = self._heard
        loss = self._loss if loss is None else loss
        if isinstance(loss, Tensor):
            facts["loss"] = loss.detach().float().mean()
        if self._multiplied is not None:
            facts["signs"] = self._multiplied
        saturated = {layer.module: layer.saturated for layer in self.seen if layer.saturated is not None}
        ran = {layer.module: layer for layer in self.seen}
        present = set(self._model.modules())  # a layer may have been taken out since the step began
        layers = [*ran, *(module for module in self._structure.names if module not in ran and module in present)]
        whole = [module for module in layers if module not in self._structure.sharded]
        # A step that was skipped has moved nothing; the part that was kept goes before the spectra need memory.
        moves = (self._moves or Moves(self._weights())).table()
        self._moves = None
        spectra = [early + now for early, now in zip(self._early, self._spectra.measure(whole))]
        old = {weight: norm for weight, norm in self._leftover.items() if norm is not None}
        inputs: Table = [] if self._inputs is None else [(["inputs"], self._inputs.unsqueeze(0))]
        keys: Table = [] if self._keys is None else [(["keys"], self._keys.unsqueeze(0))]
        facts |= self._structure.follow(self._directions)
        tables = {
            "facts": scalars(facts), "inputs": inputs, "keys": keys, "leftover": scalars(old),
            "gradients": scalars(self._gradients), "received": scalars(self._received),
            "used": scalars(self._used), "moves": moves, "saturated": scalars(saturated), "sizes": spectra[0],
            "distances": spectra[1], "biases": spectra[2], "signals": self.signal.table(),
        }  # fmt: skip
        known = dict(zip(tables, read(tables.values())))
        known["sizes"], known["distances"] = self._spectra.facts(known["sizes"], known["distances"])
        known["signals"] = self.signal.numbers(self.seen, known["signals"])
        entry, leftover = known["inputs"].get("inputs"), known["leftover"]
        finite = entry is None or entry[2] == 1
        loss = known["facts"].get("loss", loss)
        return Sample(
            step, tuple(self._row(module, ran.get(module), known) for module in layers),
            loss=None if loss is None else float(loss), rate=self._rate if self._stepped else None,
            inputs=_inputs(entry, self._shape) if entry is not None and finite else None, finite_inputs=finite,
            backward=self._backward or (self._stepped and bool(self._used)), stepped=self._stepped, resting=resting,
            parts_lost=accumulates and bool(self._leftover) and not any(leftover.values())
            and any(known["received"].values()),
            leftover=min(leftover.values()) if len(leftover) == len(self._leftover) > 0 and not accumulates else 0.0,
            kept=_kept(known["received"], known["used"]) if self._stepped else None,
            signs=bool(known["facts"].get("signs")), heard=known["facts"].get("heard"),
            uphill=known["facts"].get("uphill"), away=known["facts"].get("away"), severed=self._severed,
            suspects=self._structure.suspects or (), keys=tuple(known["keys"].get("keys", ())),
            base_rate=self._base if self._stepped else None, period=period, cleared=self._cleared, half=self._half,
            evaluating=self._evaluating, searches=self._searches, standardizes=self._structure.standardizes,
            resumed=self._resumed and step == 0, renewed=renewed, others=others, twice=self._twice,
        )  # fmt: skip

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
            mean, std, _, active, never, _, post_mean, post_std, spread, distinct = facts
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


def _unscaled(loss: Tensor) -> Tensor:
    """A loss without the scale that a GradScaler has just multiplied it with."""
    node = loss.grad_fn
    scale = getattr(node, "_saved_other", None) if node is not None and node.name() == "MulBackward0" else None
    is_scale = isinstance(scale, Tensor) and scale.numel() == 1 and not scale.requires_grad
    return loss.detach() / scale.detach() if is_scale else loss.detach()  # type: ignore[union-attr]


def _kept(received: Mapping[nn.Parameter, float], used: Mapping[int, float]) -> float | None:
    """Which share of the gradients that arrived was used; 1 for a power of two, which is the scale of a loss."""
    pairs = [(length, used.get(id(weight), 0.0)) for weight, length in received.items() if 0 < length < math.inf]
    if not pairs:
        return None
    share = math.hypot(*(part for _, part in pairs)) / math.hypot(*(whole for whole, _ in pairs))
    scale = math.log2(share) if 0 < share < math.inf else 0.5
    return 1.0 if scale < -1 and abs(scale - round(scale)) < 1e-3 else share


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
