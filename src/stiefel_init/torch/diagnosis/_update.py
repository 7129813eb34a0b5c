"""How far an optimizer's next step would move the weights: `updates_of`."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ._observe import Seen
from ._statistics import norms
from ._weights import own_weights


def updates_of(optimizer: torch.optim.Optimizer, loss: Tensor, seen: Iterable[Seen]) -> dict[nn.Module, float]:
    """Of each layer that the optimizer moves, the norm of the step over that of its weights.

    A deep copy of the optimizer, with copies of the parameters and of its state, takes the step.
    """
    twin = copy.deepcopy(optimizer)
    old, new = ([p for group in one.param_groups for p in group["params"]] for one in (optimizer, twin))
    learnt = [index for index, parameter in enumerate(old) if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, [old[index] for index in learnt], retain_graph=True, allow_unused=True)
    for parameter in new:
        parameter.grad = None
    for index, gradient in zip(learnt, gradients):
        new[index].grad = None if gradient is None else gradient.detach().clone()
    twin.step()
    moved = {id(before): (before.detach(), after.detach()) for before, after in zip(old, new)}
    result = {}
    for module in dict.fromkeys(layer.module for layer in seen):
        pairs = [moved[id(weight)] for weight in own_weights(module) if id(weight) in moved]
        size = math.hypot(*norms([before for before, _ in pairs]))
        if pairs and size > 0:
            result[module] = math.hypot(*norms([after - before for before, after in pairs])) / size
    return result
