"""What a backward pass tells: `gradients_of`; and `step_of`, the step that an optimizer would take."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..observe.observer import Seen
from ..observe.statistics import common, measured, norms
from ..observe.weights import own_weights


class Gradients(NamedTuple):
    """What the backward pass told about one call."""

    output: float | None = None  # norm of the gradient with respect to the layer's output, and to its weights
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
    matrices: dict[int, Tensor] = {}
    for key, group in weights.items():
        indices = [index for index in (next(by_weight) for _ in group) if index in lengths]
        of_weights[key] = math.hypot(*(lengths[index] for index in indices)) if indices else None
        matrix = gradients[indices[0]] if indices else None
        if matrix is not None and matrix.layout == torch.strided and matrix.shape[0] > 1:
            matrices[key] = matrix.flatten(1)
    shares = measured(common, matrices)
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


class Step(NamedTuple):
    """What the optimizer's next step would do."""

    updates: dict[nn.Module, float]  # of each layer that it moves, the norm of the step over that of its weights
    rounded: float = 0.0
    """The share of the weights with a gradient that it leaves where they are, though it does not others."""


def step_of(optimizers: Sequence[torch.optim.Optimizer], loss: Tensor, seen: Iterable[Seen]) -> Step:
    """Deep copies of the optimizers, with copies of the parameters and of their state, take the step."""
    twins = copy.deepcopy(optimizers)
    old, new = (
        [p for one in several for group in one.param_groups for p in group["params"]] for several in (optimizers, twins)
    )
    learnt = [index for index, parameter in enumerate(old) if parameter.requires_grad]
    if not learnt:
        return Step({})
    found = torch.autograd.grad(loss, [old[index] for index in learnt], retain_graph=True, allow_unused=True)
    gradients = {index: gradient.detach() for index, gradient in zip(learnt, found) if gradient is not None}
    for index, parameter in enumerate(new):
        parameter.grad = gradients[index].clone() if index in gradients else None
    try:
        for twin in twins:
            twin.step()
    except TypeError:  # an optimizer that asks for a closure, as LBFGS does, takes no step by itself
        return Step({})
    moves = {index: (old[index].detach() - new[index].detach()).double() for index in gradients}
    moved = {id(before): (before.detach(), after.detach()) for before, after in zip(old, new)}
    result = {}
    for module in dict.fromkeys(layer.module for layer in seen):
        pairs = [moved[id(weight)] for weight in own_weights(module) if id(weight) in moved]
        size = math.hypot(*norms([before for before, _ in pairs]))
        if pairs and size > 0:
            result[module] = math.hypot(*norms([after - before for before, after in pairs])) / size
    stays = [
        ((move == 0) & (gradients[index].to_dense() != 0)).double().mean()
        for index, move in moves.items()
        if old[index].dtype in (torch.float16, torch.bfloat16) and move.numel()
    ]
    rounded = sum(map(float, stays)) / len(stays) if stays else 0.0
    return Step(result, rounded)
