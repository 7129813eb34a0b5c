"""Why a network does not train: `diagnose`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from ...core.activations import DYING
from ...core.errors import StiefelError
from ...health.rows import Layer
from ...health.rule import AT_INITIALIZATION
from ..initialize.wrappers import refuse_scripted
from ..inputs import arguments, tensors_in
from ..observe.observer import Observer, first_tensor
from ..observe.statistics import norms, read
from ..observe.weights import survey, weight_layers
from .backward import Gradients, Step, gradients_of, step_of, time_axis
from .copies import learns_by_heart, tried_on
from .diagnosis import Diagnosis
from .ends import fit_of, inputs_of
from .graph import Calls
from .setup import setup_of
from .snapshot import unchanged

Loss = Callable[[Any, Any], Tensor]
Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
_SMALL = 10_000_000  # parameters of a model that is tried on its batch even if nothing else was found


def diagnose(
    model: nn.Module, inputs: Any, targets: Any = None, *, loss: Loss | None = None, optimizer: Optimizers | None = None
) -> Diagnosis:
    r"""Send one batch through `model` and say where its signal and gradient go wrong, and how to fix it.

    The model runs in its current mode, training or not, and is left exactly as it was, even if its forward raises:
    parameters, buffers, gradients, mode, hooks, and the states of the random generators.

    Args:
        model: Any module with weights.
        inputs: A tensor, a tuple or list of positional arguments, or a dict of keyword arguments. Use a real batch of
            at least 16 inputs, better 256.
        targets: Pass them to measure gradients.
        loss: `loss(outputs, targets)`, a scalar. By default cross-entropy for integer targets, which are classes, and
            the mean squared error for float targets.
        optimizer: Pass it, with targets, to measure how far its next step would move each layer's weights. A copy of
            it takes the step; it costs a second backward pass and that copy. Another copy trains a copy of the model on
            the batch, for up to 60 steps, and again with changes where that learns little. Several, of which each has
            a part of the parameters, go in a list.

    Returns:
        A verdict in plain sentences, and one row for each call of each layer with weights, in the order they ran.

    Raises:
        StiefelError: if the model, the inputs, the targets or the loss do not fit together.

    >>> from stiefel_init.torch import initialize_
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> plan = initialize_(model, seed=0)
    >>> diagnosis = diagnose(model, torch.rand(32, 8), torch.arange(32) % 2)
    >>> diagnosis.healthy, [layer.layer for layer in diagnosis.layers]
    (True, ['0', '2', '4'])
    """
    if not isinstance(model, nn.Module):
        raise StiefelError(f"model is a {type(model).__name__}; give a torch.nn.Module.")
    args, kwargs = arguments(inputs)
    given = list(tensors_in((args, kwargs)))
    _check_inputs(given)
    if loss is not None and targets is None:
        raise StiefelError("loss was given without targets; pass both, or neither.")
    if optimizer is not None and targets is None:
        raise StiefelError("optimizer was given without targets; pass both, or neither.")
    optimizers = several(optimizer)
    modules = list(model.named_modules())
    refuse_scripted(modules, "diagnose")
    layers = weight_layers(modules)
    if not layers:
        raise StiefelError(f"{type(model).__name__} has no layer with weights; there is nothing to diagnose.")
    for name, module in modules:
        for leaf, parameter in module._parameters.items():
            where = f"{name}.{leaf}".lstrip(".")
            if is_lazy(parameter):
                raise StiefelError(f"{where} belongs to a lazy layer and is uninitialized; run one forward pass first.")
            if parameter is not None and parameter.is_meta:
                raise StiefelError(f"{where} is on the meta device and has no values; initialize the model first.")
    with unchanged([module for _, module in modules], given), _as_written(targets is not None):
        observer, calls = Observer(layers, targets is not None), Calls(any(map(_is_half, model.parameters())))
        with calls, observer:
            outputs = _forward(model, args, kwargs)
        if not observer.seen:
            raise StiefelError(f"no layer of {type(model).__name__} with weights ran on these inputs; is it scripted?")
        with calls:
            value = None if targets is None else loss_of(loss, outputs, targets)
        setup = None
        if value is not None:  # before a backward pass takes its graph away
            ran = [layer.module for layer in observer.seen]
            setup = setup_of(model, inputs, outputs, targets, value, loss or default_loss, optimizers, ran, calls)
        step = Step({}) if value is None or not optimizers else step_of(optimizers, value, observer.seen)
        if setup is not None:
            setup = replace(setup, rounded=step.rounded)
        gradients = gradients_of(value, observer.seen, _HALF_SCALE if _is_half(outputs) else 1.0)
        fit = None if value is None else fit_of(value, first_tensor(outputs), targets, loss, inputs)
        rows = _rows(observer, gradients, step.updates)
        curvature = _curvature(model, inputs, first_tensor(outputs)) if _is_straight(rows) else None
        found = Diagnosis(rows, inputs_of(given, observer.seen[0].module), fit, curvature, setup)
        rules = [AT_INITIALIZATION[f.kind] for f in (*found.findings, *found.warnings) if f.kind in AT_INITIALIZATION]
        size = sum(parameter.numel() for parameter in model.parameters())
        large = size > _SMALL  # where trying takes long, facts are told as they are
        told = all(rule.holds_anyway and (large or not rule.tries) for rule in rules) if rules else large
        if not optimizers or told:
            return found
        given_loss, constant = loss or default_loss, None if fit is None else fit.constant_loss
        batch = (model, inputs, targets, given_loss, optimizers)
        trial, tried, broke = tried_on(*batch, outputs if isinstance(outputs, Tensor) else None, constant)
        setup = None if setup is None else replace(setup, broke=setup.broke or broke)
        found = replace(found, trial=trial, tried=tried, setup=setup)
        if not found.learns or not any(rule.by_heart for rule in rules):
            return found
        return replace(found, by_heart=learns_by_heart(*batch, len(trial)))


def several(optimizer: Any) -> tuple[torch.optim.Optimizer, ...]:
    """The optimizers, as given: none, one, or several."""
    optimizers = () if optimizer is None else tuple(optimizer) if isinstance(optimizer, list | tuple) else (optimizer,)
    for one in optimizers:
        if not hasattr(one, "param_groups") or not hasattr(one, "step"):
            raise StiefelError(f"optimizer is a {type(one).__name__}; give an optimizer of torch, or a list of them.")
    return optimizers


def _check_inputs(given: Sequence[Tensor]) -> None:
    if not given:
        raise StiefelError("inputs hold no tensor; give a tensor, a tuple of tensors, or a dict of them by name.")
    for tensor in given:
        shape = tuple(tensor.shape)
        if not tensor.numel():
            raise StiefelError(f"inputs of shape {shape} are empty; give a batch of at least one input.")
        if tensor.is_floating_point() and not bool((finite := tensor.isfinite()).all()):
            bad = float(tensor[~finite][0])
            raise StiefelError(f"inputs of shape {shape} have the entry {bad}; remove non-finite entries.")


@contextmanager
def _as_written(gradients: bool) -> Iterator[None]:
    """Run the modules' Python code, not compiled or fused paths that bypass the layers."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # Nothing is compiled where torch has not loaded its compiler, which takes seconds.
        stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
        with stance, torch.inference_mode(False), torch.set_grad_enabled(gradients):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _forward(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return model(*args, **kwargs)
    except Exception as error:  # whatever the user's forward raises
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_in((args, kwargs)))
        raise StiefelError(
            f"the forward of {type(model).__name__} raised {_reason(error)} on inputs of shape {shapes}; give inputs "
            "that model(inputs) accepts."
        ) from error


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__} ({text[0].rstrip('.')})" if text else type(error).__name__


