"""Preparation: how inputs are scaled, laid out and looked up before a layer sees them, in training and after it."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .outputs import pairs
from .tasks import Net, accuracy, adam, explained, mlp, program, split, tokens_loss


def window_scaled_with_its_target(repaired: bool) -> Program:
    time = torch.arange(17)
    swings = torch.sin((0.3 + 0.7 * torch.rand(2000, 1)) * time + 6.3 * torch.rand(2000, 1))
    series = swings + 0.2 * torch.randn(2000, 17)

    def scaled(windows: Tensor, known: int) -> tuple[Tensor, Tensor]:
        mean, deviation = windows[:, :known].mean(1, keepdim=True), windows[:, :known].std(1, keepdim=True)
        windows = (windows - mean) / deviation
        return windows[:, :16], windows[:, 16:]

    task = split(*scaled(series[:1600], 16 if repaired else 17), F.mse_loss, explained, 1)
    test_x, test_y = scaled(series[1600:], 16)  # the future is not known then
    return program(replace(task, test_x=test_x, test_y=test_y), mlp(16, 32, 1), steps=1500)


def divided_by_the_mean(repaired: bool) -> Program:
    time = torch.arange(17)
    swings = torch.sin((0.3 + 0.7 * torch.rand(2000, 1)) * time + 6.3 * torch.rand(2000, 1))
    series = torch.rand(2000, 1) * (swings - 0.2)
    past, future = series[:, :16], series[:, 16:]
    scale = past.std(1, keepdim=True) if repaired else past.mean(1, keepdim=True)
    task = split(
        past / scale,
        torch.cat([future / scale, scale], 1),
        lambda o, y: F.mse_loss(o, y[:, :1]),
        lambda o, y: explained(o[:, 0] * y[:, 1], y[:, 0] * y[:, 1]),
    )
    return program(task, mlp(16, 32, 1), steps=600)


def pairs_swapped_with_their_labels(repaired: bool) -> Program:
    task = pairs()
    swapped = task.y if repaired else 1 - task.y
    task = replace(task, x=torch.cat([task.x, task.x.flip(1)]), y=torch.cat([task.y, swapped]))
    model = Net(
        lambda m, x: m.head((m.body(x[:, 0]) - m.body(x[:, 1])).abs())[:, 0], body=mlp(64, 32, 16), head=mlp(16, 16, 1)
    )
    loss = F.binary_cross_entropy_with_logits
    return program(task, model, adam(model, 0.005), loss=loss, steps=500, predict=lambda x: model(x)[:, None])


def embedded_channels_reshaped(repaired: bool) -> Program:
    x, y = torch.randint(4, (2500, 8, 8)), torch.randint(4, (2500,))
    rows, columns = torch.randint(8, (2500,)), torch.randint(7, (2500,))
    every = torch.arange(2500)
    x[every, rows, columns] = 4  # the mark: the class is the symbol right of it
    x[every, rows, columns + 1] = y

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.embed(x)
        h = h.permute(0, 3, 1, 2) if repaired else h.permute(0, 2, 1, 3).reshape(len(x), 8, 8, 8)
        return m.out(m.conv(h).relu().amax((2, 3)))

    model = Net(rule, embed=nn.Embedding(5, 8), conv=nn.Conv2d(8, 32, 3, padding=1), out=nn.Linear(32, 4))
    return program(split(x, y, F.cross_entropy, accuracy), model, adam(model, 0.01), steps=400)


def nodes_of_another_graph(repaired: bool) -> Program:
    nodes, size = 20, 16
    own = torch.randn(2000, nodes)
    neighbour = torch.randint(nodes, (2000, nodes))
    y = (own * own.gather(1, neighbour) > 0).long()
    task = split(torch.stack([own, neighbour.float()], 2), y, tokens_loss, accuracy)

    def rule(m: Any, x: Tensor) -> Tensor:
        flat, graph = x[..., 0].flatten(), torch.arange(len(x))[:, None]
        index = graph * (nodes if repaired else len(x)) + x[..., 1].long()
        return m.out(torch.stack([x[..., 0], flat[index % len(flat)]], 2))

    model = Net(rule, out=mlp(2, 32, 2))
    return program(task, model, adam(model, 0.01), size=size, predict=lambda x: torch.cat([*map(model, x.split(size))]))
