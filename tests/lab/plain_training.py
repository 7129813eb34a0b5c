"""Stacks and engines against plain PyTorch: small problems, networks as anyone would write them, and ordinary loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.fused import FusedEngine
from stiefel_init.lab.train.graph import GraphEngine
from stiefel_init.lab.train.network import MODULES
from stiefel_init.lab.train.problem import Problem
from stiefel_init.lab.train.stack import Stack
from stiefel_init.lab.train.training import EngineName
from stiefel_init.torch import TailoredReLU

ProblemMaker = Callable[..., Problem]
Forward = Callable[[nn.Sequential, torch.Tensor], torch.Tensor]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ENGINES: tuple[EngineName, ...] = ("graph", "fused")
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "cross_entropy": nn.functional.cross_entropy,
    "squared_error": lambda out, y: nn.functional.mse_loss(out.squeeze(-1), y),
}
SHAPES = [  # depth, width, rows: rows and widths that fill no tile, one tile, and more than one
    (1, 4, 1),
    (2, 5, 17),
    (3, 16, 16),
    (3, 33, 70),
    (2, 70, 35),
]


def images(rows: int, inputs: int = 21, classes: int = 5, seed: int = 0) -> Problem:
    """Classes that can be learned, as pixels from 0 to 255."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows + 40)
    y[:classes] = np.arange(classes)
    x = np.clip(rng.normal(60, 30, (rows + 40, inputs)) + 110 * (np.arange(inputs) % classes == y[:, None]), 0, 255)
    x = x.astype(np.uint8)
    return Problem(x[:rows], y[:rows], x[rows:], y[rows:], classes, "cross_entropy", 255.0)


def table(rows: int, inputs: int = 7, seed: int = 0) -> Problem:
    """A regression on real features."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows + 40, inputs)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2]).astype(np.float32)
    return Problem(x[:rows], y[:rows], x[rows:], y[rows:], 1, "squared_error")


def engine_of(name: EngineName, cells: Sequence[Cell], problems: Sequence[Problem]) -> Any:
    """The engine of that name with a stack of the cells."""
    return (FusedEngine if name == "fused" else GraphEngine)(Stack(cells, problems, DEVICE))


def epoch(engine: GraphEngine | FusedEngine, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Train an epoch in its own order."""
    engine.stack.shuffle(number)
    return engine.epoch()


def scramble_(stack: Stack, seed: int = 0) -> None:
    """Weights of no scheme, biases that are not zero, slopes of both signs: nothing may hide behind a zero."""
    generator = torch.Generator().manual_seed(seed)
    p = stack.parameters
    for weight, bias in zip(p.weights, p.biases):
        weight.copy_(torch.randn(weight.shape, generator=generator) * math.sqrt(2 / weight.shape[2]))
        bias.copy_(torch.randn(bias.shape, generator=generator) * 0.1)
    if p.slopes is not None:
        p.slopes.copy_(torch.rand(p.slopes.shape, generator=generator) - 0.4)


