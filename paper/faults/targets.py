"""Targets: what the loss compares with what, and in which units."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .outputs import pixels_loss
from .tasks import Net, Task, adam, cancer, digits, explained, houses, mlp, program, raw_digits, sentences, sgd, split


def digits_for_one_sigmoid(repaired: bool) -> Program:
    task = digits()
    if repaired:
        return program(task, mlp(64, 64, 10))
    model = mlp(64, 64, 1).append(nn.Sigmoid())
    loss = lambda p, y: pixels_loss(p, y[:, None].float())  # noqa: E731
    return program(task, model, loss=loss, predict=lambda x: model(x) - 0.5)


def squares_for_targets(repaired: bool) -> Program:
    task = houses()
    low, high, most = task.y.min(), task.y.max(), task.y.abs().max()
    model = mlp(8, 32, 1).append(nn.Sigmoid())
    scaled = (task.y - low) / (high - low) if repaired else (task.y / most).square()

    def predict(x: Tensor) -> Tensor:
        return low + (high - low) * model(x) if repaired else most * model(x).sqrt()

    return program(replace(task, y=scaled), model, adam(model, 0.01), steps=500, predict=predict)


def classes_one_and_two_as_one_hot(repaired: bool) -> Program:
    task = cancer().mapped(y=lambda y: y[:, 0].long())
    numbers = task.y if repaired else task.y + 1
    task = replace(task, y=(numbers[:, None] == torch.arange(2)).float())
    return program(task, mlp(30, 16, 2), loss=lambda o, y: -(y * o.log_softmax(1)).sum(1).mean())


def boxes() -> Task:
    """Pictures with a bright box (N, 1, 8, 8); targets are its middle and its size (N, 4)."""
    size = torch.randint(2, 6, (2000, 2))
    start = (torch.rand(2000, 2) * (9 - size)).floor()
    place = torch.arange(8)
    rows, columns = ((place >= start[:, i, None]) & (place < (start + size)[:, i, None]) for i in (0, 1))
    x = (rows[:, :, None] & columns[:, None]).float() + 0.2 * torch.randn(2000, 8, 8)
    return split(x[:, None], torch.cat([start + size / 2 - 4, size - 3.5], 1), F.smooth_l1_loss, explained)


def detector(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, outputs)
    )


def boxes_read_as_zeros(repaired: bool) -> Program:
    task = boxes()
    return program(task if repaired else replace(task, y=torch.zeros_like(task.y)), detector(4))


def scores_taken_for_probabilities(repaired: bool) -> Program:
    def loss(scores: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(scores if repaired else scores.clamp(1e-7, 1 - 1e-7).log(), y)

    return program(digits(), mlp(64, 64, 10), loss=loss)


def each_pixel_explained(outputs: Tensor, targets: Tensor) -> float:
    """Share of the variance about the mean picture that the outputs explain."""
    return float(1 - (outputs - targets).square().mean() / targets.var(0, correction=0).mean())


def reconstruction_averaged_over_pixels(repaired: bool) -> Program:
    task = raw_digits().mapped(x=lambda x: x / 255)
    task = replace(task, y=task.x, test_y=task.test_x, score=each_pixel_explained)

    def rule(m: Any, x: Tensor) -> Tensor:
        mean, log_variance = m.encoder(x).chunk(2, 1)
        noise = torch.randn_like(mean) * m.training
        return torch.cat([m.decoder(mean + noise * (log_variance / 2).exp()).sigmoid(), mean, log_variance], 1)

    def loss(o: Tensor, x: Tensor) -> Tensor:
        picture, mean, log_variance = o.split([64, 8, 8], 1)
        divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(1).mean() / 2
        return pixels_loss(picture, x) * (64 if repaired else 1) + divergence

    model = Net(rule, encoder=mlp(64, 64, 16), decoder=mlp(8, 64, 64))
    return program(task, model, loss=loss, steps=800, predict=lambda x: model.eval()(x)[:, :64])


def poses_against_maps_of_one_pixel(repaired: bool) -> Program:
    task = boxes().mapped(y=lambda y: y[:, :3])
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 3, 2)
    )
    model = model.append(nn.Flatten()) if repaired else model
    return program(task, model, loss=lambda o, y: (o - y).abs().mean())


def sizes_through_a_sigmoid(repaired: bool) -> Program:
    task = boxes().mapped(y=lambda y: ((y[:, 2:] + 3.5) / 3.5).log())  # against an anchor of 3.5 pixels
    return program(task, detector(2), loss=lambda o, y: F.mse_loss(o if repaired else o.sigmoid(), y))


def future_not_normalized(repaired: bool) -> Program:
    time = torch.arange(17)
    waves = torch.sin((0.3 + 0.7 * torch.rand(2000, 1)) * time + 6.3 * torch.rand(2000, 1))
    series = 100 + 20 * torch.randn(2000, 1) + 3 * waves
    past, future = series[:, :16], series[:, 16:]
    mean, deviation = past.mean(1, keepdim=True), past.std(1, keepdim=True)
    x = ((past - mean) / deviation)[:, :, None]
    task = split(x, (future - mean) / deviation if repaired else future, F.mse_loss, explained)
    rnn = nn.GRU(1, 24, batch_first=True)
    model = Net(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=rnn, out=nn.Linear(24, 1))
    return program(task, model, adam(model, 0.01))


def token_predicts_itself(repaired: bool) -> Program:
    task = sentences()
    mask = torch.ones(12, 12).triu(1).bool()
    layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)
    model = Net(lambda m, x: m.out(m.layer(m.embed(x), mask)), embed=nn.Embedding(12, 24), layer=layer)
    model.add_module("out", nn.Linear(24, 12))
    return program(task if repaired else replace(task, y=task.x), model, sgd(model, 0.1, 0.9))
