"""The signal of untrained stacks, layer by layer: `measure`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...torch.observe.statistics import leaving
from .activation import applied
from .cell import Cell
from .network import LOSSES, Architecture, Parameters, initial
from .task import Task

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Signal:
    """Per cell and hidden layer, at initialization: arrays of shape (cells, depth)."""

    mean: np.ndarray
    """Mean of the pre-activations over inputs and units."""
    std: np.ndarray
    """Their standard deviation."""
    active: np.ndarray
    """The share of them that is positive."""
    variance_ratio: np.ndarray
    """Variance of a layer's activations divided by that of the layer before; for the first, by the inputs'."""
    gradient: np.ndarray
    """Norm of the loss's gradient with respect to the pre-activations."""
    distinct: np.ndarray
    """Effectively how many of a layer's units differ, by their correlations over the inputs."""


def measure(cells: Sequence[Cell], task: Task, rows: int = 256, device: torch.device = CPU) -> Signal:
    """Send the first `rows` training rows through the untrained networks of the cells, which share an architecture."""
    net = Architecture.of(cells[0], task)
    # Some schemes shrink the signal below what float32 can square, so the measurement is made in float64.
    parameters = Parameters.of(initial(cells, net, device).flat.double(), net)
    x = torch.from_numpy(task.features[:rows]).to(device).double().div(task.scale).expand(len(cells), -1, -1)
    targets = torch.from_numpy(task.targets[:rows]).to(device).expand(len(cells), -1)
    before: list[torch.Tensor] = []
    after = [x]
    for layer in range(net.layers - 1):
        pre = torch.baddbmm(parameters.biases[layer].unsqueeze(1), after[-1], parameters.weights[layer].mT)
        before.append(pre.requires_grad_() if layer == 0 else pre)
        after.append(applied(net.activation, net.layers - 1).forward(pre.clone(), parameters.slope(layer)))
    out = torch.baddbmm(parameters.biases[-1].unsqueeze(1), after[-1], parameters.weights[-1].mT)
    loss = LOSSES[task.loss](out, targets)[0].sum() / x.shape[1]
    slopes = torch.autograd.grad(loss, before)
    with torch.no_grad():
        pre = torch.stack(before, 1).flatten(2)
        variance = torch.stack([h.flatten(1).var(1) for h in after], 1)
        measured = (
            pre.mean(2),
            pre.std(2),
            (pre > 0).double().mean(2),
            variance[:, 1:] / variance[:, :-1],
            torch.stack([slope.flatten(1).norm(dim=1) for slope in slopes], 1),
            torch.stack([leaving(h.clone())[:, 3] for h in after[1:]], 1),
        )
        return Signal(*(values.cpu().numpy() for values in measured))
