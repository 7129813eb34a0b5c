"""Functions of coordinates: distance and radiance fields, sine networks, physics-informed networks, operators."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .entry import DECIBELS, ERROR, Batch, Entry, Task, decibels, log_error, squared


def mlp(sizes: list[int], activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them."""
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), activation())]
    return nn.Sequential(*layers[:-1])


class Field(nn.Module):
    """ReLU layers that read the encoded coordinates again half-way, as distance and radiance fields do."""

    def __init__(self, inputs: int, outputs: int, width: int, depth: int, octaves: int = 0, last: str = "") -> None:
        super().__init__()
        self.octaves, self.last = octaves, last
        read = inputs * (1 + 2 * octaves)
        self.layers = nn.ModuleList(
            nn.Linear(read if k == 0 else width + read * (k == depth // 2), width) for k in range(depth)
        )
        self.out = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        if self.octaves:
            angles = torch.cat([math.pi * 2.0**k * x for k in range(self.octaves)], -1)
            x = torch.cat([x, angles.sin(), angles.cos()], -1)
        y = x
        for k, layer in enumerate(self.layers):
            y = torch.relu(layer(torch.cat([y, x], -1) if k == len(self.layers) // 2 else y))
        y = self.out(y)
        return torch.tanh(y) if self.last == "tanh" else torch.sigmoid(y) if self.last else y


class Sine(nn.Module):
    """Sines of 30 times linear layers, with the uniform weights made for them."""

    def __init__(self, inputs: int, outputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width if k else inputs, width) for k in range(depth))
        self.out = nn.Linear(width, outputs)
        with torch.no_grad():
            for k, layer in enumerate([*self.layers, self.out]):
                bound = math.sqrt(6 / layer.in_features) / 30 if k else 1 / inputs
                layer.weight.uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(30 * layer(x))
        return self.out(x)


class Fourier(nn.Module):
    """Random Fourier features of the coordinates, then ReLU layers."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.register_buffer("waves", torch.randn(2, width // 2) * 4)
        self.net = mlp([width, *[width] * depth, 3])

    def forward(self, x: Tensor) -> Tensor:
        angles = 2 * math.pi * x @ self.waves
        return torch.sigmoid(self.net(torch.cat([angles.sin(), angles.cos()], -1)))


def xavier(net: nn.Sequential) -> nn.Sequential:
    """Xavier's normal weights and no biases, as is usual in physics-informed networks."""
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return net


def _split(x: Tensor, y: Tensor, test: int = 1000) -> tuple[Batch, Batch]:
    return (x[test:], y[test:]), (x[:test], y[:test])


def shape(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Signed distances, cut off at 0.1, of a ring united with a box, at points near their surface."""
    rows = 200_000 if big else 9_000
    x = 2 * torch.rand(8 * rows, 3, generator=torch.Generator().manual_seed(0)) - 1
    ring = torch.hypot(torch.hypot(x[:, 0], x[:, 1]) - 0.55, x[:, 2]) - 0.18
    apart = (x - 0.3).abs() - torch.tensor([0.3, 0.2, 0.4])
    box = apart.clamp(min=0).norm(dim=1) + apart.amax(1).clamp(max=0)
    distance = torch.minimum(ring, box)
    near = distance.abs().argsort()[:rows][torch.randperm(rows, generator=torch.Generator().manual_seed(1))]
    return _split(x[near], distance[near].clamp(-0.1, 0.1))


def scene(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Colours of a picture with edges, gradients and texture, at random places."""
    x = 2 * torch.rand(200_000 if big else 9_000, 2, generator=torch.Generator().manual_seed(1)) - 1
    u, v = x.unbind(1)
    disc, stripes = (torch.hypot(u - 0.2, v) < 0.5).float(), torch.sin(12 * u + 5 * v * v)
    squares = ((3 * u).floor() + (3 * v).floor()) % 2
    return _split(x, torch.stack([0.5 + 0.4 * stripes * disc, 0.3 + 0.5 * squares, 0.5 + 0.4 * u * v - 0.3 * disc], 1))


def derivative(y: Tensor, x: Tensor) -> Tensor:
    """Of each row by its own coordinates."""
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def square(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Points of the square, and the solution sin πx sin πy of the problem below."""
    x = 2 * torch.rand(40_000 if big else 6_000, 2, generator=torch.Generator().manual_seed(2)) - 1
    return _split(x, (math.pi * x[:, 0]).sin() * (math.pi * x[:, 1]).sin())


def poisson(net: nn.Module, batch: Batch) -> Tensor:
    """Of Δu = f in the square, with u = 0 on its border."""
    x = batch[0].detach().requires_grad_()
    with torch.enable_grad():
        first = derivative(net(x), x)
        laplacian = derivative(first[:, 0], x)[:, 0] + derivative(first[:, 1], x)[:, 1]
    inside = laplacian / (2 * math.pi**2) + batch[1]
    edge = x.detach() / x.detach().abs().amax(1, keepdim=True)
    return inside.square().mean() + net(edge).square().mean()


def shock(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Points (t, x), and the solution of Burgers' equation from -sin πx there, by Cole and Hopf's formula."""
    points = torch.rand(40_000 if big else 6_000, 2, generator=torch.Generator().manual_seed(3))
    points[:, 1] = 2 * points[:, 1] - 1
    t, x = points.double().numpy().T[:, :, None]
    nodes, weights = np.polynomial.hermite.hermgauss(80)
    nu = 0.01 / math.pi
    moved = x - nodes * np.sqrt(4 * nu * np.maximum(t, 1e-6))
    each = weights * np.exp(-(np.cos(math.pi * moved) - 1) / (2 * math.pi * nu) - 100)
    u = -(np.sin(math.pi * moved) * each).sum(1) / each.sum(1)
    return _split(points, torch.from_numpy(u).float())


def burgers(net: nn.Module, batch: Batch) -> Tensor:
    """Of u_t + u u_x = ν u_xx, with u = -sin πx at first and 0 at the ends."""
    points = batch[0].detach().requires_grad_()
    with torch.enable_grad():
        u = net(points)
        first = derivative(u, points)
        second = derivative(first[:, 1], points)[:, 1]
    inside = first[:, 0] + u[:, 0] * first[:, 1] - 0.01 / math.pi * second
    x, ends = points.detach().clone(), points.detach().clone()
    x[:, 0], ends[:, 1] = 0, ends[:, 1].sign()
    begin = net(x)[:, 0] + (math.pi * x[:, 1]).sin()
    return inside.square().mean() + begin.square().mean() + net(ends).square().mean()


def heat(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Points (t, x), and the temperature exp(-π²t) sin πx + exp(-9π²t) sin 3πx / 2 of a rod that cools at its ends."""
    points = torch.rand(40_000 if big else 6_000, 2, generator=torch.Generator().manual_seed(4))
    t, x = (points * torch.tensor([0.3, 1.0])).unbind(1)
    waves = ((k, (-(((k * math.pi) ** 2) * t)).exp() * (k * math.pi * x).sin()) for k in (1, 3))
    return _split(torch.stack([t, x], 1), sum(wave if k == 1 else wave / 2 for k, wave in waves))


def cooling(net: nn.Module, batch: Batch) -> Tensor:
    """Of u_t = u_xx, with the first temperature given and 0 at the ends."""
    points = batch[0].detach().requires_grad_()
    with torch.enable_grad():
        first = derivative(net(points), points)
        second = derivative(first[:, 1], points)[:, 1]
    begun, ends = points.detach().clone(), points.detach().clone()
    begun[:, 0], ends[:, 1] = 0, ends[:, 1].round()
    x = math.pi * begun[:, 1]
    begin = net(begun)[:, 0] - x.sin() - (3 * x).sin() / 2
    return 0.1 * (first[:, 0] - second).square().mean() + begin.square().mean() + net(ends).square().mean()


class Operator(nn.Module):
    """From a function, known at some points, and a place to a number: a network of each, and their product."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch, self.trunk = mlp([40, width, width, width], nn.GELU), mlp([1, width, width, width], nn.GELU)
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(self, function: Tensor, place: Tensor) -> Tensor:
        return (self.branch(function) * self.trunk(place)).sum(1) + self.offset


def integrals(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Random smooth functions at 40 points, a place, and the integral up to there."""
    rows, generator = 40_000 if big else 6_000, torch.Generator().manual_seed(5)
    k = torch.arange(1.0, 7.0)
    weights = torch.randn(rows, 6, generator=generator) / k
    x = torch.rand(rows, 1, generator=generator)
    points = torch.linspace(0, 1, 40)
    functions = weights @ (math.pi * k[:, None] * points).cos()
    whole = (weights * (math.pi * k * x).sin() / (math.pi * k)).sum(1)
    return (functions[1000:], x[1000:], whole[1000:]), (functions[:1000], x[:1000], whole[:1000])


class Grid(nn.Module):
    """Learned features on grids of several widths, read between their corners, and a small network."""

    def __init__(self, levels: int, width: int) -> None:
        super().__init__()
        self.grids = nn.ParameterList(
            torch.empty(1, 2, 2 ** (k + 2) + 1, 2 ** (k + 2) + 1).uniform_(-1e-4, 1e-4) for k in range(levels)
        )
        self.net = mlp([2 * levels, width, width, 3])

    def forward(self, x: Tensor) -> Tensor:
        places = x[None, :, None]
        read = [nn.functional.grid_sample(grid, places, align_corners=True)[0, :, :, 0].T for grid in self.grids]
        return torch.sigmoid(self.net(torch.cat(read, 1)))


class Flowing(nn.Module):
    """A differential equation whose right-hand side is a small tanh network, by eight steps of Runge and Kutta."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = mlp([2, width, width, 2], nn.Tanh)
        for layer in self.net[::2]:  # type: ignore[attr-defined]
            nn.init.normal_(layer.weight, std=0.1)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(8):
            k = self.net(x + self.net(x) / 16)
            x = x + k / 8
        return x


def orbits(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Where a damped nonlinear oscillator stands, and a while later."""
    x = 4 * torch.rand(40_000 if big else 6_000, 2, generator=torch.Generator().manual_seed(6)) - 2
    y = x
    for _step in range(100):
        y = y + 0.01 * torch.stack([2 * y[:, 1], -2 * y[:, 0].sin() - 0.3 * y[:, 1]], 1)
    return _split(x, y)


def _absolute(found: Tensor, batch: Batch) -> Tensor:
    return (found.view_as(batch[1]).clamp(-0.1, 0.1) - batch[1]).abs().mean()


DISTANCE = Task(shape, ERROR, _absolute, lambda found, batch: _absolute(found, batch).log10())
COLOURS = Task(scene, DECIBELS, squared, decibels)
POISSON = Task(square, ERROR, squared, log_error, loss=poisson)
BURGERS = Task(shock, ERROR, squared, log_error, loss=burgers)
HEAT = Task(heat, ERROR, squared, log_error, loss=cooling)
INTEGRALS = Task(integrals, ERROR, squared, log_error, lambda b: b[:2])
ORBITS = Task(orbits, ERROR, squared, log_error)
LOW = (1e-4, 3e-4, 1e-3, 3e-3)

ENTRIES = [
    Entry("distance field", "field", lambda big: Field(3, 1, 256 if big else 64, 8, last="tanh"), DISTANCE,
          (400, 2_000), (256, 4096), LOW, schedule="halved"),
    Entry("radiance field", "field", lambda big: Field(2, 3, 256 if big else 64, 8, 6, "sigmoid"), COLOURS,
          (400, 2_000), (256, 4096), LOW, schedule="exponential"),
    Entry("sine network", "field", lambda big: Sine(2, 3, 256 if big else 64, 4), COLOURS, (400, 2_000), (256, 4096),
          (3e-5, *LOW[:3]), schedule="constant", gain=1.0),
    Entry("Fourier features", "field", lambda big: Fourier(256 if big else 64, 3), COLOURS, (400, 2_000), (256, 4096),
          LOW[1:], schedule="constant"),
    Entry("Poisson's equation", "physics", lambda big: xavier(mlp([2, *[50 if big else 32] * 4, 1], nn.Tanh)), POISSON,
          (800, 4_000), (128, 2048), (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
    Entry("Burgers' equation", "physics", lambda big: xavier(mlp([2, *[20] * 8, 1], nn.Tanh)), BURGERS,
          (800, 5_000), (128, 2048), (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
    Entry("heat equation", "physics", lambda big: mlp([2, *[64 if big else 32] * 5, 1], nn.SiLU), HEAT,
          (800, 4_000), (128, 1024), (3e-4, 1e-3, 3e-3), schedule="exponential", gain=1.0),
    Entry("operator network", "operator", lambda big: Operator(128 if big else 48), INTEGRALS, (500, 3_000), (128, 512),
          (3e-4, 1e-3, 3e-3)),
    Entry("feature grids", "field", lambda big: Grid(6 if big else 4, 64 if big else 32), COLOURS, (400, 1_500),
          (256, 4096), (3e-4, 1e-3, 3e-3, 1e-2), schedule="constant"),
    Entry("neural differential equation", "physics", lambda big: Flowing(50), ORBITS, (300, 1_500), (64, 256),
          (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
]  # fmt: skip
