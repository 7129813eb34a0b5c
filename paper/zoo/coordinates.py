"""Functions of coordinates: distance and radiance fields, sine networks, physics-informed networks, operators."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..networks import Net, chain, sized
from ..problems import held_out
from .entry import DECIBELS, ERROR, Batch, Entry, Task, decibels, log_error, squared


def field(inputs: int, outputs: int, width: int, depth: int, octaves: int = 0, last: Any = torch.sigmoid) -> Net:
    """ReLU layers that read the encoded coordinates again half-way, as distance and radiance fields do."""
    read, half = inputs * (1 + 2 * octaves), depth // 2

    def rule(net: Any, x: Tensor) -> Tensor:
        if octaves:
            angles = torch.cat([math.pi * 2.0**k * x for k in range(octaves)], -1)
            x = torch.cat([x, angles.sin(), angles.cos()], -1)
        y = x
        for k, layer in enumerate(net.layers):
            y = torch.relu(layer(torch.cat([y, x], -1) if k == half else y))
        return last(net.out(y))

    layers = nn.ModuleList(nn.Linear(read if k == 0 else width + read * (k == half), width) for k in range(depth))
    return Net(rule, layers=layers, out=nn.Linear(width, outputs))


def sine(inputs: int, outputs: int, width: int, depth: int) -> Net:
    """Sines of 30 times linear layers, with the uniform weights made for them."""

    def rule(net: Any, x: Tensor) -> Tensor:
        for layer in net.layers:
            x = torch.sin(30 * layer(x))
        return net.out(x)

    layers = nn.ModuleList(nn.Linear(width if k else inputs, width) for k in range(depth))
    out = nn.Linear(width, outputs)
    for k, layer in enumerate([*layers, out]):
        bound = math.sqrt(6 / layer.in_features) / 30 if k else 1 / inputs
        nn.init.uniform_(layer.weight, -bound, bound)
    return Net(rule, layers=layers, out=out)


def fourier(width: int, depth: int) -> Net:
    """Random Fourier features of the coordinates, then ReLU layers."""

    def rule(net: Any, x: Tensor) -> Tensor:
        angles = 2 * math.pi * x @ net.waves
        return torch.sigmoid(net.net(torch.cat([angles.sin(), angles.cos()], -1)))

    waves = nn.Buffer(torch.randn(2, width // 2) * 4)
    return Net(rule, waves=waves, net=chain([width, *[width] * depth, 3]))


def xavier(net: nn.Sequential) -> nn.Sequential:
    """Xavier's normal weights and no biases, as is usual in physics-informed networks."""
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return net