def loss_of(loss: Loss | None, outputs: Any, targets: Any, *, gradient: bool = True) -> Tensor:
    if loss is None:
        value = default_loss(outputs, targets)
    else:
        try:
            value = loss(outputs, targets)
        except Exception as error:  # whatever the user's loss raises
            raise StiefelError(f"loss raised {_reason(error)}; give loss(outputs, targets).") from error
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise StiefelError(f"loss returned {what}; it must be one number, so take its mean.")
    if gradient and not value.requires_grad:
        raise StiefelError("the loss has no gradient; something in the model or the loss detaches it.")
    return value.reshape(())


def default_loss(result: Any, targets: Any) -> Tensor:
    outputs = first_tensor(result)
    if outputs is None or not isinstance(targets, Tensor):
        what = "the model's output" if outputs is None else f"targets, a {type(targets).__name__},"
        raise StiefelError(f"{what} is not a tensor of numbers; pass loss=, a function of outputs and targets.")
    shapes = f"targets of shape {tuple(targets.shape)} and outputs of shape {tuple(outputs.shape)}"
    if targets.is_floating_point():
        if not bool(targets.isfinite().all()):
            raise StiefelError("targets have an entry that is not finite; remove it.")
        if targets.numel() != outputs.numel() or targets.shape[:1] != outputs.shape[:1]:
            raise StiefelError(f"{shapes} cannot be subtracted; give targets of the outputs' shape, or pass loss=.")
        return F.mse_loss(outputs, targets.to(outputs).view_as(outputs))
    if targets.is_complex() or outputs.ndim < 1:
        raise StiefelError(f"{shapes} and of dtype {targets.dtype} suit no default loss; pass loss=.")
    labels = targets.long()
    if outputs.ndim > 1 and outputs.shape[:1] + outputs.shape[2:] == labels.shape:
        scores = outputs.movedim(1, -1)
    elif outputs.shape[:-1] == labels.shape:
        scores = outputs
    else:
        raise StiefelError(f"{shapes} do not match as classes and scores; give one class per output, or pass loss=.")
    classes, low, high = scores.shape[-1], int(labels.min()), int(labels.max())
    if low < 0 or high >= classes or classes < 2:
        raise StiefelError(f"targets go from {low} to {high} and the model scores {classes} classes; pass loss=.")
    return F.cross_entropy(scores.flatten(0, -2), labels.flatten())


