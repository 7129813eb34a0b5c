"""What backward passes tell: `gradients_of` one; `updates_of`, the step an optimizer would take; and what one does not
tell: `jacobians`, by random directions, and `signals_to_noise`, by parts of a batch.

Note [spread by probes]
    Let J be the derivative of an input's outputs with respect to its activations in a layer, and M = JJᵀ with the
    eigenvalues σ². For independent Gaussian directions v, w the products vᵀMw come out of backward passes alone, as
    (Jᵀv)ᵀ(Jᵀw), for all layers at once; E vᵀMv = Σσ², E (vᵀMw)² = Σσ⁴ and E (vᵀMv)(wᵀMw) = (Σσ²)². Inputs are taken to
    be independent, which batch normalization makes them only about.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..observe.observer import Seen
from ..observe.statistics import Gatherer, common, double, norms
from ..observe.weights import own_weights


class Gradients(NamedTuple):
    """What the backward pass told about one call."""

    output: float | None = None
    """Norm of the gradient with respect to the layer's output, and to its weights."""
    weights: float | None = None
    common: float | None = None
    first_step: float | None = None


def gradients_of(loss: Tensor | None, seen: Sequence[Seen], scale: float = 1.0) -> list[Gradients]:
    """Of each call, by one backward pass of `scale` times the loss, which frees the graph."""
    if loss is None:
        return [Gradients()] * len(seen)
    weights = {id(layer.module): own_weights(layer.module) for layer in seen}
    sources: list[Any] = [layer.edge for layer in seen if layer.edge is not None]
    sequences = [layer.sequence for layer in seen if layer.sequence is not None]
    flat = [weight for group in weights.values() for weight in group]
    found = torch.autograd.grad(loss * scale, [*sources, *flat, *sequences], allow_unused=True)
    gradients = [None if g is None else g.detach().to_dense() if g.is_sparse else g.detach() for g in found]
    at = [index for index, gradient in enumerate(gradients) if gradient is not None]
    lengths = dict(zip(at, norms([gradient for gradient in gradients if gradient is not None])))
    lengths = {index: length / scale for index, length in lengths.items()} if scale != 1 else lengths
    by_output, by_weight = iter(range(len(sources))), iter(range(len(sources), len(sources) + len(flat)))
    of_weights: dict[int, float | None] = {}
    gatherer = Gatherer(common)
    for key, group in weights.items():
        indices = [index for index in (next(by_weight) for _ in group) if index in lengths]
        of_weights[key] = math.hypot(*(lengths[index] for index in indices)) if indices else None
        matrix = gradients[indices[0]] if indices else None
        if matrix is not None and matrix.layout == torch.strided and matrix.shape[0] > 1:
            gatherer.add(key, matrix.flatten(1))
    shares = gatherer.results()
    steps = iter(gradients[len(sources) + len(flat) :])
    return [
        Gradients(
            None if layer.edge is None else lengths.get(next(by_output)),
            of_weights[id(layer.module)],
            shares.get(id(layer.module), (None,))[0],
            None if layer.sequence is None else _first_step(next(steps), layer.module),
        )
        for layer in seen
    ]


def _first_step(gradient: Tensor | None, module: nn.Module) -> float | None:
    """The gradient's norm at the first time step, over that at the step where it is largest."""
    if gradient is None or gradient.shape[time_axis(gradient, module)] < 2:
        return None
    by_step = gradient.movedim(time_axis(gradient, module), 0).flatten(1)
    lengths = norms(list(by_step))
    return lengths[0] / max(lengths) if max(lengths) > 0 else None


def time_axis(sequence: Tensor, module: nn.Module) -> int:
    """The dimension of a recurrent layer's input that counts time steps."""
    return int(bool(getattr(module, "batch_first", False)) and sequence.ndim > 2)


def updates_of(optimizer: torch.optim.Optimizer, loss: Tensor, seen: Iterable[Seen]) -> dict[nn.Module, float]:
    """Of each layer that the optimizer moves, the norm of the step over that of its weights.

    A deep copy of the optimizer, with copies of the parameters and of its state, takes the step.
    """
    twin = copy.deepcopy(optimizer)
    old, new = ([p for group in one.param_groups for p in group["params"]] for one in (optimizer, twin))
    learnt = [index for index, parameter in enumerate(old) if parameter.requires_grad]
    if not learnt:
        return {}
    gradients = torch.autograd.grad(loss, [old[index] for index in learnt], retain_graph=True, allow_unused=True)
    for parameter in new:
        parameter.grad = None
    for index, gradient in zip(learnt, gradients):
        new[index].grad = None if gradient is None else gradient.detach().clone()
    try:
        twin.step()
    except TypeError:  # an optimizer that asks for a closure, as LBFGS does, takes no step by itself
        return {}
    moved = {id(before): (before.detach(), after.detach()) for before, after in zip(old, new)}
    result = {}
    for module in dict.fromkeys(layer.module for layer in seen):
        pairs = [moved[id(weight)] for weight in own_weights(module) if id(weight) in moved]
        size = math.hypot(*norms([before for before, _ in pairs]))
        if pairs and size > 0:
            result[module] = math.hypot(*norms([after - before for before, after in pairs])) / size
    return result