def plain(stack: Stack, index: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Network `index` of the stack, as anyone would write it."""
    p = stack.parameters
    layers: list[nn.Module] = []
    for layer, (n, m) in enumerate(pairwise(stack.net.widths)):
        linear = nn.Linear(n, m, dtype=dtype)
        linear.weight.data.copy_(p.weights[layer][index])
        linear.bias.data.copy_(p.biases[layer][index])
        layers.append(linear)
        if layer < stack.net.layers - 1:
            tailored = stack.net.activation == "tat"
            activation = TailoredReLU(stack.net.layers - 1) if tailored else MODULES[stack.net.activation]().to(dtype)
            if p.slopes is not None:
                assert isinstance(activation, nn.PReLU)
                activation.weight.data.fill_(p.slopes[index, layer].item())
            layers.append(activation)
    return nn.Sequential(*layers)


def flat(network: nn.Sequential, *, gradients: bool = False) -> list[torch.Tensor]:
    """The network's parameters, or their gradients, in the order in which a stack keeps them."""
    linear = [parameter for layer in network if isinstance(layer, nn.Linear) for parameter in layer.parameters()]
    slopes = [parameter for layer in network if isinstance(layer, nn.PReLU) for parameter in layer.parameters()]
    found = [parameter.grad if gradients else parameter for parameter in linear + slopes]
    return [tensor.detach().clone().flatten() for tensor in found if tensor is not None]


def of_stack(stack: Stack, index: int, values: torch.Tensor) -> list[torch.Tensor]:
    """The values of a stack that belong to one of its networks, kind by kind and layer by layer."""
    sizes = stack.net.sizes
    if stack.net.activation == "prelu":
        sizes = [*sizes[:-1], *[1] * sizes[-1]]
    return list(values[index].cpu().double().split(sizes))


def batch_of(stack: Stack, problem: Problem, index: int, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows the stack trains on, in the order of its network `index`."""
    first = stack.data.rows[index].min().item() if problem.rows is None else 0
    rows = stack.order[index, start:stop].cpu().numpy() - first
    x = torch.from_numpy(problem.features[rows]).double() / problem.scale
    y = torch.from_numpy(problem.targets[rows])
    return x, y if y.dtype == torch.int64 else y.double()


def worst(found: Sequence[torch.Tensor], true: Sequence[torch.Tensor]) -> float:
    """The largest error over all parameters, each relative to the largest entry of its kind and layer."""
    assert len(found) == len(true)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(found, true))


class Descent(NamedTuple):
    """A step of plain gradient descent on all rows: pairs of the engine's and of an ordinary network's in float64."""

    gradient: tuple[list[torch.Tensor], list[torch.Tensor]]
    loss: tuple[float, float]
    correct: tuple[int, int]
    network: nn.Sequential
    batch: tuple[torch.Tensor, torch.Tensor]


def descents(trainer: GraphEngine | FusedEngine, problems: Sequence[Problem]) -> Iterator[Descent]:
    """Take a step, for each network of a stack."""
    stack = trainer.stack
    networks = [plain(stack, index) for index in range(len(problems))]
    before = stack.parameters.flat.double().clone()
    losses, correct = trainer.epoch()
    moved = (before - stack.parameters.flat.double()) / stack.cells[0].rate
    for index, (network, problem) in enumerate(zip(networks, problems)):
        x, y = batch_of(stack, problem, index, 0, problem.size)
        out = network(x)
        loss = LOSSES[problem.loss](out, y)
        loss.backward()
        right = int((out.argmax(-1) == y).sum()) if problem.loss == "cross_entropy" else 0
        gradients = of_stack(stack, index, moved), flat(network, gradients=True)
        mean = float(losses[index]) / problem.size
        yield Descent(gradients, (mean, loss.item()), (int(correct[index]), right), network, (x, y))


def reference_epoch(
    network: nn.Sequential,
    optimizer: torch.optim.Optimizer,
    stack: Stack,
    problem: Problem,
    index: int,
    forward: Forward = nn.Sequential.__call__,
) -> float:
    """One epoch of an ordinary training loop, on the batches of the stack; the mean loss."""
    total = 0.0
    for start in range(0, stack.size, stack.batch):
        stop = min(start + stack.batch, stack.size)
        x, y = batch_of(stack, problem, index, start, stop)
        loss = LOSSES[problem.loss](forward(network, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * (stop - start)
    return total / stack.size


def train_beside(
    trainer: GraphEngine | FusedEngine,
    problems: Sequence[Problem],
    make: Callable[[nn.Sequential, Cell], Any],
    epochs: int,
    rel: float,
    forward: Callable[[Stack, int, int], Forward] = lambda stack, index, number: nn.Sequential.__call__,
) -> list[float]:
    """Train a stack beside ordinary loops with the optimizers that `make` makes; all losses agree to `rel`.

    Returns:
        The largest difference of a parameter in the end, of each network.
    """
    stack = trainer.stack
    networks = [plain(stack, index) for index in range(len(problems))]
    optimizers = [make(network, cell) for network, cell in zip(networks, stack.cells)]
    for number in range(epochs):
        losses, _ = epoch(trainer, number)
        for index, (network, optimizer, problem) in enumerate(zip(networks, optimizers, problems)):
            way = forward(stack, index, number)
            expected = reference_epoch(network, optimizer, stack, problem, index, way)
            assert abs(float(losses[index]) / stack.size - expected) <= rel * abs(expected)
    pairs = [zip(of_stack(stack, index, stack.parameters.flat), flat(each)) for index, each in enumerate(networks)]
    return [max(float((a - b).abs().max()) for a, b in pair) for pair in pairs]
