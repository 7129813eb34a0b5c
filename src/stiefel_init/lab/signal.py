"""The signal at initialization, layer by layer, for the stacks of the laboratory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..theory import propagate
from .cells import SCHEMES, Cell
from .engine import Task
from .networks import ACTIVATE, LOSSES, Architecture, Parameters, initial


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
    """Variance of a layer's activations over that of the layer before; of the first, over the inputs'."""
    gradient: np.ndarray
    """Length of the loss's gradient by the pre-activations."""


def measure(cells: Sequence[Cell], task: Task, rows: int = 256) -> Signal:
    """Send the first `rows` training rows through the untrained networks of the cells, which share an architecture."""
    net = Architecture((task.features.shape[1], *cells[0].hidden, task.outputs), cells[0].activation)
    # Some schemes shrink the signal below what float32 can square, so the measurement is made in float64.
    parameters = Parameters.of(initial(cells, net, torch.device("cpu")).flat.double(), net)
    x = torch.from_numpy(task.features[:rows]).double().div(task.scale).expand(len(cells), -1, -1)
    targets = torch.from_numpy(task.targets[:rows]).expand(len(cells), -1)
    before: list[torch.Tensor] = []
    after = [x]
    for layer in range(net.layers - 1):
        pre = torch.baddbmm(parameters.biases[layer].unsqueeze(1), after[-1], parameters.weights[layer].mT)
        before.append(pre.requires_grad_() if layer == 0 else pre)
        after.append(ACTIVATE[net.activation](pre.clone(), parameters.slope(layer)))
    out = torch.baddbmm(parameters.biases[-1].unsqueeze(1), after[-1], parameters.weights[-1].mT)
    loss = LOSSES[task.loss](out, targets)[0].sum() / x.shape[1]
    slopes = torch.autograd.grad(loss, before)
    with torch.no_grad():
        pre = torch.stack(before, 1).flatten(2)
        variance = torch.stack([h.flatten(1).var(1) for h in after], 1)
        return Signal(
            pre.mean(2).numpy(),
            pre.std(2).numpy(),
            (pre > 0).double().mean(2).numpy(),
            (variance[:, 1:] / variance[:, :-1]).numpy(),
            torch.stack([slope.flatten(1).norm(dim=1) for slope in slopes], 1).numpy(),
        )


COLUMNS = (
    "dataset", "scheme", "layer", "mean", "std", "active", "variance_ratio", "gradient", "predicted_mean",
    "predicted_std", "predicted_active", "predicted_variance_ratio",
)  # fmt: skip


def survey(
    datasets: Mapping[str, Task], depth: int = 100, seeds: int = 10, progress: Callable[[float], None] = lambda s: None
) -> list[dict[str, Any]]:
    """Each scheme's signal on each data set, the mean over seeds, beside what `theory.propagate` predicts.

    The theory is given the mean and standard deviation of the inputs, nothing else.
    """
    rows = []
    for dataset, task in datasets.items():
        inputs = task.features[:256] / task.scale
        for scheme in SCHEMES:
            cells = [Cell(dataset, scheme, depth, seed=seed) for seed in range(seeds)]
            found = measure(cells, task)
            widths = (task.features.shape[1], *cells[0].hidden)
            theory = propagate(widths, mean=float(inputs.mean()), std=float(inputs.std()), scheme=scheme)
            for layer in range(depth):
                values = [float(getattr(found, name)[:, layer].mean()) for name in COLUMNS[3:8]]
                predicted = [theory.pre_mean, theory.pre_std, theory.active, theory.variance_ratio]
                values += [float(one[layer]) for one in predicted]
                rows.append(dict(zip(COLUMNS, (dataset, scheme, layer + 1, *(float(f"{v:.5g}") for v in values)))))
            progress(1 / len(datasets) / len(SCHEMES))
    return rows