class Jacobian(NamedTuple):
    """The singular values σ of the outputs' derivative with respect to a layer's output, over the inputs."""

    size: float
    """√(Σσ² / k), k the number of outputs or of the layer's units, the lower: their root mean square."""
    spread: float | None
    """k Σσ⁴ / (Σσ²)²: 1 if all are equal, k if there is only one. None where there is none."""


def jacobians(outputs: Tensor | None, seen: Sequence[Seen], probes: int) -> list[Jacobian | None]:
    """The Jacobian of each call, by `probes` backward passes; None where it does not reach the outputs."""
    edges = [layer.edge for layer in seen if layer.edge is not None]
    if outputs is None or not outputs.requires_grad or not edges or outputs.ndim < 1:
        return [None] * len(seen)
    count = len(outputs)
    sent: list[list[Tensor | None]] = []
    for _ in range(probes):
        direction = torch.randn_like(outputs)
        returned = torch.autograd.grad(outputs, edges, direction, retain_graph=True, allow_unused=True)
        sent.append([_by_input(gradient, count) for gradient in returned])
    columns = iter(zip(*sent))
    per_input = outputs[0].numel()
    return [None if layer.edge is None else _spectrum(next(columns), per_input) for layer in seen]


def _by_input(gradient: Tensor | None, count: int) -> Tensor | None:
    """(inputs, values); None where the layer's rows are not those of the inputs."""
    if gradient is None or gradient.ndim < 2 or gradient.shape[0] % count:
        return None
    return gradient.detach().reshape(count, -1)


def _spectrum(sent: Sequence[Tensor | None], outputs: int) -> Jacobian | None:
    rows = [value for value in sent if value is not None]
    if len(rows) < len(sent):
        return None
    stack = double(torch.stack(rows, 1))  # (inputs, probes, values)
    largest = stack.abs().amax()
    if not bool(largest.isfinite()):
        return None
    number, probes = min(outputs, stack.shape[2]), len(rows)
    scale = float(largest) or 1.0
    stack = stack / scale
    gram = stack @ stack.mT
    own = gram.diagonal(dim1=1, dim2=2)
    squares = gram.square().sum((1, 2)) - own.square().sum(1)
    products = own.sum(1).square() - own.square().sum(1)
    size = scale * math.sqrt(float(own.mean()) / number)
    whole = float(products.sum())
    return Jacobian(size, number * float(squares.sum()) / whole if whole > 0 and probes > 1 else None)


def signals_to_noise(
    loss_of: Callable[[Any, Any], Tensor], inputs: Any, targets: Any, seen: Sequence[Seen], parts: int
) -> dict[nn.Module, float]:
    """Of each layer's weights: how much larger the gradient is than its noise, both squared.

    The batch is cut into equal parts; the variance V of their gradients gives that of the whole batch's gradient g,
    V / parts, and the signal is ‖g‖² less that. Empty where inputs and targets cannot be cut or a part does not run.
    """
    count = len(targets) if isinstance(targets, Tensor) and targets.ndim > 0 else 0
    size = count // parts
    weights = {layer.module: own_weights(layer.module) for layer in seen}
    flat = [weight for group in weights.values() for weight in group]
    if not size or not flat:
        return {}
    total: list[Tensor] = [torch.zeros_like(weight) for weight in flat]
    squares = [0.0] * len(flat)
    for part in range(parts):
        chosen = slice(part * size, (part + 1) * size)
        try:
            value = loss_of(_cut(inputs, chosen, count), targets[chosen])
            gradients = torch.autograd.grad(value, flat, allow_unused=True)
        except Exception:  # a model that does not take a smaller batch
            return {}
        for at, gradient in enumerate(gradients):
            if gradient is not None and gradient.layout == torch.strided:
                total[at] += gradient.detach()
                squares[at] += float(double(gradient.detach()).square().sum())
    places = iter(range(len(flat)))
    result = {}
    for module, group in weights.items():
        own = [next(places) for _ in group]
        mean = sum(float(double(total[index]).square().sum()) for index in own) / parts**2
        noise = (sum(squares[index] for index in own) / parts - mean) / (parts - 1)
        if mean > 0 and noise > 0:
            result[module] = max(0.0, mean / noise - 1)
    return result


def _cut(value: Any, chosen: slice, count: int) -> Any:
    """The tensors among the inputs that have a row for each target, cut to some of them."""
    if isinstance(value, Tensor):
        return value[chosen] if value.ndim > 0 and len(value) == count else value
    if isinstance(value, Mapping):
        return {key: _cut(item, chosen, count) for key, item in value.items()}
    if type(value) in (tuple, list):
        return [_cut(item, chosen, count) for item in value]
    return value