_HALF_SCALE = 2.0**10


def _is_half(outputs: Any) -> bool:
    """Whether a model runs in float16, where a loss is scaled before its backward pass, and here too."""
    first = first_tensor(outputs)
    return first is not None and first.dtype is torch.float16


def _rows(observer: Observer, gradients: Sequence[Gradients], updates: Mapping[nn.Module, float]) -> tuple[Layer, ...]:
    seen = observer.seen
    (facts,) = read([observer.signal.table()])
    numbers = observer.signal.numbers(seen, facts)
    weights = survey(dict.fromkeys(layer.module for layer in seen))
    rows = []
    for layer, gradient in zip(seen, gradients):
        mean, std, pre_spread, active, never, always, mean_after, std_after, spread, distinct = numbers[id(layer)]
        weight, dies = weights[layer.module], layer.activation in DYING
        bend = 1 - (never + always) / layer.units if dies else None if layer.bend is None else float(layer.bend)
        row = Layer(
            layer=layer.name, call=layer.call, kind=type(layer.module).__name__, shape=weight.shape,
            activation=layer.activation, units=layer.units, samples=layer.samples,
            pre_mean=mean, pre_std=std, pre_spread=pre_spread, alpha=mean / std if std > 0 else None,
            active=None if layer.activation is None else active,
            dead=int(never) if dies else None, bend=bend,
            saturated=None if layer.saturated is None else float(layer.saturated),
            post_mean=mean_after, post_std=std_after, spread=spread,
            distinct=distinct if layer.samples > 1 and distinct > 0 else None,
            gradient=gradient.output, weight_gradient=gradient.weights, common_gradient=gradient.common,
            update=updates.get(layer.module),
            steps=None if (x := layer.sequence) is None else x.shape[time_axis(x, layer.module)],
            first_step=gradient.first_step, zero_weights=weight.zero, row_norm=weight.row_norm, level=weight.level,
            bias_mean=weight.bias_mean, bias_std=weight.bias_std, scheme=weight.scheme,
            orthogonality_error=weight.orthogonality_error, alignment_error=weight.alignment_error,
        )  # fmt: skip
        rows.append(row)
    return tuple(rows)


def _is_straight(rows: Sequence[Layer]) -> bool:
    """Whether no activation seems to act between two layers or more."""
    return len(rows) > 1 and sum(row.bend or 0.0 for row in rows) < 1e-3


def _curvature(model: nn.Module, inputs: Any, outputs: Tensor | None) -> float | None:
    """How far the output for the mean of two inputs is from the mean of their outputs, over their own distance.

    A linear map has 0. Only for a single tensor, as two tokens have no mean.
    """
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or len(inputs) < 2 or outputs is None:
        return None
    with torch.no_grad():
        try:
            between = first_tensor(model((inputs + inputs.roll(1, 0)) / 2))
        except Exception:  # a model that accepts some values only, and has accepted the user's
            return None
        if between is None or between.shape != outputs.shape or outputs.ndim < 1 or len(outputs) != len(inputs):
            return None
        other = outputs.roll(1, 0)
        off, apart = norms([between - (outputs + other) / 2, outputs - other])
    return off / apart if apart > 0 else None