def shape(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Signed distances, cut off at 0.1, of a ring united with a box, at points near their surface."""
    rows = 200_000 if big else 9_000
    x = 2 * torch.rand(8 * rows, 3, generator=torch.Generator().manual_seed(0)) - 1
    ring = torch.hypot(torch.hypot(x[:, 0], x[:, 1]) - 0.55, x[:, 2]) - 0.18
    apart = (x - 0.3).abs() - torch.tensor([0.3, 0.2, 0.4])
    box = apart.clamp(min=0).norm(dim=1) + apart.amax(1).clamp(max=0)
    distance = torch.minimum(ring, box)
    near = distance.abs().argsort()[:rows][torch.randperm(rows, generator=torch.Generator().manual_seed(1))]
    return held_out(1000, x[near], distance[near].clamp(-0.1, 0.1))


def scene(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Colours of a picture with edges, gradients and texture, at random places."""
    x = 2 * torch.rand(200_000 if big else 9_000, 2, generator=torch.Generator().manual_seed(1)) - 1
    u, v = x.unbind(1)
    disc, stripes = (torch.hypot(u - 0.2, v) < 0.5).float(), torch.sin(12 * u + 5 * v * v)
    squares = ((3 * u).floor() + (3 * v).floor()) % 2
    return held_out(
        1000, x, torch.stack([0.5 + 0.4 * stripes * disc, 0.3 + 0.5 * squares, 0.5 + 0.4 * u * v - 0.3 * disc], 1)
    )


def derivative(y: Tensor, x: Tensor) -> Tensor:
    """Of each row by its own coordinates."""
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def square(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Points of the square, and the solution sin πx sin πy of the problem below."""
    x = 2 * torch.rand(40_000 if big else 6_000, 2, generator=torch.Generator().manual_seed(2)) - 1
    return held_out(1000, x, (math.pi * x[:, 0]).sin() * (math.pi * x[:, 1]).sin())


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
    return held_out(1000, points, torch.from_numpy(u).float())


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
    return held_out(1000, torch.stack([t, x], 1), sum(wave if k == 1 else wave / 2 for k, wave in waves))


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


def operator(width: int) -> Net:
    """From a function, known at some points, and a place to a number: a network of each, and their product."""
    return Net(
        lambda net, function, place: (net.branch(function) * net.trunk(place)).sum(1) + net.offset,
        branch=chain([40, width, width, width], nn.GELU), trunk=chain([1, width, width, width], nn.GELU),
        offset=nn.Parameter(torch.zeros(1)),
    )  # fmt: skip


def integrals(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Random smooth functions at 40 points, a place, and the integral up to there."""
    rows, generator = 40_000 if big else 6_000, torch.Generator().manual_seed(5)
    k = torch.arange(1.0, 7.0)
    weights = torch.randn(rows, 6, generator=generator) / k
    x = torch.rand(rows, 1, generator=generator)
    points = torch.linspace(0, 1, 40)
    functions = weights @ (math.pi * k[:, None] * points).cos()
    whole = (weights * (math.pi * k * x).sin() / (math.pi * k)).sum(1)
    return held_out(1000, functions, x, whole)


def grid(levels: int, width: int) -> Net:
    """Learned features on grids of several widths, read between their corners, and a small network."""

    def rule(net: Any, x: Tensor) -> Tensor:
        places = x[None, :, None]
        read = [nn.functional.grid_sample(each, places, align_corners=True)[0, :, :, 0].T for each in net.grids]
        return torch.sigmoid(net.net(torch.cat(read, 1)))

    sides = (2 ** (k + 2) + 1 for k in range(levels))
    grids = nn.ParameterList(torch.empty(1, 2, side, side).uniform_(-1e-4, 1e-4) for side in sides)
    return Net(rule, grids=grids, net=chain([2 * levels, width, width, 3]))


def flowing(width: int) -> Net:
    """A differential equation whose right-hand side is a small tanh network, by eight steps of Runge and Kutta."""

    def rule(net: Any, x: Tensor) -> Tensor:
        for _ in range(8):
            x = x + net.net(x + net.net(x) / 16) / 8
        return x

    net: Any = chain([2, width, width, 2], nn.Tanh)
    for layer in net[::2]:
        nn.init.normal_(layer.weight, std=0.1)
        nn.init.zeros_(layer.bias)
    return Net(rule, net=net)


def orbits(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Where a damped nonlinear oscillator stands, and a while later."""
    x = 4 * torch.rand(40_000 if big else 6_000, 2, generator=torch.Generator().manual_seed(6)) - 2
    y = x
    for _step in range(100):
        y = y + 0.01 * torch.stack([2 * y[:, 1], -2 * y[:, 0].sin() - 0.3 * y[:, 1]], 1)
    return held_out(1000, x, y)


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
    Entry("distance field", "field", sized(field, 3, 1, (64, 256), 8, last=torch.tanh), DISTANCE, (400, 2_000),
          (256, 4096), LOW, schedule="halved"),
    Entry("radiance field", "field", sized(field, 2, 3, (64, 256), 8, 6), COLOURS, (400, 2_000), (256, 4096), LOW,
          schedule="exponential"),
    Entry("sine network", "field", sized(sine, 2, 3, (64, 256), 4), COLOURS, (400, 2_000), (256, 4096),
          (3e-5, *LOW[:3]), schedule="constant", gain=1.0),
    Entry("Fourier features", "field", sized(fourier, (64, 256), 3), COLOURS, (400, 2_000), (256, 4096), LOW[1:],
          schedule="constant"),
    Entry("Poisson's equation", "physics", lambda big: xavier(chain([2, *[50 if big else 32] * 4, 1], nn.Tanh)),
          POISSON, (800, 4_000), (128, 2048), (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
    Entry("Burgers' equation", "physics", lambda big: xavier(chain([2, *[20] * 8, 1], nn.Tanh)), BURGERS, (800, 5_000),
          (128, 2048), (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
    Entry("heat equation", "physics", lambda big: chain([2, *[64 if big else 32] * 5, 1], nn.SiLU), HEAT,
          (800, 4_000), (128, 1024), (3e-4, 1e-3, 3e-3), schedule="exponential", gain=1.0),
    Entry("operator network", "operator", sized(operator, (48, 128)), INTEGRALS, (500, 3_000), (128, 512),
          (3e-4, 1e-3, 3e-3)),
    Entry("feature grids", "field", sized(grid, (4, 6), (32, 64)), COLOURS, (400, 1_500), (256, 4096),
          (3e-4, 1e-3, 3e-3, 1e-2), schedule="constant"),
    Entry("neural differential equation", "physics", sized(flowing, 50), ORBITS, (300, 1_500), (64, 256),
          (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
]  # fmt: skip
