"""What is measured of a stack: test scores after some epochs, after the last also calibration and noise; and the
signal of untrained networks, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...core import stream as _stream
from ...torch.observe.statistics import leaving
from ...torch.sampling.stream import normals
from .activation import applied
from .cell import Cell
from .network import LOSSES, Architecture, Parameters, initial, predict
from .problem import Problem
from .stack import BINS, ROWS, HeldOut, Stack

CPU = torch.device("cpu")
NOISE = 0.3
"""Standard deviation of the noise, in the unit of the network's inputs: pixels from 0 to 1, standardized features."""


class Tested(NamedTuple):
    """Of each network, as `Record` explains them; what is not measured is None, all but the score in regressions."""

    score: Tensor
    balanced: Tensor | None = None
    log_loss: Tensor | None = None
    calibration: Tensor | None = None
    noisy: Tensor | None = None


def evaluate(stack: Stack, *, last: bool = False) -> Tested:
    """Test a stack; after the `last` epoch, all that there is to measure."""
    parts = [_tested(stack, tests, last=last) for tests in stack.data.tests]
    places = torch.tensor([index for tests in stack.data.tests for index in tests.members], device=stack.order.device)
    values: list[Any] = [None if column[0] is None else torch.cat(column)[places.argsort()] for column in zip(*parts)]
    return Tested(*values)


def _tested(stack: Stack, tests: HeldOut, *, last: bool) -> Tested:
    """Of the networks whose test parts have one size, (E, rows, …) below."""
    networks, count, total = stack.parameters, len(tests.members), tests.features.shape[1]
    if count < len(stack.cells):
        networks = Parameters.of(networks.flat[tests.members], stack.net)

    def chunk(start: int, noise: float = 0.0) -> tuple[Tensor, Tensor]:
        some = slice(start, start + ROWS)
        x = stack.data.inputs(tests.features[:, some])
        if noise:
            key, (_, rows, inputs) = _stream.key(0, "noise"), x.shape
            x = x + noise * normals(key, (0, rows), (0, inputs), torch.float32, x.device)
        return tests.of_members(x), tests.targets[:, some]

    chunks = range(0, total, ROWS)
    if stack.loss == "squared_error":
        squares = torch.zeros(count, dtype=torch.float64, device=stack.order.device)
        for x, y in map(chunk, chunks):
            squares += (predict(networks, stack.net, x).squeeze(-1) - tests.of_members(y)).double().square().sum(1)
        return Tested((squares / total).sqrt() * stack.units[tests.members])
    classes = stack.net.widths[-1]
    right = torch.zeros(count, classes, dtype=torch.float64, device=stack.order.device)
    rows, loss, gaps = torch.zeros_like(right), right.new_zeros(count), right.new_zeros(count, BINS)
    for x, y in map(chunk, chunks):
        out = predict(networks, stack.net, x)
        of_class = one_hot(y, classes).double()  # (parts, rows, classes)
        correct = (out.argmax(-1) == tests.of_members(y)).double()
        right += _by_class(correct, tests.of_members(of_class))
        rows += tests.of_members(of_class.sum(1))
        if last:
            log_p = torch.log_softmax(out, -1)
            loss -= (log_p.double() * tests.of_members(of_class)).sum((1, 2))
            confidence = log_p.exp().amax(-1).double().nan_to_num(0)
            which = (BINS * confidence).ceil().long().sub(1).clamp(0, BINS - 1)
            gaps += _by_class(correct - confidence, one_hot(which, BINS).double())
    shares = torch.where(rows > 0, right / rows, 0)
    scores = Tested(100 * right.sum(1) / total, 100 * shares.sum(1) / (rows > 0).sum(1))
    if not last:
        return scores
    x, y = chunk(0, NOISE)
    noisy = predict(networks, stack.net, x)
    return scores._replace(
        log_loss=loss / total,
        calibration=100 * gaps.abs().sum(1) / total,
        noisy=100 * (noisy.argmax(-1) == tests.of_members(y)).double().mean(1),
    )


def _by_class(values: Tensor, of_class: Tensor) -> Tensor:
    """The sums of a network's values over each class: (E, rows), (E, rows, classes) → (E, classes)."""
    if not of_class.stride(0):  # one for all: a single product
        return values @ of_class[0]
    return torch.bmm(values[:, None], of_class)[:, 0]


@dataclass(frozen=True)
class SignalProfile:
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


def measure_signal(
    cells: Sequence[Cell], problem: Problem, rows: int = 256, device: torch.device = CPU
) -> SignalProfile:
    """Send the first `rows` training rows through the untrained networks of the cells, which share an architecture."""
    net = Architecture.of(cells[0], problem)
    # Some schemes shrink the signal below what float32 can square, so the measurement is made in float64.
    parameters = Parameters.of(initial(cells, net, device).flat.double(), net)
    x = torch.from_numpy(problem.features[:rows]).to(device).double().div(problem.scale).expand(len(cells), -1, -1)
    targets = torch.from_numpy(problem.targets[:rows]).to(device).expand(len(cells), -1)
    before: list[torch.Tensor] = []
    after = [x]
    for layer in range(net.layers - 1):
        pre = torch.baddbmm(parameters.biases[layer].unsqueeze(1), after[-1], parameters.weights[layer].mT)
        before.append(pre.requires_grad_() if layer == 0 else pre)
        after.append(applied(net.activation, net.layers - 1).forward(pre.clone(), parameters.slope(layer)))
    out = torch.baddbmm(parameters.biases[-1].unsqueeze(1), after[-1], parameters.weights[-1].mT)
    loss = LOSSES[problem.loss](out, targets)[0].sum() / x.shape[1]
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
        return SignalProfile(*(values.cpu().numpy() for values in measured))
